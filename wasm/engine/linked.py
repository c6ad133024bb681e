"""Modules that are linked to the host functions, once for all hosts of a process."""

from __future__ import annotations

import weakref

import wasmtime

from fieldbrook.wasm.engine.batch import BatchGuest
from fieldbrook.wasm.engine.engine import Engine
from fieldbrook.wasm.engine.instance import RawGuest
from fieldbrook.wasm.limits import Limits
from fieldbrook.wasm.module import abi
from fieldbrook.wasm.module.inspection import examine
from fieldbrook.wasm.module.interface import read_interface


class LinkedModule:
    """A module and its guests, which all projects of a process share.

    The caller takes a guest for a run and returns it afterwards, so there are as many guests as
    there were simultaneous runs. A guest keeps no data of a run, because each run has its own
    instance and budgets.

    Attributes:
        guests: the guests that serve no run now; `pop` and `append` are thread-safe.
        batches: the same for guests of batches.
        uses_sql: whether the applet imports SQL functions.
        can_batch: whether the applet can run in batches.
    """

    def __init__(
        self, engine: Engine, module: wasmtime.Module, limits: Limits, *, seeded: bool = False
    ) -> None:
        """Link the module.

        Raises:
            ModuleRefusedError: the module does not link.
        """
        self.engine, self.module, self.limits, self.seeded = engine, module, limits, seeded
        self.interface = interface = read_interface(module)
        self.report = examine(interface, engine, limits)
        self.names = {name: (name.encode(), len(name.encode())) for name in self.report.handlers}
        self.uses_sql = interface.uses_sql
        self.can_batch = abi.ALLOC in interface.runtime and not self.uses_sql
        self.guests = [self.make_guest()]
        self.batches: list[BatchGuest] = []
        # Guests and their callbacks refer to each other, so nothing else would release them soon.
        weakref.finalize(self, _close, self.guests, self.batches)

    def make_guest(self) -> RawGuest:
        """Make one more guest."""
        module, interface = self.module, self.interface
        return RawGuest(self.engine, module, interface, self.limits, seeded=self.seeded)

    def make_batch(self) -> BatchGuest:
        """Make one more guest for batches."""
        module, interface = self.module, self.interface
        return BatchGuest(self.engine, module, interface, self.limits, seeded=self.seeded)


def _close(*guests: list[RawGuest] | list[BatchGuest]) -> None:
    for some in guests:
        for guest in some:
            guest.close()
