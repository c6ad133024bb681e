"""Known chains and providers: defaults for settings, and how settings override them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from fieldbrook.chain.transaction import Market, fees_for
from fieldbrook.core.networks import BY_ID, BY_NAME, NETWORKS
from fieldbrook.core.providers import PROVIDERS, provider_of
from fieldbrook.core.settings import Chain
from fieldbrook.core.settings.chain import read_chain

PUBLIC = (4689, 4690, 1, 11155111, 8453, 42161, 10, 137, 56, 43114)
GWEI = 10**9


def chain(**given: Any) -> Chain:
    return read_chain({"endpoint": "https://e.example", **given})


def test_ids_and_names_are_those_of_one_chain_each() -> None:
    assert len(BY_ID) == len(BY_NAME) == len(NETWORKS)


@pytest.mark.parametrize("chain_id", PUBLIC)
def test_public_chains_have_figures_with_sources(chain_id: int) -> None:
    network = BY_ID[chain_id]
    assert network.finality is not None
    assert network.sources
    assert all(source.startswith("https://") for source in network.sources)
    made = chain(id=chain_id)
    assert made == chain(name=network.name)
    assert {key: getattr(made, key) for key in network.defaults()} == network.defaults()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "mine"),
        ("confirmations", 7),
        ("poll_ms", 123),
        ("priority_fee", 5),
        ("max_fee_per_gas", 99),
        ("block_tag", "finalized"),
        ("log_range", 10),
        ("fees", "legacy"),
        ("reprice_s", 5),
    ],
)
@pytest.mark.parametrize("chain_id", PUBLIC)
def test_settings_override_every_default_of_a_known_chain_and_no_other(
    chain_id: int, key: str, value: object
) -> None:
    usual, made = chain(id=chain_id), chain(id=chain_id, **{key: value})
    assert getattr(made, key) == value
    assert structs.replace(made, **{key: getattr(usual, key)}) == usual


@pytest.mark.parametrize(
    ("chain_id", "base_fee"), [(4689, 1_000 * GWEI), (4690, 1_000 * GWEI), (1, 200 * GWEI)]
)
def test_the_highest_fee_of_a_known_chain_allows_for_twice_its_base_fee(
    chain_id: int, base_fee: int
) -> None:
    fees = fees_for(Market(base_fee, GWEI, 0), chain(id=chain_id).max_fee_per_gas)
    assert fees.limit == 2 * base_fee + GWEI


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://eth-mainnet.g.alchemy.com/v2/KEY", "Alchemy"),
        ("wss://mainnet.infura.io/ws/v3/KEY", "Infura"),
        ("https://infura.io", "Infura"),
        ("https://babel-api.mainnet.iotex.io", "IoTeX's own"),
        ("https://BSC-dataseed.Binance.org:443", "BNB Chain's own"),
        ("https://notinfura.io/infura.io?infura.io", None),
        ("http://127.0.0.1:8545", None),
        ("http://[::1]:8545/infura.io", None),
        ("https://rpc.example.", None),
    ],
)
def test_a_provider_is_known_by_its_host(url: str, name: str | None) -> None:
    found = provider_of(url)
    assert (found and found.name) == name


def test_ranges_of_providers_have_sources_and_hosts_of_their_own() -> None:
    hosts = [host for provider in PROVIDERS for host in provider.hosts]
    assert len(set(hosts)) == len(hosts)
    assert all(p.source.startswith("https://") and p.log_range > 0 for p in PROVIDERS)
