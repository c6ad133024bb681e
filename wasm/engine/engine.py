"""The wasmtime engine: compiler settings, the instance pool, and the ticker for deadlines."""

from __future__ import annotations

import logging
import os
import platform
import threading
import time
import weakref
from functools import cache
from typing import TYPE_CHECKING, Any

import wasmtime

from fieldbrook.wasm.engine import raw
from fieldbrook.wasm.limits import PAGE_BYTES, Limits

if TYPE_CHECKING:
    from fieldbrook.wasm.engine.linked import LinkedModule

log = logging.getLogger(__name__)

_WASMTIME = "50.0.1"  # its version; a test checks this, because reading it imports 15 modules
TICK_MS = 10
_REST_S = 1.0  # time without runs after which the ticker pauses
_LOOK_S = 1.0  # how often a paused ticker checks whether its engine is gone
# Bytes of an instance that are cleared instead of returned to the kernel: the fastest value
# from 0 to 512 KiB for applets of the public SDKs.
_KEEP_RESIDENT_BYTES = 256 << 10
_TABLES_PER_MODULE = 4
_TABLE_ELEMENTS = 65_536


class _Activity:
    """Tells the ticker of an engine whether handlers run: each run sets `is_used` and wakes the
    ticker."""

    def __init__(self) -> None:
        self.is_used = False  # since the last check of the ticker
        self.rests = False
        self.woken = threading.Event()


class Engine(wasmtime.Engine):
    """A wasmtime engine with the period of its ticker and the process that runs it."""

    def __init__(self, config: wasmtime.Config) -> None:
        self._closing = threading.Lock()
        self._closed = False
        self.slots = 0  # of the pool; 0 without a pool
        self.kept = 0  # instances that applets keep, each in a slot
        # The key is the name of the module's file, which contains a hash of the content.
        self.linked: weakref.WeakValueDictionary[str, LinkedModule] = weakref.WeakValueDictionary()
        self.tick_ms = TICK_MS
        self.ticker_pid = 0
        self.longest_ticks = 0  # the longest deadline of a run
        self.activity = _Activity()
        super().__init__(config)

    def tick(self) -> bool:
        """Advance the epoch; returns False when the engine is closed."""
        with self._closing:
            if not self._closed:
                self.increment_epoch()
            return not self._closed

    def begin_run(self) -> None:
        """Let the epoch advance until the deadline of a run that is about to begin."""
        activity = self.activity
        activity.is_used = True  # before `rests` is read: the ticker does the opposite
        if activity.rests:
            activity.woken.set()

    def _delete(self, ptr: Any) -> None:
        # A weak reference still returns the object while its finalizer runs, and the library
        # frees the engine without the interpreter's lock. Without this lock the ticker could
        # use an engine that is being freed.
        with self._closing:
            self._closed = True
            super()._delete(ptr)


def raw_available() -> bool:
    """Return whether wasmtime's library has all functions and layouts of the fast path."""
    return not raw.missing


def make_config(*, lines: bool = False) -> wasmtime.Config:
    """Return the compiler settings. All processes must use the same ones to share compiled code.

    With `lines`, traps name lines of sources where the module has DWARF sections. Compiled code
    is up to 20 times as large then, and each trap reads the sections anew, which takes up to 40 ms.
    """
    # The library has no function for this setting.
    os.environ["WASMTIME_BACKTRACE_DETAILS"] = "1" if lines else "0"
    config = wasmtime.Config()
    config.epoch_interruption = True
    # Compiling in a forked process hangs if its parent has used parallel compilation before.
    config.parallel_compilation = False
    # Features that `Limits` cannot bound are off: 64-bit memory, threads, garbage collection.
    # Multiple memories stay on for the glue of `batch`; `module` refuses applets that use them.
    config.wasm_memory64 = False
    config.wasm_threads = False
    config.wasm_gc = False
    config.wasm_exceptions = False
    config.wasm_function_references = False
    return config


def make_compiler() -> Engine:
    """Make an engine without a pool, for a process that compiles modules but runs none."""
    return Engine(make_config())


def make_engine(limits: Limits, slots: int = 256, *, lines: bool = False) -> Engine:
    """Make an engine that runs applets.

    Instances come from a pool of `slots`, which reserves address space (1 TB) but no memory.
    If the raw functions are missing there is no pool, and the reference host limits the memory
    itself. For `lines` see `make_config`.
    """
    config = make_config(lines=lines)
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
                # A slot that another module has used must be mapped again, which takes 40 to 200 us
                # for a run of 10 us. A module gets its earlier slot again if there are at most half
                # as many modules as this number.
                "max_unused_warm_slots": slots,
            },
        )
    engine = Engine(config)
    engine.slots = slots
    return engine


def start_ticker(engine: Engine, tick_ms: int = TICK_MS) -> None:
    """Advance the engine's epoch every `tick_ms` for as long as the engine lives.

    Deadlines depend on it. When all of them are over and nothing has run for a second, the ticker
    pauses until the next run, so that an idle process sleeps. A second call does nothing, except in
    a forked child, where the parent's thread does not exist.
    """
    if engine.ticker_pid == os.getpid():
        return
    engine.tick_ms, engine.ticker_pid = tick_ms, os.getpid()
    engine.activity = _Activity()  # in a child, the parent's object may have a paused ticker
    thread = threading.Thread(
        target=_tick,
        args=(weakref.ref(engine), engine.activity, tick_ms / 1000),
        name="epoch",
        daemon=True,
    )
    thread.start()


def _tick(engine: weakref.ref[Engine], activity: _Activity, tick_s: float) -> None:
    quiet = 0  # ticks since a run began
    while True:
        time.sleep(tick_s)
        alive = engine()
        if alive is None or not alive.tick():
            return
        quiet += 1
        if activity.is_used:
            activity.is_used, quiet = False, 0
        rests = quiet > alive.longest_ticks + _REST_S / tick_s
        del alive
        if rests:
            _rest(engine, activity)
            quiet = 0


def _rest(engine: weakref.ref[Engine], activity: _Activity) -> None:
    """Wait until a run begins, or the engine is gone."""
    activity.rests = True
    while not activity.is_used and engine() is not None:
        activity.woken.wait(_LOOK_S)
    activity.rests = False
    activity.woken.clear()


def deadline_ticks(engine: Engine, deadline_ms: int) -> int:
    """Return the number of ticks after which a deadline of runs has certainly passed."""
    ticks = -(-deadline_ms // engine.tick_ms) + 1
    engine.longest_ticks = max(engine.longest_ticks, ticks)
    return ticks


@cache
def engine_tag() -> str:
    """Return a tag for file names of compiled code: it covers everything that the code depends on
    besides the module.

    Processor features are not part of the tag: wasmtime refuses code for another processor, and
    the module is then compiled again.
    """
    return f"wasmtime-{_WASMTIME}-{platform.machine()}-3"
