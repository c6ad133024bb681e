"""Instance reuse: one instance serves many events, for applets that keep state in memory.

The first generation of the existing system ran applets this way. An instance ends when an event
fails, after a number of events, when it uses more than half of its memory limit, and when the
process ends. Applets must keep durable data in the key-value store.
"""

from __future__ import annotations

import wasmtime

from fieldbrook.wasm.engine import raw
from fieldbrook.wasm.engine.engine import Engine
from fieldbrook.wasm.engine.instance import RawGuest, signed
from fieldbrook.wasm.limits import Limits
from fieldbrook.wasm.module.interface import Interface
from fieldbrook.wasm.run import Run


class ReusedGuest(RawGuest):
    """A guest that keeps its instance. Every event has its own budgets and deadline."""

    __slots__ = ("_events", "_left", "_recycle_bytes", "_store")

    def __init__(
        self,
        engine: Engine,
        module: wasmtime.Module,
        interface: Interface,
        limits: Limits,
        events: int,
    ) -> None:
        super().__init__(engine, module, interface, limits)
        self._events = events
        self._recycle_bytes = limits.memory_bytes // 2
        self._store = 0
        self._left = 0

    def execute(self, handler: bytes, size: int, run: Run) -> tuple[int, str]:
        """Perform one run in the current instance, or in a new one if there is none."""
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
                self._engine.begin_run()
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
            if run.memory_bytes is not None:
                run.memory_bytes = self.memory_size()
            if not well or self._left <= 0 or self._is_large() or self._is_crowded():
                self._end()

    def close(self) -> None:
        """Release the instance and the linked module."""
        self._end()
        super().close()

    def _open(self) -> tuple[int, str] | None:
        """Make an instance; return the code and the reason of a failure, or None."""
        self.reset()
        self._store = store = raw.store_new(self._engine_at, None, None)
        self._engine.kept += 1
        self._context = raw.store_context(store)
        self._left = self._events
        return self.instantiate()

    def _is_crowded(self) -> bool:
        """Return whether kept instances use half of the pool, which all applets of the process
        share."""
        return self._engine.kept > self._engine.slots // 2

    def _is_large(self) -> bool:
        self.kept_bytes = self.memory_size()
        return self.kept_bytes > self._recycle_bytes

    def _end(self) -> None:
        store, self._store = self._store, 0
        self.kept_bytes = 0
        self._size, self._can_alloc = 0, False
        if store:
            self._engine.kept -= 1
            raw.store_delete(store)
