"""What the start of a node waits for."""

from __future__ import annotations

from pathlib import Path

import pytest

from fieldbrook.actors import messages as m
from fieldbrook.actors.supervisor import STARTING, UP, Child, Supervisor
from fieldbrook.settings import Settings


@pytest.mark.parametrize(("part", "booted"), [("chain:1", True), ("http:0", False)])
def test_a_node_has_booted_although_a_chain_but_nothing_else_could_not_start(
    part: str, booted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[object] = []
    supervisor = Supervisor()
    monkeypatch.setattr(supervisor, "send", lambda _to, message: sent.append(message))
    monkeypatch.setattr(supervisor, "_later", lambda *_: None)
    monkeypatch.setattr(supervisor, "_make_spares", lambda: None)
    monkeypatch.setattr(supervisor, "_start", lambda child: child.enter(STARTING))
    monkeypatch.setattr(supervisor, "_trouble", lambda *_: None)
    monkeypatch.setattr(supervisor, "_waiting_for_boot", "whoever asked")
    supervisor._settings = Settings(data=tmp_path)
    slow, registry = Child(part), Child("registry")
    slow.enter(STARTING)
    registry.enter(UP)
    supervisor._children = {child.part: child for child in (registry, slow)}
    supervisor._booted()
    assert sent == []
    supervisor._exited(slow)
    assert [message for message in sent if isinstance(message, m.Booted)] == sent[: int(booted)]
    assert len(sent) == int(booted)
