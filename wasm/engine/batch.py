"""Batches: several events in one instance, for applets that allow it, in a tenth of the time.

Payloads are staged in a separate memory. The glue (see `glue`) passes them to the applet and
collects its log records without calling Python, and one call runs all events. Budgets,
visible data and effects of an event are the same as in an instance of its own; only the
applet's memory differs, because earlier events may have changed it. A batch does not settle
an event that fails: the event's outputs are dropped, and the caller runs it alone.
"""

from __future__ import annotations

import ctypes
import random
import struct
import time
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import wasmtime
from wasmtime import _ffi

from fieldbrook.core.errors import NodeError
from fieldbrook.wasm.engine import glue, raw
from fieldbrook.wasm.engine.engine import Engine, deadline_ticks
from fieldbrook.wasm.engine.instance import RawGuest
from fieldbrook.wasm.host import bind
from fieldbrook.wasm.limits import PAGE_BYTES, Limits
from fieldbrook.wasm.module import abi
from fieldbrook.wasm.module.inspection import imported
from fieldbrook.wasm.module.interface import Interface
from fieldbrook.wasm.run import Run

# A batch is interrupted after this time. Then the current event runs alone with its full deadline:
# batching has no advantage for slow events, and the other events wait for the commit.
BATCH_MS = 50

