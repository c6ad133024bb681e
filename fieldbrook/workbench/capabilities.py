"""Capabilities of a run without a node: effects are accepted but not sent; chains are simulated."""

from __future__ import annotations

from fieldbrook.actors.project.capabilities import sends_transaction
from fieldbrook.wasm.run import Capabilities, EffectRefusedError, Run, Transaction
from fieldbrook.wasm.seeded import Seeded
from fieldbrook.workbench.simulated_chain import SimulatedChains


class SimulatedCapabilities(Capabilities):
    """The capabilities of one run: all effects are accepted but not sent; chains are simulated."""

    def __init__(self, number: int, seeded: Seeded, chains: SimulatedChains | None) -> None:
        self.seeded = seeded
        self._number = number
        self._chains = chains

    def check_topic(self, topic: str) -> None:
        """Accept every topic, because there is no broker and no other project."""

    def api_refusal(self, method: str, url: str) -> tuple[int, str] | None:
        """Refuse no call; no call is sent."""
        return None

    def send_transaction(
        self, run: Run, chain_id: int | None, operator: str | None, request: bytes
    ) -> Transaction:
        """See `Capabilities.send_transaction`."""
        if self._chains is None:
            raise EffectRefusedError(_no_chain(chain_id))
        return self._chains.send(self._number, chain_id, operator, request)

    def call_contract(self, run: Run, chain_id: int | None, request: bytes) -> bytes:
        """See `Capabilities.call_contract`."""
        if self._chains is None:
            raise EffectRefusedError(_no_chain(chain_id))
        return self._chains.call(self._number, chain_id, request)

    def api_transaction(
        self, run: Run, method: str, url: str, event_type: str, request: bytes
    ) -> tuple[int, Transaction | str] | None:
        """See `Capabilities.api_transaction`."""
        if self._chains is None or not sends_transaction(method, url):
            return None
        return self._chains.send_by_name(self._number, request, event_type)


def _no_chain(chain_id: int | None) -> str:
    state = "no chain is" if chain_id is None else f"chain {chain_id} is not"
    return f"{state} configured (--chain FILE simulates chains)"
