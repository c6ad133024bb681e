"""The reason of a trap names the functions of the guest, and its lines where they are known."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fieldbrook.wasm.backtrace import trap_place, trap_reason
from fieldbrook.workbench.runs import HOSTS, Trial, Workbench
from tests.support.tools import require_tool

NAMED = b"""
(module
  (memory (export "memory") 1)
  (func (export "alloc") (param i32) (result i32) (i32.const 1024))
  (func $mean (param $count i32) (result i32)
    (i32.div_u (i32.const 42) (local.get $count)))
  (func $summary (result i32) (call $mean (i32.const 0)))
  (func $start (export "start") (param i32) (result i32) (call $summary))
  (func (export "unnamed") (param i32) (result i32) (call $summary)))
"""
IN_C = """\
__attribute__((export_name("alloc"))) int alloc(int size) { return 4096; }
static int celsius(volatile int *count) {
    return 42 / *count;
}
__attribute__((export_name("start"))) int start(int rid) {
    volatile int none = 0;
    return celsius(&none);
}
"""
PANIC = """error while executing at wasm backtrace:
    0:   0x34c3 - <unknown>!__rust_start_panic
    1:   0x2e44 - <unknown>!rust_panic
    2:   0x2def - <unknown>!std::panicking::rust_panic_with_hook::h1b1329eaa36c7fa5
    3:   0x2a84 - <unknown>!rust_begin_unwind
    4:   0x4f2d - <unknown>!core::panicking::panic_fmt::h9ec1c8305a7da9ae
    5:   0x4fc2 - <unknown>!core::result::unwrap_failed::h4646d8d0c3873241
    6:    0x476 - <unknown>!start

Caused by:
    wasm trap: wasm `unreachable` instruction executed
"""


def run(module: bytes, handler: str, host: str, *, lines: bool = False) -> str:
    bench = Workbench(module, host=host, lines=lines)
    try:
        (outcome,) = bench.perform([Trial(handler, b"")])
        return outcome.error
    finally:
        bench.close()


@pytest.mark.parametrize("host", HOSTS)
def test_a_trap_names_the_functions_on_the_way_to_it(host: str) -> None:
    reason = run(NAMED, "start", host)
    assert reason == "wasm trap: integer divide by zero, in mean, called by summary, start"


@pytest.mark.parametrize("host", HOSTS)
def test_a_handler_without_a_name_is_left_out(host: str) -> None:
    reason = run(NAMED, "unnamed", host)
    assert reason == "wasm trap: integer divide by zero, in mean, called by summary"


@pytest.mark.parametrize("host", HOSTS)
def test_a_trap_names_lines_of_a_module_with_dwarf_when_asked(host: str, tmp_path: Path) -> None:
    source, built = tmp_path / "meter.c", tmp_path / "meter.wasm"
    source.write_text(IN_C)
    options = ["--target=wasm32", "-nostdlib", "-g", "-O1", "-Wl,--no-entry"]
    command = [require_tool("clang"), *options, str(source), "-o", str(built)]
    require_tool("wasm-ld")
    subprocess.run(command, check=True, timeout=60)
    reason = run(built.read_bytes(), "start", host, lines=True)
    cause, first, second = reason.replace(", called by", ", in").split(", in ")
    assert cause == "wasm trap: integer divide by zero"
    assert first == f"celsius ({source}:3:15)"
    assert second == f"start ({source}:7:12)"
    without = run(built.read_bytes(), "start", host)
    assert without == "wasm trap: integer divide by zero, in start"


def test_what_rust_does_to_panic_is_left_out() -> None:
    assert trap_reason(PANIC) == (
        "wasm trap: wasm `unreachable` instruction executed, in core::panicking::panic_fmt, "
        "called by core::result::unwrap_failed, start"
    )


def test_a_trap_is_told_by_its_last_cause() -> None:
    message = "error while executing\n\nCaused by:\n    0: memory fault\n    1: wasm trap: so\n"
    assert trap_reason(message) == "wasm trap: so"
    assert trap_reason("wasm trap: interrupt") == "wasm trap: interrupt"
    assert trap_reason("") == "trap"


def test_a_place_has_a_bound_whatever_the_names_are() -> None:
    frames = [f"    {n}: 0x{n:x} - m!{chr(97 + n) * 5000}" for n in range(20)]
    frames += ["    at", "    20:", "    -", "   21: 0x - ", "", " - "]
    place = trap_place("\n".join(frames))
    assert place.startswith(", in aaaa")
    assert len(place) < 1500
