"""Known chains: their ids, names and defaults, so that the settings need not repeat them.

Source: interface document, 5.8, for the names and ids up to Conflux; `Network.sources` for the
figures of each chain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

DEFAULT_POLL_MS = 3_000
DEFAULT_CONFIRMATIONS = 12
DEFAULT_FINALITY = 128
DEFAULT_LOG_RANGE = 20_000
DEFAULT_MAX_FEE = 500_000_000_000
DEVELOPMENT_IDS = frozenset({1_337, 31_337})
"""Ids of the chains that development tools make: those of Ganache and geth, and of Hardhat and
Anvil. These tools make a block only for each transaction, so the last block would never get
confirmations."""
_GWEI = 10**9


@dataclass(frozen=True, slots=True)
class Network:
    """A known chain.

    Attributes:
        confirmations: how many later blocks a block needs before its contents become events.
        poll_ms: the polling interval, about the time between two blocks.
        finality: the number of blocks after which a block is final; None if it is not stated.
        final_tag: whether endpoints support the block tag `finalized`.
        priority_fee: the smallest priority fee in wei per gas with which blocks include a
            transaction; it is also offered if an endpoint suggests none. None for the usual fee.
        max_fee_per_gas: the highest fee of a transaction, in wei per gas.
        test: whether its coins have no value.
        sources: the sources of the figures.
    """

    chain_id: int
    name: str
    confirmations: int = 0
    poll_ms: int = DEFAULT_POLL_MS
    finality: int | None = None
    final_tag: bool = False
    priority_fee: int | None = None
    max_fee_per_gas: int = DEFAULT_MAX_FEE
    test: bool = False
    sources: tuple[str, ...] = ()

    def defaults(self) -> dict[str, Any]:
        """Return the keys of the setting `chains` that have a default for this chain."""
        return {
            "id": self.chain_id,
            "name": self.name,
            "confirmations": self.confirmations,
            "poll_ms": self.poll_ms,
            "priority_fee": self.priority_fee,
            "max_fee_per_gas": self.max_fee_per_gas,
            "finality": DEFAULT_FINALITY if self.finality is None else self.finality,
        }


# The base fee is at least 1,000 gwei, and the fee limit is enough for twice the base fee.
_IOTEX: dict[str, Any] = {
    "poll_ms": 2_500,
    "finality": 0,
    "priority_fee": 0,
    "max_fee_per_gas": 5_000 * _GWEI,
    "sources": (
        "https://docs.iotex.io/basic-concepts/blockchain-specs",
        "https://iotex.io/blog/iotex-v2-2-protocol-upgrade-real-time-finality-for-next-gen-web3",
        "https://github.com/iotexproject/iotex-core/blob/master/action/protocol/eip1559.go",
    ),
}
_ETHEREUM: dict[str, Any] = {
    "confirmations": 12,
    "poll_ms": 12_000,
    "finality": 96,  # two to three epochs of 32 blocks
    "final_tag": True,
    "sources": (
        "https://ethereum.org/en/developers/docs/consensus-mechanisms/pos/#finality",
        "https://docs.chainstack.com/docs/ethereum-fast-confirmation",
    ),
}
# Rollups with one sequencer: a published block is reverted only in an incident. It is final when
# the block of Ethereum that contains its data is, 20 to 30 minutes later.
_OPTIMISM: dict[str, Any] = {
    "poll_ms": 2_000,
    "finality": 900,
    "final_tag": True,
    "priority_fee": _GWEI // 1_000,
    "sources": ("https://docs.optimism.io/stack/transactions/transaction-finality",),
}
_BASE: dict[str, Any] = {
    **_OPTIMISM,
    "sources": (
        *_OPTIMISM["sources"],
        "https://docs.base.org/base-chain/network-information/configuration-changelog",
    ),
}
_ARBITRUM: dict[str, Any] = {
    "poll_ms": 1_000,  # four blocks
    "finality": 7_200,
    "final_tag": True,
    "priority_fee": 0,
    "sources": ("https://docs.arbitrum.io/how-arbitrum-works/reference/finality-and-reorgs",),
}
_POLYGON: dict[str, Any] = {
    "confirmations": 32,
    "poll_ms": 2_000,
    "finality": 32,
    "final_tag": True,
    "priority_fee": 30 * _GWEI,
    "sources": (
        "https://polygon.technology/blog/polygon-5-second-fast-finality-upgrade",
        "https://github.com/maticnetwork/matic.js/issues/373",
    ),
}
# Blocks are usually final after 2 blocks. Without the votes of the validators, a block is final
# when 11 of them, with 16 consecutive blocks each, have built on it.
_BNB: dict[str, Any] = {
    "confirmations": 3,
    "poll_ms": 1_000,  # two blocks
    "finality": 176,
    "final_tag": True,
    "priority_fee": _GWEI // 20,
    "sources": (
        "https://docs.bnbchain.org/bnb-smart-chain/developers/json_rpc/bsc-api-list/",
        "https://github.com/bnb-chain/BEPs/blob/master/BEPs/BEP-619.md",
    ),
}
_AVALANCHE: dict[str, Any] = {
    "poll_ms": 2_000,
    "finality": 0,
    "final_tag": True,
    "priority_fee": 0,
    "sources": (
        "https://build.avax.network/docs/rpcs/c-chain/rpc",
        "https://github.com/avalanche-foundation/ACPs/pull/214",
    ),
}

NETWORKS = (
    Network(4689, "iotex-mainnet", **_IOTEX),
    Network(4690, "iotex-testnet", **_IOTEX, test=True),
    Network(1, "ethereum-mainnet", **_ETHEREUM),
    Network(11155111, "sepolia", **_ETHEREUM, test=True),
    Network(8453, "base-mainnet", **_BASE),
    Network(84532, "base-sepolia", **_BASE, test=True),
    Network(42161, "arbitrum-one", **_ARBITRUM),
    Network(421614, "arbitrum-sepolia", **_ARBITRUM, test=True),
    Network(10, "op-mainnet", **_OPTIMISM),
    Network(11155420, "op-sepolia", **_OPTIMISM, test=True),
    Network(137, "polygon-mainnet", **_POLYGON),
    Network(80002, "polygon-amoy", **_POLYGON, test=True),
    Network(56, "bnb-mainnet", **_BNB),
    Network(97, "bnb-testnet", **_BNB, test=True),
    Network(43114, "avalanche-mainnet", **_AVALANCHE),
    Network(43113, "avalanche-fuji", **_AVALANCHE, test=True),
    # These were shut down or are rarely used; their names remain valid.
    Network(5, "goerli", 12, 12_000, test=True),
    Network(80001, "mumbai", 32, test=True),
    Network(421613, "arbitrum-goerli", 0, 1_000, test=True),
    Network(420, "op-goerli", 0, 2_000, test=True),
    Network(84531, "base-goerli", 0, 2_000, test=True),
    Network(324, "zksync-era-mainnet", 0, 1_000),
    Network(280, "zksync-era-testnet", 0, 1_000, test=True),
    Network(1030, "conflux-espace-mainnet", 50, 1_000),
    Network(71, "conflux-espace-testnet", 50, 1_000, test=True),
)
BY_NAME = {network.name: network for network in NETWORKS}
BY_ID = {network.chain_id: network for network in NETWORKS}
NOT_EVM = frozenset({"solana-mainnet-beta", "solana-testnet", "solana-devnet"})
