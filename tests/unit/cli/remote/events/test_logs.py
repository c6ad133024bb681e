"""The command `logs`."""

from __future__ import annotations

import click
import pytest

from fieldbrook.cli.remote.events.logs import log_line, logs
from fieldbrook.wasm.module.abi import LEVEL_NAMES, LOG_UNKNOWN


def test_a_log_line_cannot_drive_the_terminal() -> None:
    row = {
        "logTime": "T",
        "level": "info",
        "src": "wasmCode",
        "appletName": "a\x1b[2J",
        "msg": "x\r\ny",
    }
    assert log_line(row) == "T info    a\\x1b[2J: x\\r\\ny"


def level_of(*arguments: str) -> object:
    context = logs.make_context("logs", ["room", *arguments])
    return context.params["level"]


def test_a_level_is_given_by_the_name_that_a_row_has() -> None:
    for name in LEVEL_NAMES[:LOG_UNKNOWN]:
        assert level_of("--level", name) == name
    assert level_of("--level", "warn") == "warning", "its older name"
    assert level_of() is None
    with pytest.raises(click.BadParameter, match="'warning'"):
        level_of("--level", "loud")
