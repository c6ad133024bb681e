"""An applet, loaded and linked: what a project runs."""

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
    """One applet, linked to its host functions; an instance of its own for every run."""

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
            engine: from `make_engine` with the same limits; its ticker is started.
            compiled: a module of that engine, or a file that `compile` wrote. The file is
                native code: whoever can write it can do anything.
            limits: budgets of each run.
            reuse_events: an instance is kept for so many events; 0 makes one for each.
            seeded: every run has `Surroundings.seeded`, and takes WASI's time and random
                numbers from there. Not together with `reuse_events`.

        Raises:
            ModuleRefusedError: the code is of another wasmtime, or does not link.
            OSError: the file cannot be read.
        """
        module = load_compiled(engine, compiled) if isinstance(compiled, Path) else compiled
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

    def run(self, handler: str, run: Run) -> tuple[int, str]:
        """See `Host.run`."""
        name = self._names.get(handler)
        if name is None:
            return abi.FAILED, abi.NOT_EXPORTED
        return self._guest.execute(*name, run)

    def run_batch(self, handler: str, runs: Sequence[Run]) -> list[tuple[int, str]]:
        """See `Host.run_batch`. A module without `alloc` cannot be given anything."""
        name = self._names.get(handler)
        if name is None or not self._batches:
            return []
        if self._batch is None:
            self._batch = self._make_batch()
        return self._batch.execute_all(*name, runs)

    def close(self) -> None:
        """Release the module."""
        self._guest.close()
        if self._batch is not None:
            self._batch.close()


def load_host(
    engine: Engine, cwasm: Path, wasm: Path, limits: Limits, reuse_events: int = 0
) -> Host:
    """The host of a module that `compile` wrote.

    Code that this wasmtime refuses, or that is not there, is made again from the module
    and put in its place. Without the raw functions it is the reference host, ten times
    slower and with an instance for every event.

    Raises:
        ModuleRefusedError: the module cannot run here.
        OSError: neither of both files can be read.
    """
    try:
        module = load_compiled(engine, cwasm)
    except (ModuleRefusedError, FileNotFoundError) as error:
        log.info("module %s is compiled again: %s", wasm.name, error)
        module = _compile_again(engine, cwasm, wasm, limits)
    if raw_available():
        return AppletHost(engine, module, limits, reuse_events)
    log.warning("applets run slowly: wasmtime's library lacks %s", ", ".join(raw.missing))
    return ReferenceHost(engine, module, limits)


def _compile_again(engine: Engine, cwasm: Path, wasm: Path, limits: Limits) -> wasmtime.Module:
    module, _ = compile_module(engine, to_binary(wasm.read_bytes()), limits)
    try:
        write_atomically(cwasm, bytes(module.serialize()))
    except OSError as error:
        log.warning("%s is not kept: %s", cwasm.name, error.strerror)
    return module
