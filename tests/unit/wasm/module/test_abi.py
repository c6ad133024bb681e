"""The table of host functions and their implementations."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import fields

from fieldbrook.wasm.host import GROUPS, bind
from fieldbrook.wasm.host.guest import Guest
from fieldbrook.wasm.limits import Limits
from fieldbrook.wasm.module import abi


class _NoMemory(Guest):
    """A minimal guest to which functions can be bound."""

    def read(self, pointer: int, size: int) -> bytes:
        raise self.out_of_memory(pointer + size, 0, None)

    def write(self, pointer: int, data: bytes) -> None:
        raise self.out_of_memory(pointer + len(data), 0, None)

    def check_range(self, pointer: int, size: int) -> None:
        raise self.out_of_memory(pointer + size, 0, None)

    def copy_to_guest(self, data: bytes, pointer_at: int, size_at: int) -> None:
        raise self.alloc_missing(exported=False)


def test_every_signature_has_exactly_one_function() -> None:
    known = (*abi.SIGNATURES, *abi.SEEDED_SIGNATURES)
    assert bind(_NoMemory(Limits())).keys() == set(known)
    assert len(known) == len(set(known))
    assert sum(len(group(_NoMemory(Limits()))) for group in GROUPS) == len(known)


def test_no_two_variants_of_a_name_have_the_same_type() -> None:
    types = [(s.module, s.name, s.params, s.result) for s in abi.SIGNATURES]
    assert len(types) == len(set(types))


def test_levels_have_the_names_of_the_interface() -> None:
    names = [abi.level_name(level) for level in range(-1, 9)]
    assert names == [
        *("unknown", "panic", "fatal", "error", "warning", "info", "debug", "trace"),
        *("unknown", "unknown"),
    ]


def test_the_page_for_authors_names_every_budget_as_it_is() -> None:
    page = (Path(__file__).parents[4] / "docs" / "how-to" / "applets.md").read_text()
    section = page.partition("## Budgets of a run")[2].partition("\n## ")[0]
    for budget in fields(Limits):
        value = getattr(Limits(), budget.name)
        assert f" {value:,} " in section or f" {value} " in section or f" {value}," in section
