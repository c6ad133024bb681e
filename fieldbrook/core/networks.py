"""Known chains: their ids, names and defaults, so that the settings need not repeat them.

Source: interface document, 5.8, for names and ids.
"""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_POLL_MS = 3_000


@dataclass(frozen=True, slots=True)
class Network:
    """A known chain.

    A block needs `confirmations` blocks on top of it before its contents become events.
    `poll_ms` is the polling interval, about the time between two blocks.
    """

    chain_id: int
    name: str
    confirmations: int = 0
    poll_ms: int = DEFAULT_POLL_MS


_NETWORKS = (
    # IoTeX blocks are final as soon as they are visible.
    Network(4689, "iotex-mainnet", 0, 5_000),
    Network(4690, "iotex-testnet", 0, 5_000),
    Network(1, "ethereum-mainnet", 12, 12_000),
    Network(5, "goerli", 12, 12_000),
    Network(137, "polygon-mainnet", 32),
    Network(80001, "mumbai", 32),
    # Rollups with one sequencer: a published block is reverted only in an incident.
    Network(42161, "arbitrum-one", 0, 1_000),
    Network(421613, "arbitrum-goerli", 0, 1_000),
    Network(10, "op-mainnet", 0, 2_000),
    Network(420, "op-goerli", 0, 2_000),
    Network(8453, "base-mainnet", 0, 2_000),
    Network(84531, "base-goerli", 0, 2_000),
    Network(324, "zksync-era-mainnet", 0, 1_000),
    Network(280, "zksync-era-testnet", 0, 1_000),
    Network(1030, "conflux-espace-mainnet", 50, 1_000),
    Network(71, "conflux-espace-testnet", 50, 1_000),
)
BY_NAME = {network.name: network for network in _NETWORKS}
BY_ID = {network.chain_id: network for network in _NETWORKS}
NOT_EVM = frozenset({"solana-mainnet-beta", "solana-testnet", "solana-devnet"})
