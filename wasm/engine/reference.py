"""Reference host: applets through wasmtime's public Python interface, simple but slow.

`applet.AppletHost` must give the same codes, writes and logs for every module; contract tests
check both. A node falls back to the reference host when wasmtime's library lacks functions
that the fast path needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import wasmtime

from fieldbrook.core.errors import ModuleRefusedError
from fieldbrook.wasm.backtrace import trap_place, trap_reason
from fieldbrook.wasm.engine.engine import Engine, deadline_ticks, start_ticker
from fieldbrook.wasm.host import bind
from fieldbrook.wasm.host.guest import LARGE_BYTES, Guest, RunEndedError, exit_text
from fieldbrook.wasm.limits import PAGE_BYTES, Limits
from fieldbrook.wasm.module import abi
from fieldbrook.wasm.module.inspection import examine, func_type, imported, load_compiled
from fieldbrook.wasm.module.interface import Interface, read_interface
from fieldbrook.wasm.run import Run

_U32 = 0xFFFF_FFFF
_MASKS = {"i": _U32, "l": 0xFFFF_FFFF_FFFF_FFFF, "d": 0}  # wasmtime passes integers signed


class _HostTrapError(Exception):
    """Ends the guest from within a host function; wasmtime passes it through to the caller."""


class _ReferenceGuest(Guest):
    def __init__(
        self,
        engine: Engine,
        module: wasmtime.Module,
        interface: Interface,
        limits: Limits,
        *,
        seeded: bool = False,
    ) -> None:
        super().__init__(limits)
        start_ticker(engine)
        self._engine = engine
        self._wasi = interface.wasi
        self._ticks = deadline_ticks(engine, limits.deadline_ms)
        self._store: wasmtime.Store | None = None
        self._memory: wasmtime.Memory | None = None
        self._alloc: wasmtime.Func | None = None
        self._allocating = False
        linker = wasmtime.Linker(engine)
        linker.allow_shadowing = True
        if self._wasi:
            linker.define_wasi()
        functions = bind(self)
        for signature in imported(interface, seeded=seeded):
            linker.define_func(
                signature.module,
                signature.name,
                func_type(signature),
                self._callback(signature, functions[signature]),
                access_caller=True,
            )
        try:
            self._pre = linker.instantiate_pre(module)
        except wasmtime.WasmtimeError as error:
            raise ModuleRefusedError(reason=f"it does not link: {error}") from error

    def close(self) -> None:
        """Release the linked module."""
        self._pre.close()

    def execute(self, handler: str, run: Run) -> tuple[int, str]:
        """Perform one run in an instance of its own. See `Host.run`."""
        rid = self.begin(run)
        self.calls_left = self.limits.host_calls
        self._memory = self._alloc = None
        self._allocating = False
        self._store = store = wasmtime.Store(self._engine)
        try:
            if self._wasi:
                store.set_wasi(wasmtime.WasiConfig())
            store.set_limits(memory_size=self.limits.memory_pages * PAGE_BYTES)
            self._engine.begin_run()
            store.set_epoch_deadline(self._ticks)
            with self._reasons():
                exports = self._pre.instantiate(store).exports(store)
                self._bind(exports.get)
                initialize = exports.get(abi.INITIALIZE)
                if isinstance(initialize, wasmtime.Func):
                    initialize(store)
                function = exports[handler]
                assert isinstance(function, wasmtime.Func)
                return int(function(store, rid)), ""
        except RunEndedError as ended:
            self.raise_pending()
            return abi.FAILED, self.ended or self.reason_of(str(ended))
        finally:
            if run.memory_bytes is not None:
                run.memory_bytes = self._memory_size(store)
            self._store = None
            store.close()

    def _memory_size(self, store: wasmtime.Store) -> int:
        return 0 if self._memory is None else self._memory.data_len(store)

    @contextmanager
    def _reasons(self) -> Iterator[None]:
        """Convert every exception that ends guest code to RunEndedError with the reason."""
        try:
            yield
        except wasmtime.ExitTrap as error:
            self.ended = self.ended or exit_text(error.code)
            raise RunEndedError(self.ended) from error
        except wasmtime.Trap as error:
            if error.trap_code == wasmtime.TrapCode.INTERRUPT:
                self.ended = self.ended or self.deadline_text + trap_place(error.message)
            raise RunEndedError(trap_reason(error.message)) from error
        except wasmtime.WasmtimeError as error:
            raise RunEndedError(trap_reason(str(error))) from error
        except _HostTrapError as error:
            raise RunEndedError(self.ended) from error

    def _bind(self, find: Callable[[str], Any]) -> None:
        memory, alloc = find(abi.MEMORY), find(abi.ALLOC)
        self._memory = memory if isinstance(memory, wasmtime.Memory) else None
        self._alloc = alloc if isinstance(alloc, wasmtime.Func) else None

    def _callback(
        self, signature: abi.Signature, function: Callable[..., Any]
    ) -> Callable[..., Any]:
        masks = [_MASKS[letter] for letter in signature.params]

        def call(caller: wasmtime.Caller, *arguments: int | float) -> int | float | None:
            try:
                self.calls_left -= 1
                if self.calls_left < 0:
                    self.end_calls()
                if self._memory is None:
                    self._bind(caller.get)
                result: int | float | None = function(
                    *(
                        value & mask if isinstance(value, int) else value
                        for value, mask in zip(arguments, masks, strict=True)
                    )
                )
                return result
            except BaseException as error:
                code = self.handle_error(error, signature)
                if code is None:
                    raise _HostTrapError from error
                return code if signature.result else None

        return call

    # ------------------------------------------------------------ memory

    def read(self, pointer: int, size: int) -> bytes:
        """See `Guest.read`."""
        if size > LARGE_BYTES:
            self.check_deadline()
        memory, store = self._check(pointer + size)
        return bytes(memory.read(store, pointer, pointer + size)) if size else b""

    def write(self, pointer: int, data: bytes) -> None:
        """See `Guest.write`."""
        memory, store = self._check(pointer + len(data))
        if data:
            memory.write(store, data, pointer)

    def check_range(self, pointer: int, size: int) -> None:
        """See `Guest.check_range`."""
        self._check(pointer + size)

    def _check(self, end: int, code: int | None = None) -> tuple[wasmtime.Memory, wasmtime.Store]:
        assert self._memory is not None
        assert self._store is not None
        size = self._memory.data_len(self._store)
        if end > size:
            raise self.out_of_memory(end, size, code)
        return self._memory, self._store

    def copy_to_guest(self, data: bytes, pointer_at: int, size_at: int) -> None:
        """See `Guest.copy_to_guest`."""
        if self._alloc is None or self._allocating:
            raise self.alloc_missing(self._alloc is not None)
        assert self._store is not None
        self._allocating = True
        try:
            with self._reasons():
                pointer = int(self._alloc(self._store, len(data))) & _U32
        except RunEndedError as ended:
            raise self.alloc_failed(str(ended)) from ended
        finally:
            self._allocating = False
        self._check(max(pointer + len(data), pointer_at + 4, size_at + 4), abi.COPY_TO_GUEST_FAILED)
        self.write(pointer, data)
        self.write(pointer_at, pointer.to_bytes(4, "little"))
        self.write(size_at, len(data).to_bytes(4, "little"))


class ReferenceHost:
    """One applet on wasmtime's public interface. See `applet.AppletHost`."""

    def __init__(
        self,
        engine: Engine,
        compiled: Path | wasmtime.Module,
        limits: Limits,
        *,
        seeded: bool = False,
    ) -> None:
        """Load a compiled module and link it. `seeded`: see `applet.AppletHost`.

        Raises:
            ModuleRefusedError: another version of wasmtime compiled the code, or it does not
                link.
            OSError: the file cannot be read.
        """
        module = load_compiled(engine, compiled) if isinstance(compiled, Path) else compiled
        self._again = partial(ReferenceHost, engine, module, limits, seeded=seeded)
        interface = read_interface(module)
        examine(interface, engine, limits)
        self._handlers = interface.handlers
        self.uses_sql = interface.uses_sql
        self.kept_bytes = 0
        self._guest = _ReferenceGuest(engine, module, interface, limits, seeded=seeded)

    @property
    def handlers(self) -> tuple[str, ...]:
        """The names `run` accepts."""
        return self._handlers

    def run(self, handler: str, run: Run) -> tuple[int, str]:
        """See `Host.run`."""
        if handler not in self._handlers:
            return abi.FAILED, abi.NOT_EXPORTED
        return self._guest.execute(handler, run)

    def run_batch(self, handler: str, runs: Sequence[Run]) -> list[tuple[int, str]]:
        """See `Host.run_batch`. This host runs no batches: every run has its own instance."""
        return []

    def copy(self) -> ReferenceHost:
        """See `Host.copy`."""
        return self._again()

    def close(self) -> None:
        """Release the module."""
        self._guest.close()
