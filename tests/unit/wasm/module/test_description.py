"""The contents of a module, as far as its bytes can be trusted."""

from __future__ import annotations

import wasmtime
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.wasm.module.description import Item, describe

PLAIN = b"""(module
  (import "env" "abort" (func (param i32 i64 f32 f64)))
  (import "env" "table" (table 1 2 funcref))
  (import "env" "limit" (global i32))
  (memory (export "memory") 1)
  (func $f (export "start") (param i32) (result i32) (i32.const 0))
  (global (export "answer") i32 (i32.const 42)))"""


def name(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def with_custom(section: bytes) -> bytes:
    """Return a valid module with a custom section."""
    size = len(section)
    encoded = bytes([size & 0x7F | 0x80, size >> 7])
    return bytes(wasmtime.wat2wasm(PLAIN)) + b"\0" + encoded + section


def test_imports_and_exports_are_listed_with_their_kinds_and_types() -> None:
    found = describe(bytes(wasmtime.wat2wasm(PLAIN)))
    assert found.imports == [
        Item("env", "abort", "function", "(i32, i64, f32, f64) -> ()"),
        Item("env", "table", "table", ""),
        Item("env", "limit", "global", ""),
    ]
    assert found.exports == [
        Item("", "memory", "memory", ""),
        Item("", "start", "function", "(i32) -> (i32)"),
        Item("", "answer", "global", ""),
    ]
    assert found.runtime == "AssemblyScript", "by env.abort"


def test_a_long_type_is_cut() -> None:
    text = b'(module (func (export "f") (param' + b" i32" * 1_000 + b")))"
    (item,) = describe(bytes(wasmtime.wat2wasm(text))).exports
    assert item.type == f"({'i32, ' * 31}...) -> ()"


def test_the_toolchain_is_what_the_module_says() -> None:
    language = name(b"language") + b"\x01" + name(b"Rust") + name(b"2021")
    made = name(b"processed-by") + b"\x01" + name(b"rustc") + name(b"1.80")
    found = describe(with_custom(name(b"producers") + b"\x02" + language + made))
    assert found.producers == {"language": ["Rust 2021"], "processed-by": ["rustc 1.80"]}
    assert found.runtime == "Rust"


@given(st.binary(max_size=300))
def test_no_custom_section_makes_a_description_fail(content: bytes) -> None:
    for section in (content, name(b"producers") + content):
        module = with_custom(section)
        assert len(describe(module).exports) == 3
