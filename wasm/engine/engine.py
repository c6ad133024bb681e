"""The engine: how modules are compiled, where instances live, and what ends a loop."""

from __future__ import annotations

import logging
import os
import platform
import threading
import time
import weakref
from functools import cache
from importlib.metadata import version
from typing import Any

import wasmtime

from fieldbrook.wasm.engine import raw
from fieldbrook.wasm.limits import PAGE_BYTES, Limits

log = logging.getLogger(__name__)

TICK_MS = 10
# Bytes of an instance that are cleared instead of given back to the kernel: the best of
# 0 to 512 KiB for applets of the public SDKs.
_KEEP_RESIDENT_BYTES = 256 << 10
_TABLES_PER_MODULE = 4
_TABLE_ELEMENTS = 65_536


class Engine(wasmtime.Engine):
    """A wasmtime engine that knows its tick and which process runs its ticker."""

    def __init__(self, config: wasmtime.Config) -> None:
        self._closing = threading.Lock()
        self._closed = False
        self.tick_ms = TICK_MS
        self.ticker_pid = 0
        super().__init__(config)

    def tick(self) -> bool:
        """Advance the epoch; False when the engine is gone."""
        with self._closing:
            if not self._closed:
                self.increment_epoch()
            return not self._closed

    def _delete(self, ptr: Any) -> None:
        # A weak reference still gives the object while its finalizer runs, and the library
        # frees the engine without the interpreter's lock: the ticker must not come between.
        with self._closing:
            self._closed = True
            super()._delete(ptr)


def raw_available() -> bool:
    """Whether every function and layout that the fast path needs is as expected."""
    return not raw.missing


def make_config() -> wasmtime.Config:
    """The settings that decide what compiled code looks like: the same everywhere."""
    config = wasmtime.Config()
    config.epoch_interruption = True
    # A compile in a forked process hangs if its parent compiled in parallel before.
    config.parallel_compilation = False
    # Nothing that `Limits` cannot bound: 32 bits, of one thread, no collector. Several
    # memories are for the glue of `batch`; `module` refuses applets that have them.
    config.wasm_memory64 = False
    config.wasm_threads = False
    config.wasm_gc = False
    config.wasm_exceptions = False
    config.wasm_function_references = False
    return config


def make_compiler() -> Engine:
    """An engine without a pool, for a process that compiles and runs nothing."""
    return Engine(make_config())


def make_engine(limits: Limits, slots: int = 8) -> Engine:
    """An engine that runs applets.

    Instances come from a pool of `slots`: 35 GB of address space, no memory. Without the
    raw functions there is no pool, and the reference host's own limit holds the memory.
    """
    config = make_config()
    if raw_available():
        raw.use_pooling(
            config,
            {
                "total_core_instances": slots,
                "total_memories": slots,
                "total_tables": slots * _TABLES_PER_MODULE,
                "max_tables_per_module": _TABLES_PER_MODULE,
                "table_elements": _TABLE_ELEMENTS,
                "max_memory_size": limits.memory_pages * PAGE_BYTES,
                "linear_memory_keep_resident": _KEEP_RESIDENT_BYTES,
                "table_keep_resident": _KEEP_RESIDENT_BYTES,
            },
        )
    return Engine(config)


def start_ticker(engine: Engine, tick_ms: int = TICK_MS) -> None:
    """Advance the engine's epoch every `tick_ms` for as long as the engine lives.

    Deadlines depend on it. A second call does nothing, except in a forked child, where
    the parent's thread does not exist.
    """
    if engine.ticker_pid == os.getpid():
        return
    engine.tick_ms, engine.ticker_pid = tick_ms, os.getpid()
    thread = threading.Thread(
        target=_tick, args=(weakref.ref(engine), tick_ms / 1000), name="epoch", daemon=True
    )
    thread.start()


def _tick(engine: weakref.ref[Engine], tick_s: float) -> None:
    while True:
        time.sleep(tick_s)
        alive = engine()
        if alive is None or not alive.tick():
            return
        del alive


def deadline_ticks(engine: Engine, limits: Limits) -> int:
    """Epochs from now until the deadline has surely passed."""
    return -(-limits.deadline_ms // engine.tick_ms) + 1


@cache
def engine_tag() -> str:
    """What compiled code depends on besides the module; part of its file name.

    A processor with other features is not in it: wasmtime itself refuses such code, and
    then it is compiled again.
    """
    return f"wasmtime-{version('wasmtime')}-{platform.machine()}-2"
