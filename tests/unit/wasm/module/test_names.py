"""Names that an author has chosen cannot make the reason of a trap long, slow or confusing."""

from __future__ import annotations

import time

import pytest
import wasmtime
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.wasm.module.names import NAME_CHARACTERS, harmless, with_harmless_names
from fieldbrook.workbench.runs import HOSTS, Trial, Workbench

UNNAMED = b"""
(module
  (memory (export "memory") 1)
  (func (param i32) (result i32) (unreachable))
  (func (export "start") (param i32) (result i32) (call 0 (local.get 0))))
"""
PLAIN = bytes(wasmtime.wat2wasm(UNNAMED))
TRAP = "wasm trap: wasm `unreachable` instruction executed, in "


def number(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes((low | 0x80,)) + number(rest) if rest else bytes((low,))


def sized(content: bytes) -> bytes:
    return number(len(content)) + content


def named(name: bytes) -> bytes:
    """Return the module whose inner function has this name."""
    names = sized(number(1) + number(0) + sized(name))
    return PLAIN + b"\0" + sized(b"\x04name\x01" + names)


def doubling(levels: int) -> str:
    """Return a mangled name of C++, whose text doubles with each level."""
    references = [f"S{digit}_" for digit in "13579BDFHJLNPRTVXZ"]
    parts = [f"1bI{each}{each}E" for each in references[:levels]]
    return f"_Z1fI1aIiiE{''.join(parts)}Ev"


def reason(module: bytes, host: str) -> str:
    bench = Workbench(module, host=host)
    try:
        (outcome,) = bench.perform([Trial("start", b"")])
        return outcome.error
    finally:
        bench.close()


@pytest.mark.parametrize("host", HOSTS)
def test_a_name_that_a_demangler_would_make_huge_is_shown_as_it_is(host: str) -> None:
    name = doubling(12)
    assert reason(named(name.encode()), host) == f"{TRAP}~{name}"


@pytest.mark.parametrize("host", HOSTS)
def test_an_ordinary_mangled_name_is_shown_as_its_author_knows_it(host: str) -> None:
    assert reason(named(b"_ZN5meter4readEi"), host) == f"{TRAP}meter::read(int)"
    assert reason(named(doubling(1).encode()), host).startswith(f"{TRAP}void f<a<int, int>, b<")
    rust = b"_ZN5meter4read17h0123456789abcdefE"
    assert reason(named(rust), host) == f"{TRAP}meter::read"


def test_a_name_cannot_control_a_terminal_or_pass_for_another_frame() -> None:
    shown = reason(named("me\x1b[31mter\n 9: 0x1 - m!root\u202e".encode()), "raw")
    assert shown == f"{TRAP}me\ufffd[31mter\ufffd 9: 0x1 - m!root\ufffd"


def test_a_long_name_is_cut_before_the_module_is_compiled() -> None:
    module = with_harmless_names(named(b"n" * 1_000_000))
    assert len(module) < len(PLAIN) + NAME_CHARACTERS + 100
    wasmtime.Module.validate(wasmtime.Engine(), module)


def test_other_sections_stay_as_they_are() -> None:
    module = PLAIN + b"\0" + sized(b"\x05other" + bytes(100))
    assert with_harmless_names(module) == module


@given(st.binary(max_size=200))
def test_a_damaged_section_of_names_stays_valid_for_the_engine(content: bytes) -> None:
    module = with_harmless_names(PLAIN + b"\0" + sized(b"\x04name" + content))
    wasmtime.Module.validate(wasmtime.Engine(), module)
    assert with_harmless_names(module) == module


@given(st.text(alphabet="_ZSTIRB1aiE0", max_size=400))
def test_a_harmless_name_stays_one(name: str) -> None:
    assert harmless(harmless(name)) == harmless(name)


@pytest.mark.parametrize("unit", [b"\x80", b"\x01\x01", b"\x01\x00", b"\x01\x7f", b"\0"])
def test_a_large_section_of_names_takes_time_in_proportion_to_its_size(unit: bytes) -> None:
    content = b"\x04name" + unit * (4_000_000 // len(unit))
    began = time.process_time()
    with_harmless_names(PLAIN + b"\0" + sized(content))
    with_harmless_names(PLAIN + unit * (4_000_000 // len(unit)))
    assert time.process_time() - began < 60
