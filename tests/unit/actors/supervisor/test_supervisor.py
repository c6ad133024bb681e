"""What the start of a node waits for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fieldbrook.actors import messages as m
from fieldbrook.actors.supervisor.child import STARTING, UP, Child
from fieldbrook.actors.supervisor.supervisor import Supervisor
from fieldbrook.core.settings import Settings


class Booting:
    """A supervisor whose one slow part is starting, and what it says and does."""

    def __init__(self, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[object] = []
        self.ended: list[str] = []
        self.supervisor = Supervisor()
        instead: dict[str, Callable[..., None]] = {
            "send": lambda _to, message: self.sent.append(message),
            "set_timer": lambda *_: None,
            "start": lambda child: child.enter(STARTING),
            "_raise_condition": lambda *_: None,
            "_kill": lambda child: self.ended.append(child.part),
        }
        for name, function in instead.items():
            monkeypatch.setattr(self.supervisor, name, function)
        monkeypatch.setattr(self.supervisor.projects, "make_spares", lambda: None)
        monkeypatch.setattr(self.supervisor, "_boot_requester", "whoever asked")
        self.supervisor.settings = Settings(data=tmp_path)
        self.slow, registry = Child(part), Child("registry")
        self.slow.enter(STARTING)
        registry.enter(UP)
        self.supervisor.children = {child.part: child for child in (registry, self.slow)}

    @property
    def has_booted(self) -> bool:
        return any(isinstance(message, m.Booted) for message in self.sent)


@pytest.mark.parametrize(("part", "booted"), [("chain:1", True), ("http:0", False)])
def test_a_node_has_booted_although_a_chain_but_nothing_else_could_not_start(
    part: str, booted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    booting = Booting(part, tmp_path, monkeypatch)
    booting.supervisor._check_boot()
    assert not booting.has_booted
    booting.supervisor._on_exit(booting.slow)
    assert booting.has_booted is booted


def test_a_chain_that_starts_slowly_is_let_be_and_waited_for_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    booting = Booting("chain:1", tmp_path, monkeypatch)
    booting.supervisor._on_timer("started?", booting.slow)
    assert booting.has_booted
    assert booting.ended == []
    booting.supervisor._on_timer("started?", booting.slow)
    assert booting.ended == ["chain:1"]


def test_another_part_that_does_not_start_in_time_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    booting = Booting("http:0", tmp_path, monkeypatch)
    booting.supervisor._on_timer("started?", booting.slow)
    assert (booting.has_booted, booting.ended) == (False, ["http:0"])
