"""Compiles modules that were uploaded on another host of the cluster before their first event on
this host.

Otherwise a project that moves to this host would wait until its modules are compiled.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path

from fieldbrook.core.errors import ModuleRefusedError
from fieldbrook.wasm.engine.applet import compile_ahead
from fieldbrook.wasm.engine.engine import engine_tag
from fieldbrook.wasm.limits import Limits

log = logging.getLogger(__name__)

PAUSE_S = 1.0
"""The time between the arrival of a module and its compilation. If a project with this module gets
an event on this host in this time, the project compiles the module itself."""


class AheadCompiler:
    """Compiles modules one after the other, in a thread of its own.

    Args:
        folder: the folder of modules.
        limits: the limits of a run; compiled code depends on them.
        pause_s: see `PAUSE_S`.
        compiles: compiles a module into a file; see `compile_ahead`.
    """

    def __init__(
        self,
        folder: Path,
        limits: Limits,
        pause_s: float = PAUSE_S,
        compiles: Callable[[Path, Path, Limits], None] = compile_ahead,
    ) -> None:
        self._folder, self._limits = folder, limits
        self._pause_s, self._compiles = pause_s, compiles
        self._arrived: queue.SimpleQueue[tuple[float, str]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def add(self, sha256: str) -> None:
        """Queue a module of the folder for compilation, unless it is compiled already."""
        if self._compiled(sha256).exists():
            return
        self._arrived.put((time.monotonic(), sha256))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="ahead", daemon=True)
            self._thread.start()

    def _compiled(self, sha256: str) -> Path:
        return self._folder / f"{sha256}.{engine_tag()}.cwasm"

    def _run(self) -> None:
        while True:
            arrived, sha256 = self._arrived.get()
            time.sleep(max(0.0, arrived + self._pause_s - time.monotonic()))
            compiled, source = self._compiled(sha256), self._folder / f"{sha256}.wasm"
            if compiled.exists() or not source.exists():
                continue
            try:
                self._compiles(compiled, source, self._limits)
            except (ModuleRefusedError, OSError) as error:
                log.info("module %s is compiled at its first event: %s", sha256[:12], error)
