"""Commands on chains that need no node: `chain networks`."""

from __future__ import annotations

import dataclasses

from fieldbrook.cli.output import show_rows
from fieldbrook.cli.remote.chain.chains import chain
from fieldbrook.core.networks import NETWORKS

_COLUMNS = {
    "name": "NAME",
    "chain_id": "ID",
    "confirmations": "CONFIRMATIONS",
    "finality": "FINALITY",
    "final_tag": "FINALIZED",
    "poll_ms": "POLL MS",
    "priority_fee": "PRIORITY FEE",
    "max_fee_per_gas": "MAX FEE",
    "test": "TEST",
}


@chain.command("networks")
def chain_networks() -> None:
    """List the known chains with their defaults; needs no node.

    FINALITY is the number of blocks after which a block is final, FINALIZED tells whether
    endpoints know the block of that name, and fees are in wei per gas. The settings of a chain
    override its defaults. With --json each chain has the sources of its figures.
    """
    show_rows([dataclasses.asdict(network) for network in NETWORKS], _COLUMNS, "")
