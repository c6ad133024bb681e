"""Hardhat's node: a second EVM for tests that must not depend on one EVM, and for very many blocks.

Anvil makes each block separately, and a block takes longer the more blocks exist. Hardhat only
stores the number of blocks, and computes a block when it is requested. Such a block is not the
parent of the next block, so the newest blocks are made one by one.

Hardhat cannot reorganise a chain, but it can return to a snapshot. So there is a snapshot for each
block that a test has made.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.chain.evm import Contract, Evm, started
from tests.support.tools import npm_installed, require_tool

FOLDER = Path(__file__).parent / "hardhat"
_TOGETHER = 200
_NEWEST = 40
_ONE_BY_ONE = 200  # blocks
_SIGNED = ("from", "to", "nonce", "gas", "value", "maxFeePerGas", "maxPriorityFeePerGas")


class Hardhat(Evm):
    """Hardhat's node on a port of its own, with the rules of `hardfork`."""

    own = "hardhat"

    def __init__(self, *flags: str, hardfork: str = "cancun") -> None:
        self._hardfork = hardfork
        self._snapshots: dict[int, str] = {}  # by the number of the newest block
        super().__init__(*flags)

    def _begin(self, flags: Sequence[str]) -> subprocess.Popen[bytes]:
        self._home = tempfile.TemporaryDirectory(prefix="fieldbrook-hardhat-")
        # Hardhat stores in the home folder that it has asked about statistics.
        quiet = {"HARDHAT_DISABLE_TELEMETRY_PROMPT": "true", "HOME": self._home.name}
        rules = {"HARDFORK": self._hardfork}
        cli = npm_installed(FOLDER) / "hardhat" / "internal" / "cli" / "cli.js"
        where = ["--hostname", "127.0.0.1", "--port", str(self.port)]
        return started(
            [require_tool("node"), str(cli), "node", *where, *flags],
            cwd=FOLDER,
            env={**os.environ, **quiet, **rules},
        )

    def send(self, to: str | None, data: str, *, mined: bool = True, **more: Any) -> str:
        """See `Evm`."""
        self._remember()
        return super().send(to, data, mined=mined, **more)

    def mine(self, blocks: int = 1) -> None:
        """See `Evm`."""
        if blocks > _ONE_BY_ONE:
            super().mine(blocks)
            return
        for _ in range(blocks):  # one after the other: the calls of a batch run in any order
            self._remember()
            self.rpc("evm_mine")

    def reorganise(self, depth: int) -> None:
        """See `Evm`. The tests must have created the blocks with `send` and `mine`."""
        kept = self.height - depth
        assert self.rpc("evm_revert", self._snapshots[kept])
        self._snapshots = {n: name for n, name in self._snapshots.items() if n < kept}
        self._look_different()
        self.mine(depth)

    def kept(self, tx_hash: str) -> Any:
        """See `Evm`. Hardhat does not return the bytes of a transaction, but can make them again:
        the signature of the same fields is always the same (RFC 6979)."""
        row = self.rpc("eth_getTransactionByHash", tx_hash)
        return {key: row[key] for key in _SIGNED} | {"data": row["input"]}

    def send_again(self, kept: Any) -> None:
        """See `Evm`."""
        self._remember()
        self.rpc("eth_sendTransaction", kept)

    def _remember(self) -> None:
        self._snapshots[self.height] = self.rpc("evm_snapshot")

    def spread(
        self, contracts: Sequence[Contract], transactions: int, logs: int, height: int
    ) -> None:
        """Mine up to a height, with transactions in blocks far from each other. Each transaction
        calls the next contract and makes several logs; logs are numbered from 0 on over all
        contracts."""
        apart = (height - self.height - _NEWEST) // transactions
        calls: list[tuple[object, ...]] = []
        for n in range(transactions):
            contract = contracts[n % len(contracts)]
            data = contract.data("many", n * logs, logs)
            made = {"from": self.account, "to": contract.address, "data": data}
            calls.append(("eth_sendTransaction", {**made, "gas": hex(80_000 + 5_000 * logs)}))
            calls.append(("hardhat_mine", hex(apart - 1)))
        for at in range(0, len(calls), _TOGETHER):
            self.batch(calls[at : at + _TOGETHER])
        self.mine(height - self.height - _NEWEST)
        self.batch([("evm_mine",)] * _NEWEST)

    def stop(self) -> None:
        super().stop()
        self._home.cleanup()
