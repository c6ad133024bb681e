"""Applet hosts: load and link a compiled module, and run its handlers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import wasmtime

from fieldbrook.core.errors import ModuleRefusedError
from fieldbrook.system.confined import Bounds, ConfinedError, run_confined
from fieldbrook.system.fair_lock import FairLock
from fieldbrook.wasm.engine import raw
from fieldbrook.wasm.engine.engine import Engine, raw_available
from fieldbrook.wasm.engine.files import write_atomically
from fieldbrook.wasm.engine.instance import RawGuest
from fieldbrook.wasm.engine.linked import LinkedModule
from fieldbrook.wasm.engine.reference import ReferenceHost
from fieldbrook.wasm.engine.reuse import ReusedGuest
from fieldbrook.wasm.limits import Limits
from fieldbrook.wasm.module import abi
from fieldbrook.wasm.module.inspection import load_compiled
from fieldbrook.wasm.run import Host, Run

__all__ = ["AppletHost", "Host", "load_host"]

log = logging.getLogger(__name__)

_NO_RUN = Run(b"")
# Like the limits of an upload (`compile`), but shorter than the time limit for a step of a batch.
_AGAIN = Bounds(cpu_s=60, timeout_s=45.0, address_bytes=2 << 30, file_bytes=1 << 20)
_compiling = FairLock()


class AppletHost:
    """One applet, linked to its host functions.

    Every run has its own instance, except with `reuse_events` and in `run_batch`.
    """

    def __init__(
        self,
        engine: Engine,
        compiled: Path | wasmtime.Module | LinkedModule,
        limits: Limits,
        reuse_events: int = 0,
        *,
        seeded: bool = False,
    ) -> None:
        """Load a compiled module and link it.

        Args:
            engine: an engine of `make_engine` with the same limits. Its ticker is started.
            compiled: a module that was compiled with this engine, linked or not, or a file that
                `compile` wrote. The file is native code: a user who can write it can run any code
                in this process.
            limits: budgets of each run.
            reuse_events: how many events one instance serves; 0 makes an instance per event.
            seeded: every run has `Capabilities.seeded`, and takes WASI's time and random
                numbers from it. Do not combine it with `reuse_events`.

        Raises:
            ModuleRefusedError: another version of wasmtime compiled the code, or it does not
                link.
            OSError: the file cannot be read.
        """
        if isinstance(compiled, Path):
            compiled = load_compiled(engine, compiled)
        if isinstance(compiled, wasmtime.Module):
            compiled = LinkedModule(engine, compiled, limits, seeded=seeded)
        self._linked = linked = compiled
        self._again = partial(AppletHost, engine, linked, limits, reuse_events)
        self._names = linked.names
        self._guests = linked.guests
        self._kept: ReusedGuest | None = None
        if reuse_events:
            self._kept = ReusedGuest(engine, linked.module, linked.interface, limits, reuse_events)
            self._guests = [self._kept]
        self._closed = False
        self.uses_sql = linked.uses_sql

    @property
    def handlers(self) -> tuple[str, ...]:
        """The names `run` accepts."""
        return self._linked.report.handlers

    @property
    def kept_bytes(self) -> int:
        """See `Host.kept_bytes`."""
        return 0 if self._kept is None else self._kept.kept_bytes

    def run(self, handler: str, run: Run) -> tuple[int, str]:
        """See `Host.run`."""
        name = self._names.get(handler)
        if name is None:
            return abi.FAILED, abi.NOT_EXPORTED
        guests = self._guests
        try:
            guest = guests.pop()
        except IndexError:
            guest = self._one_more()
        try:
            return guest.execute(*name, run)
        finally:
            guest.run = _NO_RUN  # otherwise a shared guest would keep an ended project in memory
            guests.append(guest)

    def run_batch(self, handler: str, runs: Sequence[Run]) -> list[tuple[int, str]]:
        """See `Host.run_batch`. Modules without `alloc` are not batched: they take no payload."""
        name, linked = self._names.get(handler), self._linked
        if name is None or not linked.can_batch:
            return []
        self._require_open()
        batches = linked.batches
        try:
            batch = batches.pop()
        except IndexError:
            batch = linked.make_batch()
        try:
            return batch.execute_all(*name, runs)
        finally:
            batches.append(batch)

    def copy(self) -> AppletHost:
        """See `Host.copy`."""
        return self._again()

    def close(self) -> None:
        """Release the module, when no other host uses it."""
        self._closed = True
        self._guests = []
        if self._kept is not None:
            self._kept.close()

    def _one_more(self) -> RawGuest:
        self._require_open()
        return self._linked.make_guest()

    def _require_open(self) -> None:
        if self._closed:
            raise RuntimeError("the host is closed")


def load_host(
    engine: Engine,
    cwasm: Path,
    wasm: Path,
    limits: Limits,
    reuse_events: int = 0,
    waiting: Callable[[], None] = lambda: None,
    *,
    account_id: int = 0,
) -> Host:
    """Load the host of a module that `compile` wrote.

    Hosts of the same engine and file share the linked module. If the compiled file `cwasm` is
    missing or this wasmtime refuses it, the module `wasm` is compiled again and `cwasm` is
    replaced. If wasmtime's library lacks the raw functions, the result is the reference host, which
    is ten times slower and makes an instance per event.

    A process compiles one module at a time, in a child with limits. Accounts (`account_id`) take
    turns. `waiting` is called every second while other modules are compiled, and before this module
    is compiled.

    Raises:
        ModuleRefusedError: the module cannot run here; finding out may have taken a minute.
        OSError: `cwasm` exists but cannot be read, or `wasm` is needed and cannot be read.
    """
    if not raw_available():
        lacks = ", ".join(raw.missing)
        log.warning("applets run ten times slower: wasmtime's library lacks %s", lacks)
        return ReferenceHost(
            engine, _load(engine, cwasm, wasm, limits, waiting, account_id), limits
        )
    linked = engine.linked.get(cwasm.name)
    if linked is None or linked.limits != limits:
        module = _load(engine, cwasm, wasm, limits, waiting, account_id)
        linked = LinkedModule(engine, module, limits)
        engine.linked[cwasm.name] = linked
    return AppletHost(engine, linked, limits, reuse_events)


def _load(
    engine: Engine,
    cwasm: Path,
    wasm: Path,
    limits: Limits,
    waiting: Callable[[], None],
    account_id: int,
) -> wasmtime.Module:
    try:
        return load_compiled(engine, cwasm)
    except (ModuleRefusedError, FileNotFoundError) as error:
        log.info("module %s has to be compiled again: %s", wasm.name, error)
    with _compiling.hold(account_id, waiting):
        waiting()
        return _compile_again(engine, cwasm, wasm, limits)


def compile_ahead(cwasm: Path, wasm: Path, limits: Limits) -> None:
    """Compile a module in a child with limits, for a later `load_host` of any process.

    Raises:
        ModuleRefusedError: the module cannot be compiled.
        OSError: `wasm` cannot be read, or `cwasm` cannot be written.
    """
    write_atomically(cwasm, _compiled(wasm, limits))


def _compiled(wasm: Path, limits: Limits) -> bytes:
    with wasm.open("rb"):  # raises OSError with the reason
        pass
    arguments = ("--stored", f"--memory-bytes={limits.memory_bytes}", str(wasm))
    try:
        return run_confined("fieldbrook.wasm.engine.compile", arguments, _AGAIN, wasm.parent)
    except ConfinedError as error:
        raise _not_compiled(wasm, error) from error


def _not_compiled(wasm: Path, error: Exception) -> ModuleRefusedError:
    return ModuleRefusedError(reason=f"{wasm.name} cannot be compiled again: {error}")


def _compile_again(engine: Engine, cwasm: Path, wasm: Path, limits: Limits) -> wasmtime.Module:
    code = _compiled(wasm, limits)
    try:
        module = wasmtime.Module.deserialize(engine, code)
    except wasmtime.WasmtimeError as error:
        raise _not_compiled(wasm, error) from error
    try:
        write_atomically(cwasm, code)
    except OSError as error:
        log.warning("cannot save the compiled module %s: %s", cwasm.name, error.strerror)
    return module