_GLUED = {(signature.module, signature.name) for signature in (abi.WS_GET_DATA, abi.WS_LOG)}
_MISPLACED = abi.Signature("fieldbrook", abi.WS_GET_DATA.name, "iii", "i", abi.COPY_TO_GUEST_FAILED)
_STAGE_BYTES = glue.STAGE_PAGES * PAGE_BYTES
_LOG_ROOM_BYTES = 256 << 10  # a record that does not fit takes the slower path
_CELLS = raw.c_uint32 * (glue.HEAD_BYTES // 4)
_EXTERN_BYTES = ctypes.sizeof(_ffi.wasmtime_extern_t)
_EXTERN_VALUE = _ffi.wasmtime_extern_t.of.offset
_NO_RID = 0xFFFF_FFFF  # rids have 31 bits
_NO_LIMIT = 1 << 62  # calls are counted in a cell instead, because the glue counts them too
_U32 = 0xFFFF_FFFF
_record = struct.Struct("<3I")
_put_u32 = struct.Struct("<I").pack_into

(_STAGE_MEMORY, _STAGE_TABLE, _MEMORY, _ALLOC, _HANDLER, _GET_DATA, _LOG, _PLACE) = range(8)


class BatchGuest(RawGuest):
    """The guest of a batch. `run` is the run of the current event, as in every guest.

    `unbatchable` is set when the module cannot be instantiated in a batch, e.g. because its
    start section calls the host. Its events must run one by one.
    """

    __slots__ = (
        "_batch_ms",
        "_cells",
        "_current",
        "_earlier",
        "_ends_at",
        "_glue",
        "_glue_at",
        "_glue_imports",
        "_glue_imports_at",
        "_glue_instance",
        "_glue_instance_at",
        "_imports",
        "_imports_at",
        "_linked",
        "_linker_at",
        "_logs_start",
        "_module",
        "_module_at",
        "_rid_base",
        "_run_place",
        "_run_place_at",
        "_runs",
        "_settled",
        "_stage",
        "_trampoline",
        "_trampoline_at",
        "unbatchable",
    )

    def __init__(
        self,
        engine: Engine,
        module: wasmtime.Module,
        interface: Interface,
        limits: Limits,
        *,
        seeded: bool = False,
    ) -> None:
        super().__init__(engine, module, interface, limits, seeded=seeded)
        # In repeatable runs, the events of a batch must not depend on the machine's load.
        self._batch_ms = limits.deadline_ms if seeded else BATCH_MS
        self._ticks = deadline_ticks(engine, self._batch_ms)
        self._module = module
        self._module_at = raw.address(module.ptr())
        self._glue = wasmtime.Module(engine, bytes(wasmtime.wat2wasm(glue.GLUE)))
        self._glue_at = raw.address(self._glue.ptr())
        self._imports = ctypes.create_string_buffer(_EXTERN_BYTES * max(1, len(self._linked)))
        self._imports_at = ctypes.addressof(self._imports)
        self._glue_imports = ctypes.create_string_buffer(_EXTERN_BYTES * (_PLACE + 1))
        self._glue_imports_at = ctypes.addressof(self._glue_imports)
        self._trampoline, self._glue_instance = (_ffi.wasmtime_instance_t() for _ in range(2))
        self._trampoline_at = ctypes.addressof(self._trampoline)
        self._glue_instance_at = ctypes.addressof(self._glue_instance)
        self._run_place = _ffi.wasmtime_extern_t()
        self._run_place_at = ctypes.addressof(self._run_place)
        self._cells = _CELLS()
        self._stage = self._memory
        self._logs_start = self._rid_base = self._settled = 0
        self._current = -1
        self._ends_at = 0.0
        self._runs: Sequence[Run] = ()
        self._earlier: dict[bytes, bytes] = {}
        self.unbatchable = False

    def execute_all(self, handler: bytes, size: int, runs: Sequence[Run]) -> list[tuple[int, str]]:
        """See `Host.run_batch`. `size` is the length of the handler's name in bytes."""
        if not self._pre_at:
            raise RuntimeError("the host is closed")
        count = _fitting(runs)
        if not count or self.unbatchable:
            return []
        self._memory, self._size, self._bound, self._can_alloc = self._stage, 0, False, False
        self.calls_left = 0  # the first call binds the memory
        self._runs, self._current, self._settled, self._earlier = runs, -1, 0, {}
        self._ends_at = time.monotonic() + self._batch_ms / 1000
        store = raw.store_new(self._engine_at, None, None)
        self._context = context = raw.store_context(store)
        try:
            if self._wasi:
                raw.set_wasi(context, raw.wasi_config_new())
            self._engine.begin_run()
            raw.set_epoch_deadline(context, self._ticks)
            if not self._open(handler, size, runs, count):
                self.unbatchable = True
                return []
            arguments = self._arguments
            arguments[0] = count
            error = raw.call_unchecked(
                context, self._run_place_at + _EXTERN_VALUE, self._arguments_at, 1, self._trap_at
            )
            return self._outcomes(count if self._went_well(error) else self._cells[glue.EVENT])
        finally:
            self._size, self._can_alloc, self._runs = 0, False, ()
            raw.store_delete(store)

    def _outcomes(self, count: int) -> list[tuple[int, str]]:
        """Return the codes of the first `count` events, and drop the outputs of the next one."""
        self._drain()
        if count < len(self._runs):
            self._runs[count].forget()
        entries = self._stage[glue.HEAD_BYTES : glue.HEAD_BYTES + count * glue.ENTRY_BYTES]
        words = array("i", bytes(entries))
        return [(code, "") for code in words[glue.ENTRY_BYTES // 4 - 1 :: glue.ENTRY_BYTES // 4]]

    def _went_well(self, error: int | None) -> bool:
        """Return whether a call succeeded; an error or a trap is released.

        The cause is dropped, because the event runs again alone and fails again for the same cause.
        Exceptions other than NodeError, e.g. KeyboardInterrupt, are raised.
        """
        if not error and not self._trap.value:
            return True
        trap, self._trap.value = self._trap.value, None
        self._reason(error, trap)
        pending, self.pending, self.ended = self.pending, None, ""
        if pending is not None and not isinstance(pending, NodeError):
            raise pending
        return False

    # ------------------------------------------------------------ opening

    def _open(self, handler: bytes, size: int, runs: Sequence[Run], count: int) -> bool:
        """Instantiate trampoline, applet and glue around a filled stage."""
        context = self._context
        error = raw.instantiate(self._pre_at, context, self._trampoline_at, self._trap_at)
        if not self._went_well(error):
            return False
        self._fill_stage(runs, count)
        if not self._instantiate_applet() or not self._instantiate_glue(handler, size):
            return False
        raw.export_get(context, self._glue_instance_at, b"run", 3, self._run_place_at)
        if not self._initializes:
            return True
        raw.export_get(context, self._instance_at, b"_initialize", 11, self._handler_at)
        error = raw.call_unchecked(context, self._handler, self._arguments_at, 1, self._trap_at)
        return self._went_well(error)

    def _fill_stage(self, runs: Sequence[Run], count: int) -> None:
        place = self._glue_imports_at + _STAGE_MEMORY * _EXTERN_BYTES
        raw.export_get(self._context, self._trampoline_at, b"memory", 6, place)
        base = raw.memory_data(self._context, place + _EXTERN_VALUE)
        self._stage = stage = self._view(base)
        seeded = runs[0].capabilities.seeded
        self._rid_base = rid = random.getrandbits(30) if seeded is None else seeded.rid
        at = glue.HEAD_BYTES + count * glue.ENTRY_BYTES
        entries = array("I")
        payloads = []
        for run in runs[:count]:
            payload = run.payload
            entries.extend((rid, at, len(payload), 0))
            payloads.append(payload)
            rid += 1
            at += len(payload)
        joined = entries.tobytes() + b"".join(payloads)
        stage[glue.HEAD_BYTES : glue.HEAD_BYTES + len(joined)] = joined
        self._cells = cells = _CELLS.from_address(base)
        self._logs_start = at
        calls, log_bytes = min(self.limits.host_calls, _U32), min(self.limits.log_bytes, _U32)
        cells[: glue.IN_ALLOC + 1] = [0, at, _STAGE_BYTES, calls, log_bytes, calls, log_bytes, 0]

    def _instantiate_applet(self) -> bool:
        context, place = self._context, self._imports_at
        for module, name in self._linked:
            if module:
                raw.linker_get(
                    self._linker_at, context, module, len(module), name, len(name), place
                )
            else:
                raw.export_get(context, self._trampoline_at, name, len(name), place)
            place += _EXTERN_BYTES
        error = raw.instance_new(
            *(context, self._module_at, self._imports_at, len(self._linked)),
            *(self._instance_at, self._trap_at),
        )
        if not self._went_well(error):
            return False
        if not self._bound:
            self._bind()
        return True

    def _instantiate_glue(self, handler: bytes, size: int) -> bool:
        context, first = self._context, self._glue_imports_at
        raw.export_get(
            context, self._trampoline_at, b"table", 5, first + _STAGE_TABLE * _EXTERN_BYTES
        )
        raw.export_get(context, self._instance_at, b"memory", 6, first + _MEMORY * _EXTERN_BYTES)
        raw.export_get(context, self._instance_at, b"alloc", 5, first + _ALLOC * _EXTERN_BYTES)
        raw.export_get(context, self._instance_at, handler, size, first + _HANDLER * _EXTERN_BYTES)
        for n, (module, name) in enumerate(_HOST_IMPORTS, _GET_DATA):
            raw.linker_get(
                *(self._linker_at, context, module, len(module), name, len(name)),
                first + n * _EXTERN_BYTES,
            )
        error = raw.instance_new(
            context, self._glue_at, first, _PLACE + 1, self._glue_instance_at, self._trap_at
        )
        return self._went_well(error)

    def _bound_to(self, context: int) -> None:
        super()._bound_to(context)
        self.calls_left = _NO_LIMIT

    # ------------------------------------------------------------ calls of the host

    def _link(self, module: wasmtime.Module) -> wasmtime.InstancePre:
        """Define the imports of the applet and the glue; prepare only the trampoline.

        The applet is instantiated later, because its imports include the trampoline's exports.
        """
        linker = self._linker()
        functions = bind(self)
        wanted = {*imported(self._interface, seeded=self._seeded), abi.WS_GET_DATA, abi.WS_LOG}
        for signature in wanted:
            self._define(linker, signature, self._during_event(functions[signature]))
        if abi.WS_SET_DATA in wanted:
            replaced = self._during_event(self._replacing(functions[abi.WS_SET_DATA]))
            self._define(linker, abi.WS_SET_DATA, replaced)
        self._define(linker, _MISPLACED, self._during_event(self._misplaced))
        self._linker_at = raw.address(linker.ptr())
        self._callbacks.append(linker)
        self._linked = [
            (
                b"" if (item.module, item.name) in _GLUED else item.module.encode(),
                item.name.encode(),
            )
            for item in self._interface.imports
        ]
        trampoline = wasmtime.Module(self._engine, bytes(wasmtime.wat2wasm(glue.TRAMPOLINE)))
        return self._prepare(linker, trampoline)

    def _during_event(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap `function` so that it works on the event that the glue is running."""

        def call(*arguments: Any) -> Any:
            cells = self._cells
            event = cells[glue.EVENT]
            if event != self._current:
                self._take_up(event)
            if cells[glue.LOGS] != self._logs_start:
                self._drain()
            left = cells[glue.CALLS_LEFT]
            if not left:
                self.end_calls()
            cells[glue.CALLS_LEFT] = left - 1
            self.log_left = cells[glue.LOG_LEFT]
            result = function(*arguments)
            cells[glue.LOG_LEFT] = self.log_left
            return result

        return call

    def _take_up(self, event: int) -> None:
        """Make `event` the current run. It sees the writes of all earlier events of the batch,
        which have succeeded."""
        for run in self._runs[self._settled : event]:
            self._earlier.update(run.writes)
        self._settled = event
        run = self._runs[event]
        self.begin(run)
        self.rid = self._rid_base + event
        self.resources = {self.rid: run.payload}
        self.ends_at, run.ends_at = self._ends_at, 0.0
        if self._earlier:
            run.read = _layered(self._earlier, run.read)
        self._current = event

    def _drain(self) -> None:
        """Move staged log records to their runs."""
        at, end = self._logs_start, self._cells[glue.LOGS]
        staged = bytes(self._stage[at:end])
        self._cells[glue.LOGS] = at
        place = 0
        while place < len(staged):
            event, level, size = _record.unpack_from(staged, place)
            place += glue.RECORD_BYTES + size
            text = staged[place - size : place].decode("utf-8", "replace")
            row = min(level, abi.LOG_UNKNOWN), abi.SOURCE_GUEST, text[: abi.MESSAGE_LIMIT]
            self._runs[event].logs.append(row)

    def _replacing(self, set_data: Callable[..., Any]) -> Callable[..., Any]:
        def call(rid: int, pointer: int, size: int) -> Any:
            code = set_data(rid, pointer, size)
            if rid == self.rid:  # the staged payload is outdated, so the glue must not use it
                _put_u32(self._stage, glue.HEAD_BYTES + self._current * glue.ENTRY_BYTES, _NO_RID)
            return code

        return call

    def _misplaced(self, pointer: int, pointer_at: int, size_at: int) -> int:
        """Raise the error of `copy_to_guest` for a payload outside of the memory."""
        self._cells[glue.CALLS_LEFT] += 1  # the glue has charged the call already
        end = max(pointer + len(self.run.payload), pointer_at + 4, size_at + 4)
        self._look(end, abi.COPY_TO_GUEST_FAILED)
        raise AssertionError("the glue and the host disagree about the size of a memory")

    def copy_to_guest(self, data: bytes, pointer_at: int, size_at: int) -> None:
        """See `Guest.copy_to_guest`."""
        cells = self._cells
        if cells[glue.IN_ALLOC]:
            raise self.alloc_missing(exported=True)
        cells[glue.IN_ALLOC] = 1
        try:
            super().copy_to_guest(data, pointer_at, size_at)
        finally:
            cells[glue.IN_ALLOC] = 0

    def handle_error(self, error: BaseException, signature: abi.Signature) -> int | None:
        """See `Guest.handle_error`."""
        code = super().handle_error(error, signature)
        self._cells[glue.LOG_LEFT] = self.log_left
        return code


_HOST_IMPORTS = tuple(
    (signature.module.encode(), signature.name.encode())
    for signature in (abi.WS_GET_DATA, abi.WS_LOG, _MISPLACED)
)


def _layered(
    above: dict[bytes, bytes], below: Callable[[bytes], bytes | None]
) -> Callable[[bytes], bytes | None]:
    def read(key: bytes) -> bytes | None:
        value = above.get(key)
        return below(key) if value is None else value

    return read


def _fitting(runs: Sequence[Run]) -> int:
    """Return how many runs, from the first on, fit on the stage."""
    left = _STAGE_BYTES - _LOG_ROOM_BYTES - glue.HEAD_BYTES
    for count, run in enumerate(runs):
        left -= glue.ENTRY_BYTES + len(run.payload)
        if left < 0:
            return count
    return len(runs)
