"""One instance for event after event, for applets that keep their state in memory.

So ran applets in the first generation of the existing system. The instance ends with the
event that fails, after a number of events, when it has taken half of the memory it may have,
and with the process: what must last belongs in the key-value store.
"""

from __future__ import annotations

import wasmtime

from fieldbrook.wasm.engine import raw
from fieldbrook.wasm.engine.engine import Engine
from fieldbrook.wasm.engine.instance import RawGuest, signed
from fieldbrook.wasm.limits import Limits
from fieldbrook.wasm.module.inspection import ModuleReport
from fieldbrook.wasm.run import Run


class ReusedGuest(RawGuest):
    """The instance that is kept. Budgets and the deadline are each event's own."""

    __slots__ = ("_events", "_left", "_recycle_bytes", "_store")

    def __init__(
        self,
        engine: Engine,
        module: wasmtime.Module,
        report: ModuleReport,
        limits: Limits,
        events: int,
    ) -> None:
        super().__init__(engine, module, report, limits)
        self._events = events
        self._recycle_bytes = limits.memory_bytes // 2
        self._store = 0
        self._left = 0

    def execute(self, handler: bytes, size: int, run: Run) -> tuple[int, str]:
        """One run in the instance there is, or in a new one."""
        if not self._pre_at:
            raise RuntimeError("the host is closed")
        rid = self.begin(run)
        well = False
        try:
            if not self._store:
                failure = self._open()
                if failure is not None:
                    return failure
            else:
                self.calls_left = self.limits.host_calls
                self._can_alloc = self._exports_alloc
                raw.set_epoch_deadline(self._context, self._ticks)
            context, arguments = self._context, self._arguments
            raw.export_get(context, self._instance_at, handler, size, self._handler_at)
            arguments[0] = rid
            error = raw.call_unchecked(context, self._handler, self._arguments_at, 1, self._trap_at)
            if error or self._trap.value:
                return self._failed(error)
            well = True
            self._left -= 1
            return signed(arguments[0]), ""
        finally:
            if not well or self._left <= 0 or self._is_large():
                self._end()

    def close(self) -> None:
        """Release the instance and the linked module."""
        self._end()
        super().close()

    def _open(self) -> tuple[int, str] | None:
        """Make an instance; what it failed with, if it did."""
        self.reset()
        self._store = store = raw.store_new(self._engine_at, None, None)
        self._context = raw.store_context(store)
        self._left = self._events
        return self.instantiate()

    def _is_large(self) -> bool:
        size: int = raw.memory_data_size(self._context, self._memory_export)
        return size > self._recycle_bytes

    def _end(self) -> None:
        store, self._store = self._store, 0
        self._size, self._can_alloc = 0, False
        if store:
            raw.store_delete(store)
