"""A node that is started with old names of settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.nodes import RunningNode


def test_a_node_warns_once_of_each_old_name_and_uses_its_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIELDBROOK_IDLE_S", "7")
    node = RunningNode(tmp_path / "data", "--sql-rows", "5")
    node.stop()
    for new in ("use FIELDBROOK_PROJECT_IDLE_S", "use --sql-result-rows"):
        assert node.log.count(new) == 1
