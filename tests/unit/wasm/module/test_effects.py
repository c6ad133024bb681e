"""Which effects a stored module can have."""

from __future__ import annotations

from pathlib import Path

import pytest
import wasmtime

from fieldbrook.wasm.module.effects import effects_of_module

IMPORTS = """
  (import "env" "ws_set_db" (func (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_send_mqtt_msg" (func (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_log" (func (param i32 i32 i32) (result i32)))
  (import "stat" "ws_gauge_set" (func (param i32 i32 f64) (result i32)))
"""


@pytest.mark.parametrize(
    ("text", "effects"),
    [
        (f"(module {IMPORTS} (memory 1))", ("kv", "metrics", "mqtt")),
        ("(module (memory 1))", ()),
        ('(module (import "env" "ws_get_db" (func (param i32 i32 i32 i32) (result i32))))', ()),
    ],
)
def test_effects_are_the_imported_functions_that_cause_some(
    tmp_path: Path, text: str, effects: tuple[str, ...]
) -> None:
    module = tmp_path / "m.wasm"
    module.write_bytes(bytes(wasmtime.wat2wasm(text)))
    assert effects_of_module(module) == effects


def test_a_file_that_is_gone_or_not_complete_has_no_effects(tmp_path: Path) -> None:
    module = tmp_path / "part.wasm"
    module.write_bytes(bytes(wasmtime.wat2wasm(f"(module {IMPORTS})"))[:30])
    assert effects_of_module(module) == ()
    assert effects_of_module(tmp_path / "gone.wasm") == ()
