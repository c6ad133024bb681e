"""The saved login."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from fieldbrook.cli.errors import ClientError
from fieldbrook.cli.session import Session, load_session, save_session, session_path


def test_a_login_is_saved_for_its_user_alone_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "session.json"
    session = Session("http://node:1", "t", "admin", "ADMIN", "2026-11-21T07:00:00Z")
    save_session(path, session)
    save_session(path, session)
    assert load_session(path) == session
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["session.json"]


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"server": "x", "other": 1}', "\0", "[" * 99_999]
)
def test_a_saved_login_that_is_none_is_said_to_be_so(tmp_path: Path, content: str) -> None:
    path = tmp_path / "session.json"
    path.write_text(content)
    with pytest.raises(ClientError, match="does not hold a saved login"):
        load_session(path)


def test_a_relative_config_folder_is_ignored_as_its_specification_says() -> None:
    assert session_path({"XDG_CONFIG_HOME": "here"}) == (
        Path.home() / ".config" / "fieldbrook" / "session.json"
    )
