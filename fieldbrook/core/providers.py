"""Known providers of endpoints, and the largest range of blocks in a log query of each.

The node finds the limits of any endpoint by itself. With a known provider, fewer requests are
refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider of endpoints.

    Attributes:
        hosts: the host names of the provider, including all their subdomains.
        log_range: the most blocks of a log query, with the smallest plan.
        source: the source of the figure.
    """

    name: str
    hosts: tuple[str, ...]
    log_range: int
    source: str


PROVIDERS = (
    Provider(
        "Alchemy",
        ("alchemy.com", "alchemyapi.io"),
        10,
        "https://www.alchemy.com/docs/deep-dive-into-eth_getlogs",
    ),
    Provider(
        "Ankr",
        ("rpc.ankr.com",),
        3_000,
        "https://github.com/AlphaWallet/alpha-wallet-android/issues/2735",
    ),
    Provider(
        "Avalanche's own",
        ("api.avax.network", "api.avax-test.network"),
        2_048,
        "https://github.com/ava-labs/coreth/pull/112",
    ),
    Provider(
        "BlockPI",
        ("blockpi.network",),
        1_024,
        "https://github.com/AlphaWallet/alpha-wallet-ios/pull/6631",
    ),
    Provider(
        "BNB Chain's own",
        ("binance.org", "bnbchain.org"),
        5_000,
        "https://github.com/AlphaWallet/alpha-wallet-android/issues/2736",
    ),
    Provider(
        "Chainstack",
        ("chainstack.com",),
        2_000,
        "https://support.chainstack.com/hc/en-us/articles/6955614349209",
    ),
    Provider("dRPC", ("drpc.org",), 10_000, "https://drpc.org/docs/howitworks/ratelimiting"),
    Provider("Infura", ("infura.io",), 10_000, "https://github.com/INFURA/infura/issues/237"),
    Provider(
        "IoTeX's own",
        ("iotex.io", "iotexrpc.com"),
        1_000,
        "https://github.com/iotexproject/iotex-core/issues/2469",
    ),
    Provider(
        "QuickNode",
        ("quiknode.pro",),
        5,
        "https://www.quicknode.com/docs/ethereum/eth_getLogs",
    ),
)


def provider_of(url: str) -> Provider | None:
    """Return the provider of an endpoint; None if the provider is unknown."""
    host = f".{urlsplit(url).hostname or ''}"
    return next((p for p in PROVIDERS if any(host.endswith(f".{h}") for h in p.hosts)), None)
