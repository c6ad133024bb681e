"""Applet hosts: load and link a compiled module, and run its handlers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import wasmtime

from fieldbrook.core.errors import ModuleRefusedError
from fieldbrook.wasm.engine import raw
from fieldbrook.wasm.engine.batch import BatchGuest
from fieldbrook.wasm.engine.engine import Engine, raw_available
from fieldbrook.wasm.engine.files import write_atomically
from fieldbrook.wasm.engine.instance import RawGuest
from fieldbrook.wasm.engine.reference import ReferenceHost
from fieldbrook.wasm.engine.reuse import ReusedGuest
from fieldbrook.wasm.limits import Limits
from fieldbrook.wasm.module import abi
from fieldbrook.wasm.module.inspection import (
    compile_module,
    examine,
    load_compiled,
    to_binary,
    uses_sql,
)
from fieldbrook.wasm.run import Host, Run

__all__ = ["AppletHost", "Host", "load_host"]

log = logging.getLogger(__name__)


class AppletHost:
    """One applet, linked to its host functions.

    Every run has its own instance, except with `reuse_events` and in `run_batch`.
    """

    def __init__(
        self,
        engine: Engine,
        compiled: Path | wasmtime.Module,
        limits: Limits,
        reuse_events: int = 0,
        *,
        seeded: bool = False,
    ) -> None:
        """Load a compiled module and link it.

        Args:
            engine: an engine of `make_engine` with the same limits. Its ticker is started.
            compiled: a module of that engine, or a file that `compile` wrote. The file is
                native code: a user who can write it can run any code in this process.
            limits: budgets of each run.
            reuse_events: how many events one instance serves; 0 makes an instance per event.
            seeded: every run has `Capabilities.seeded`, and takes WASI's time and random
                numbers from it. Do not combine it with `reuse_events`.

        Raises:
            ModuleRefusedError: another version of wasmtime compiled the code, or it does not
                link.
            OSError: the file cannot be read.
        """
        module = load_compiled(engine, compiled) if isinstance(compiled, Path) else compiled
        self._again = partial(AppletHost, engine, module, limits, reuse_events, seeded=seeded)
        report = examine(module, engine, limits)
        self._handlers = report.handlers
        self._names = {name: (name.encode(), len(name.encode())) for name in self._handlers}
        self._guest = (
            ReusedGuest(engine, module, report, limits, reuse_events)
            if reuse_events
            else RawGuest(engine, module, report, limits, seeded=seeded)
        )
        self._make_batch = partial(BatchGuest, engine, module, report, limits, seeded=seeded)
        self._batch: BatchGuest | None = None
        self.uses_sql = uses_sql(module)
        exports_alloc = abi.ALLOC in {export.name for export in module.exports}
        self._batches = exports_alloc and not self.uses_sql

    @property
    def handlers(self) -> tuple[str, ...]:
        """The names `run` accepts."""
        return self._handlers

    @property
    def kept_bytes(self) -> int:
        """See `Host.kept_bytes`."""
        return self._guest.kept_bytes

    def run(self, handler: str, run: Run) -> tuple[int, str]:
        """See `Host.run`."""
        name = self._names.get(handler)
        if name is None:
            return abi.FAILED, abi.NOT_EXPORTED
        return self._guest.execute(*name, run)

    def run_batch(self, handler: str, runs: Sequence[Run]) -> list[tuple[int, str]]:
        """See `Host.run_batch`. Modules without `alloc` are not batched: they take no payload."""
        name = self._names.get(handler)
        if name is None or not self._batches:
            return []
        if self._batch is None:
            self._batch = self._make_batch()
        return self._batch.execute_all(*name, runs)

    def copy(self) -> AppletHost:
        """See `Host.copy`."""
        return self._again()

    def close(self) -> None:
        """Release the module."""
        self._guest.close()
        if self._batch is not None:
            self._batch.close()


def load_host(
    engine: Engine, cwasm: Path, wasm: Path, limits: Limits, reuse_events: int = 0
) -> Host:
    """Load the host of a module that `compile` wrote.

    Hosts of the same engine and file share the loaded module. If the compiled file `cwasm` is
    missing or this wasmtime refuses it, the module `wasm` is compiled again and `cwasm` is
    replaced. If wasmtime's library lacks the raw functions, the result is the reference host, which
    is ten times slower and makes an instance per event.

    Raises:
        ModuleRefusedError: the module cannot run here.
        OSError: `cwasm` exists but cannot be read, or `wasm` is needed and cannot be read.
    """
    module = engine.modules.get(cwasm.name)
    if module is None:
        try:
            module = load_compiled(engine, cwasm)
        except (ModuleRefusedError, FileNotFoundError) as error:
            log.info("module %s has to be compiled again: %s", wasm.name, error)
            module = _compile_again(engine, cwasm, wasm, limits)
        engine.modules[cwasm.name] = module
    if raw_available():
        return AppletHost(engine, module, limits, reuse_events)
    log.warning("applets run ten times slower: wasmtime's library lacks %s", ", ".join(raw.missing))
    return ReferenceHost(engine, module, limits)


def _compile_again(engine: Engine, cwasm: Path, wasm: Path, limits: Limits) -> wasmtime.Module:
    module, _ = compile_module(engine, to_binary(wasm.read_bytes()), limits)
    try:
        write_atomically(cwasm, bytes(module.serialize()))
    except OSError as error:
        log.warning("cannot save the compiled module %s: %s", cwasm.name, error.strerror)
    return module
