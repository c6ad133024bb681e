"""Loading of compiled code, and the fallback if it cannot be loaded."""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import sys
import threading
from importlib import metadata
from pathlib import Path

import pytest
import wasmtime

from fieldbrook.core.errors import ModuleRefusedError
from fieldbrook.system.confined import Bounds
from fieldbrook.wasm.engine import applet, raw
from fieldbrook.wasm.engine.applet import AppletHost, Host, load_host
from fieldbrook.wasm.engine.engine import (
    Engine,
    engine_tag,
    make_compiler,
    make_engine,
    raw_available,
    start_ticker,
)
from fieldbrook.wasm.engine.reference import ReferenceHost
from fieldbrook.wasm.limits import Limits
from fieldbrook.wasm.module.inspection import compile_module, to_binary
from fieldbrook.wasm.run import Run
from tests.support.nodes import until
from tests.support.tools import LIMIT_S

MODULES = Path(__file__).parents[3] / "modules"
LIMITS = Limits(memory_bytes=1 << 20)


@pytest.fixture
def engine() -> Engine:
    return make_engine(LIMITS)


@pytest.fixture
def wasm(tmp_path: Path) -> Path:
    path = tmp_path / "module.wasm"
    path.write_bytes((MODULES / "guest.wat").read_bytes())
    return path


def compiled(wasm: Path) -> Path:
    """Compile code without a pool, like the compiler."""
    module, _ = compile_module(make_compiler(), to_binary(wasm.read_bytes()), LIMITS)
    path = wasm.with_name(f"module.{engine_tag()}.cwasm")
    path.write_bytes(module.serialize())
    return path


def test_this_wasmtime_has_all_that_the_fast_path_needs() -> None:
    assert raw.missing == []
    assert raw_available()


def test_the_name_of_compiled_code_has_the_version_of_the_installed_wasmtime() -> None:
    assert engine_tag().startswith(f"wasmtime-{metadata.version('wasmtime')}-")


def test_code_made_without_a_pool_runs_in_one(engine: Engine, wasm: Path) -> None:
    host = AppletHost(engine, compiled(wasm), LIMITS)
    assert "echo" in host.handlers
    assert host.run("negative", Run(b"")) == (-7, "")


def test_code_that_fits_is_loaded_as_it_is(engine: Engine, wasm: Path) -> None:
    cwasm = compiled(wasm)
    wasm.unlink()
    host = load_host(engine, cwasm, wasm, LIMITS)
    assert isinstance(host, AppletHost)
    assert host.run("negative", Run(b"")) == (-7, "")


@pytest.mark.parametrize("what", ["absent", "other flags", "damaged", "empty"])
def test_code_that_does_not_fit_is_made_again_and_kept(
    engine: Engine, wasm: Path, what: str
) -> None:
    cwasm = compiled(wasm)
    good = cwasm.read_bytes()
    if what == "absent":
        cwasm.unlink()
    elif what == "other flags":
        binary = to_binary(wasm.read_bytes())
        cwasm.write_bytes(wasmtime.Module(wasmtime.Engine(), binary).serialize())
    else:
        cwasm.write_bytes(good[:1000] if what == "damaged" else b"")
    assert load_host(engine, cwasm, wasm, LIMITS).run("negative", Run(b"")) == (-7, "")
    assert cwasm.read_bytes() == good


