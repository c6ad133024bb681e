"""The registry as a service: its commands by name, and errors between processes."""

from __future__ import annotations

import pytest

from fieldbrook.core.errors import NodeError, StoreError, StrategyConflictError, from_wire, to_wire
from fieldbrook.storage.registry.service import COMMANDS, decode_result, execute
from tests.unit.storage.registry.harness import Registry


def test_a_refusal_keeps_its_class_and_its_reason_between_processes() -> None:
    error = StrategyConflictError(project="p", applet="a", event_type="T", handler="h")
    same = from_wire(*to_wire(error))
    assert same.body("1") == error.body("1")
    assert same.body("1")["code"] == 409_999_005
    assert same.body("1")["desc"] == "[prj: p] [app: a] [type: T] [hdl: h]"


def test_only_listed_commands_with_fitting_arguments_run(registry: Registry) -> None:
    for op in ("close", "reader", "_change", "__init__", "nonsense"):
        assert op not in COMMANDS
        with pytest.raises(StoreError, match="knows no command"):
            execute(registry.writer, op, {})
    for args in ({}, {"project_id": "5"}, {"project_id": 5, "more": 1}):
        with pytest.raises(StoreError, match="remove_project"):
            execute(registry.writer, "remove_project", args)
    with pytest.raises(NodeError):
        decode_result("nonsense", b"")
