"""Which modules are refused, and the texts of the refusals."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import pytest
import wasmtime
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.core.errors import ModuleRefusedError
from fieldbrook.wasm.engine.engine import make_compiler
from fieldbrook.wasm.limits import Limits
from fieldbrook.wasm.module.inspection import (
    EXPORTS_LIMIT,
    IMPORTS_LIMIT,
    ModuleReport,
    check,
    to_binary,
)
from fieldbrook.wasm.module.interface import read_interface

LIMITS = Limits()
MODULES = Path(__file__).parents[3] / "modules"
MEMORY = '(memory (export "memory") 1)'
START = '(func (export "start") (param i32) (result i32) (i32.const 0))'
LONG_TYPE = f"(param{' i32' * 1_000}) (result{' i32' * 1_000})"


def refusal(text: str, limits: Limits = LIMITS) -> str:
    with pytest.raises(ModuleRefusedError) as caught:
        check(text.encode(), limits)
    return caught.value.desc


def applet(*parts: str) -> str:
    return f"(module {' '.join(parts)} {MEMORY} {START})"


def test_a_module_is_reported_with_its_handlers_in_order() -> None:
    report = check((MODULES / "wasi.wat").read_bytes(), LIMITS)
    assert report == ModuleReport(
        handlers=(
            *("write", "write_nowhere", "exit_0", "exit_3", "exit_in_alloc", "random"),
            *("random_out_of_bounds", "environment", "sleep", "sleep_for_an_hour"),
            *("poll_a_file", "poll_nothing", "poll_out_of_bounds"),
        ),
        wasi=True,
        memory_pages=1,
    )


def test_what_toolchains_export_for_themselves_is_no_handler() -> None:
    names = ("alloc", "malloc", "__pin", "reduce")
    functions = [
        f'(func (export "{name}") (param i32) (result i32) (i32.const 0))' for name in names
    ]
    runtime = '(func (export "_initialize")) (func (export "_start"))'
    assert check(applet(*functions, runtime).encode(), LIMITS).handlers == ("reduce", "start")


def test_every_test_module_is_accepted_as_text_and_as_binary() -> None:
    for path in MODULES.glob("*.wat"):
        text = path.read_bytes()
        assert check(text, LIMITS) == check(to_binary(text), LIMITS)


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"hello", b"\xff\xfe", b"{}", b"\0as"])
def test_what_is_no_module_at_all_is_said_to_be_none(data: bytes) -> None:
    with pytest.raises(ModuleRefusedError, match="not a WebAssembly module"):
        check(data, LIMITS)


def test_a_text_that_does_not_parse_is_refused_with_the_place() -> None:
    assert refusal("(module (func (param i33)))").startswith("not a WebAssembly text: ")


def test_a_damaged_binary_is_refused() -> None:
    binary = to_binary(applet().encode())
    with pytest.raises(ModuleRefusedError, match="not a valid module"):
        check(binary[:-3], LIMITS)


def test_a_header_alone_is_refused() -> None:
    with pytest.raises(ModuleRefusedError, match="component, not a core module"):
        check(b"\0asm", LIMITS)


def test_a_component_is_named_as_one() -> None:
    assert refusal("(component)") == "a WebAssembly component, not a core module"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"(module {START})", "it exports no memory named 'memory'"),
        (f'(module (func (export "memory")) {START})', "it exports no memory named 'memory'"),
        (f"(module {MEMORY})", "it exports no handler, that is a function (i32) -> (i32)"),
        (
            applet('(func (export "alloc") (param i64) (result i32) (i32.const 0))'),
            "its export 'alloc' is (i64) -> (i32); it must be (i32) -> (i32)",
        ),
        (
            applet('(global (export "alloc") i32 (i32.const 0))'),
            "its export 'alloc' is no function; it must be (i32) -> (i32)",
        ),
        (
            applet('(func (export "_initialize") (param i32))'),
            "its export '_initialize' is (i32) -> (); it must be () -> ()",
        ),
        (
            applet('(import "env" "log" (func)) (import "stat" "x" (func (param i32)))'),
            "unknown imports: env.log, stat.x",
        ),
        (
            applet('(import "wasi_unstable" "fd_write" (func))'),
            "unknown imports: wasi_unstable.fd_write",
        ),
        (
            applet('(import "wasi_snapshot_preview1" "fly" (func))'),
            "unknown imports: wasi_snapshot_preview1.fly",
        ),
        (
            applet('(import "env" "ws_log" (func (param i32 f64)))'),
            "import env.ws_log is (i32, f64) -> (); the host has (i32, i32, i32) -> (i32)",
        ),
        (
            applet('(import "wasi_snapshot_preview1" "proc_exit" (func))'),
            "import wasi_snapshot_preview1.proc_exit is () -> (); the host has (i32) -> ()",
        ),
        (
            applet('(import "env" "abort" (global i32))'),
            "import env.abort is not a function",
        ),
        (applet('(import "env" "table" (table 1 funcref))'), "unknown imports: env.table"),
    ],
)
def test_a_module_is_refused_with_the_reason(text: str, reason: str) -> None:
    assert refusal(text) == reason


def test_everything_that_is_wrong_is_named_at_once() -> None:
    reason = refusal('(module (import "a" "b" (func)) (func (export "alloc")))')
    assert reason.count("; ") >= 3
    for part in ("memory", "'alloc'", "handler", "a.b"):
        assert part in reason


def test_a_long_list_of_unknown_imports_is_cut() -> None:
    imports = [f'(import "env" "f{number}" (func))' for number in range(50)]
    assert refusal(applet(*imports)).endswith("env.f19, and 30 more")


def test_a_refusal_is_short_whatever_the_module_says() -> None:
    unknown = (f'(import "{"e" * 9_000}{n}" "{"x" * 9_000}" (func))' for n in range(30))
    assert len(refusal(f"(module {' '.join(unknown)} {MEMORY} {START})")) < 4_000
    assert len(refusal("(module " + "(" * 100_000)) < 1_000
    long = f"(type $long (func {LONG_TYPE}))"
    imported = '(import "env" "ws_log" (func (type $long)))' * 300
    assert len(refusal(f"(module {long} {imported} {MEMORY} {START})")) < 4_000
    others = (f'(import "env" "ws_log" (func (param{" i64" * n})))' for n in range(300))
    assert len(refusal(f"(module {' '.join(others)} {MEMORY} {START})")) < 20_000


def test_a_type_in_a_refusal_is_cut() -> None:
    text = f'(import "env" "ws_log" (func {LONG_TYPE}))'
    shown = ", ".join(["i32"] * 31 + ["..."])
    assert f"({shown}) -> ({shown}); the host has " in refusal(applet(text))


def test_millions_of_values_in_the_types_of_exports_take_no_time_to_load() -> None:
    exports = (f'(export "e{n}" (func $long))' for n in range(490))
    text = applet(f"(func $long {LONG_TYPE} unreachable)", *exports)
    module = wasmtime.Module(make_compiler(), to_binary(text.encode()))
    began = time.thread_time()
    interface = read_interface(module)
    assert time.thread_time() - began < 1.0, "it took a worker ten seconds"
    assert interface.handlers == ("start",)


def test_a_module_with_more_exports_or_imports_than_a_node_carries_is_refused() -> None:
    exports = (f'(export "e{n}" (memory 0))' for n in range(EXPORTS_LIMIT))
    assert refusal(applet(*exports)) == "it has 10002 exports; the limit is 10000"
    imported = '(import "env" "seed" (func (result f64)))'
    text = f"(module {imported * (IMPORTS_LIMIT + 1)} {MEMORY} {START})"
    assert refusal(text) == "it has 1001 imports; the limit is 1000"


def test_handlers_whose_names_take_too_much_room_are_refused() -> None:
    body = "(param i32) (result i32) (i32.const 0))"
    functions = (f'(func (export "{n:0250}") {body}' for n in range(300))
    assert refusal(applet(*functions)) == (
        "it has 75005 bytes in the names of its handlers; the limit is 65536"
    )


@pytest.mark.parametrize("name", ["x" * 257, "\\1b[2J", "a\\nb"])
def test_an_export_that_no_strategy_could_name_is_no_handler(name: str) -> None:
    odd = f'(func (export "{name}") (param i32) (result i32) (i32.const 0))'
    assert check(applet(odd).encode(), LIMITS).handlers == ("start",)


def test_a_memory_that_starts_over_the_limit_is_refused() -> None:
    text = f'(module (memory (export "memory") 17) {START})'
    limits = Limits(memory_bytes=1 << 20)
    assert refusal(text, limits) == "it starts with 17 pages of memory; the limit is 16"
    assert check(text.replace("17", "16").encode(), limits).memory_pages == 16


@pytest.mark.parametrize(
    "memory",
    [
        '(memory (export "memory") i64 1)',
        '(memory (export "memory") 1 2 shared)',
    ],
)
def test_a_memory_that_the_host_cannot_bound_is_refused(memory: str) -> None:
    assert refusal(f"(module {memory} {START})").startswith("not a valid module: ")


@given(st.binary(max_size=200))
def test_no_upload_raises_anything_but_a_refusal(data: bytes) -> None:
    for upload in (data, b"\0asm\1\0\0\0" + data, b"(" + data):
        with pytest.raises(ModuleRefusedError):
            check(upload, LIMITS)


@given(st.data())
def test_no_damaged_module_raises_anything_but_a_refusal(data: st.DataObject) -> None:
    binary = bytearray(wasmtime.wat2wasm((MODULES / "no_alloc.wat").read_text()))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(binary) - 1))
        binary[at] = data.draw(st.integers(0, 255))
    with suppress(ModuleRefusedError):
        assert check(bytes(binary), LIMITS).handlers


@pytest.mark.parametrize("before", ["", "(table 200 funcref)", "(type (func)) (table 1 funcref)"])
def test_a_second_memory_is_refused_although_nobody_sees_it(before: str) -> None:
    memories = '(memory (export "memory") 1) (memory 1)'
    assert refusal(f"(module {before} {memories} {START})") == "it has more than one memory"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('(func (export "v") (param v128))', "v"),
        ('(func (export "v") (result v128) unreachable)', "v"),
        ('(import "env" "v" (func (param i32 v128)))', "env.v"),
        ('(import "env" "v" (func (param v128))) (export "w" (func 0))', "env.v, w"),
        (
            (
                '(import "env" "g" (global i32)) (import "env" "t" (table 1 2 funcref))'
                ' (import "env" "m" (memory 1)) (import "env" "v" (func (result v128)))'
            ),
            "env.v",
        ),
    ],
)
def test_a_vector_cannot_pass_the_border_of_a_module(text: str, names: str) -> None:
    whole = f'(module {text} (memory (export "memory") 1) {START})'
    if "(memory 1)" in text:
        whole = f"(module {text} {START})"
    assert refusal(whole) == f"functions with a vector (v128) in their type: {names}"


def test_a_module_may_use_vectors_inside() -> None:
    text = (
        '(module (func $sum (param v128) (result v128) local.get 0) (memory (export "memory") 1)'
        f" (func (drop (call $sum (v128.const i64x2 1 2)))) {START})"
    )
    assert check(text.encode(), LIMITS).handlers == ("start",)
