"""A real EVM chain of very many blocks: Hardhat's node makes empty ones without taking time.

Anvil makes each block by itself, and each takes longer the more there are. Hardhat notes that
there are so many and makes one up when somebody asks for it. Such a block is not the parent of
the next one, so the newest blocks are made one by one.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.chain.evm import Contract, Evm, started
from tests.support.tools import npm_installed, require_tool

FOLDER = Path(__file__).parent / "hardhat"
_TOGETHER = 200
_NEWEST = 40


class Hardhat(Evm):
    """Hardhat's node on a port of its own, with the rules of `hardfork`."""

    def __init__(self, *flags: str, hardfork: str = "cancun") -> None:
        self._hardfork = hardfork
        super().__init__(*flags)

    def _begin(self, flags: Sequence[str]) -> subprocess.Popen[bytes]:
        self._home = tempfile.TemporaryDirectory(prefix="fieldbrook-hardhat-")
        # It keeps a note of having asked about statistics.
        quiet = {"HARDHAT_DISABLE_TELEMETRY_PROMPT": "true", "HOME": self._home.name}
        rules = {"HARDFORK": self._hardfork}
        cli = npm_installed(FOLDER) / "hardhat" / "internal" / "cli" / "cli.js"
        where = ["--hostname", "127.0.0.1", "--port", str(self.port)]
        return started(
            [require_tool("node"), str(cli), "node", *where, *flags],
            cwd=FOLDER,
            env={**os.environ, **quiet, **rules},
        )

    def mine(self, blocks: int = 1) -> None:
        """Empty blocks."""
        self.rpc("hardhat_mine", hex(blocks))

    def spread(
        self, contracts: Sequence[Contract], transactions: int, logs: int, height: int
    ) -> None:
        """Grow to a height. Transactions lie in blocks far from each other; each is of the next
        contract and has so many logs, which are numbered from 0 on over all contracts."""
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