def test_code_that_cannot_be_kept_is_used_all_the_same(
    engine: Engine, wasm: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cwasm = wasm.parent / "absent" / "module.cwasm"
    assert load_host(engine, cwasm, wasm, LIMITS).run("negative", Run(b"")) == (-7, "")
    assert "cannot save the compiled module" in caplog.text


def test_a_module_whose_files_are_gone_is_an_os_error(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_host(engine, tmp_path / "a.cwasm", tmp_path / "a.wasm", LIMITS)


def test_a_stored_module_over_a_lowered_limit_is_refused(wasm: Path) -> None:
    limits = Limits(memory_bytes=0)
    reason = (
        r"module\.wasm cannot be compiled again: .* starts with 1 pages of memory; the limit is 0"
    )
    with pytest.raises(ModuleRefusedError, match=reason):
        load_host(make_engine(limits), compiled(wasm), wasm, limits)


def test_a_stored_module_is_compiled_within_limits_outside_of_the_process(
    engine: Engine, wasm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heavy = "i32.const 7 i32.mul i32.load i32.eqz " * 500_000  # takes hundreds of megabytes
    start = f'(func (export "start") (param i32) (result i32) local.get 0 {heavy})'
    wasm.write_text(f'(module (memory (export "memory") 1) {start})')
    cwasm = wasm.with_name("module.cwasm")
    few = Bounds(cpu_s=60, timeout_s=LIMIT_S, address_bytes=160 << 20, file_bytes=1 << 20)
    monkeypatch.setattr(applet, "_AGAIN", few)
    with pytest.raises(ModuleRefusedError, match="takes more than 160 MiB of memory"):
        load_host(engine, cwasm, wasm, LIMITS)
    short = Bounds(cpu_s=1, timeout_s=LIMIT_S, address_bytes=2 << 30, file_bytes=1 << 20)
    monkeypatch.setattr(applet, "_AGAIN", short)
    with pytest.raises(ModuleRefusedError, match="takes more than 1 s of processor time"):
        load_host(engine, cwasm, wasm, LIMITS)
    assert not cwasm.exists()


def test_a_process_compiles_one_stored_module_at_a_time(engine: Engine, wasm: Path) -> None:
    waits = threading.Event()
    hosts: list[Host] = []

    def load() -> None:
        cwasm = wasm.with_name("module.cwasm")
        hosts.append(load_host(engine, cwasm, wasm, LIMITS, waiting=waits.set))

    thread = threading.Thread(target=load)
    with applet._compiling.hold(1):
        thread.start()
        assert waits.wait(LIMIT_S)
        assert not hosts
    thread.join(LIMIT_S)
    assert [host.run("negative", Run(b"")) for host in hosts] == [(-7, "")]


def test_without_the_raw_functions_the_reference_host_does_the_work(
    wasm: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(raw, "missing", ["wasmtime_store_new"])
    engine = make_engine(LIMITS)
    host = load_host(engine, compiled(wasm), wasm, LIMITS)
    assert isinstance(host, ReferenceHost)
    assert host.run("grow", Run(b"")) == (LIMITS.memory_pages, "")
    assert "lacks wasmtime_store_new" in caplog.text


def test_a_closed_host_runs_nothing(engine: Engine, wasm: Path) -> None:
    host = AppletHost(engine, compiled(wasm), LIMITS)
    host.close()
    host.close()
    with pytest.raises(RuntimeError, match="closed"):
        host.run("negative", Run(b""))


def test_more_runs_than_slots_need_no_more_slots(wasm: Path) -> None:
    engine = make_engine(LIMITS, slots=1)
    hosts = [AppletHost(engine, compiled(wasm), LIMITS) for _ in range(3)]
    for host in hosts * 20:
        assert host.run("fresh", Run(b"")) == (1, "")
        assert host.run("trap", Run(b""))[0] == -1


def test_hosts_of_one_file_share_what_is_linked_until_the_last_one_is_gone(
    engine: Engine, wasm: Path
) -> None:
    cwasm = compiled(wasm)
    one, two = (load_host(engine, cwasm, wasm, LIMITS) for _ in range(2))
    (linked,) = engine.linked.values()
    assert one.run("fresh", Run(b"")) == two.run("fresh", Run(b"")) == (1, "")
    assert len(linked.guests) == 1
    one.close()
    del linked, one
    assert two.run("fresh", Run(b"")) == (1, "")
    two.close()
    del two
    assert not engine.linked


def test_hosts_of_one_file_run_at_the_same_time(engine: Engine, wasm: Path) -> None:
    cwasm = compiled(wasm)
    hosts = [load_host(engine, cwasm, wasm, LIMITS) for _ in range(4)]
    found: list[tuple[int, str]] = []

    def run(host: Host) -> None:
        found.extend(host.run("fresh", Run(b"")) for _ in range(200))

    threads = [threading.Thread(target=run, args=(host,)) for host in hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert found == [(1, "")] * 800


def test_many_modules_in_turn_find_their_memory_as_they_left_it() -> None:
    """A slot that had another module is mapped again, and its first accesses are page faults."""
    source = to_binary((MODULES / "guest.wat").read_bytes())
    engine = make_engine(LIMITS, slots=256)
    names = [
        b"\x00" + bytes([len(name) + 1, len(name)]) + name for name in map(b"%d".__mod__, range(64))
    ]
    hosts = [AppletHost(engine, wasmtime.Module(engine, source + name), LIMITS) for name in names]

    def turn() -> int:
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        for host in hosts:
            assert host.run("negative", Run(b"")) == (-7, "")
        return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before

    for _ in range(5):
        turn()
    assert sum(turn() for _ in range(5)) < len(hosts)


def test_an_engine_can_go_at_any_moment_of_its_tickers_life() -> None:
    script = (
        "from fieldbrook.wasm.engine.engine import make_compiler, start_ticker\n"
        "import time\n"
        "for _ in range(1500):\n"
        "    engine = make_compiler()\n"
        "    start_ticker(engine, 1)\n"
        "    time.sleep(0.001)\n"
        "    del engine\n"
    )
    # A race here is a segmentation fault, which must not end this process.
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_an_engine_has_one_ticker_which_ends_with_it() -> None:
    engine = make_engine(LIMITS)
    before = set(threading.enumerate())
    start_ticker(engine, tick_ms=1)
    start_ticker(engine)
    (ticker,) = set(threading.enumerate()) - before
    assert engine.tick_ms == 1
    assert engine.ticker_pid == os.getpid()
    del engine
    gc.collect()
    ticker.join(LIMIT_S)
    assert not ticker.is_alive()


def test_a_ticker_rests_while_nothing_runs_and_ends_a_loop_afterwards(wasm: Path) -> None:
    limits = Limits(memory_bytes=LIMITS.memory_bytes, deadline_ms=20)
    engine = make_engine(limits)
    host = AppletHost(engine, compiled(wasm), limits)
    for _ in range(2):
        until(lambda: engine.activity.rests, "the ticker rests")
        assert host.run("loop", Run(b"")) == (-1, "deadline of 20 ms exceeded")
        assert not engine.activity.rests


def test_a_loop_ends_at_the_deadline_whatever_the_tick(wasm: Path) -> None:
    limits = Limits(memory_bytes=LIMITS.memory_bytes, deadline_ms=20)
    for tick_ms in (1, 50):
        engine = make_engine(limits)
        start_ticker(engine, tick_ms)
        host = AppletHost(engine, compiled(wasm), limits)
        assert host.run("loop", Run(b"")) == (-1, "deadline of 20 ms exceeded")
