"""The command `logs`."""

from __future__ import annotations

from fieldbrook.cli.remote.events.logs import log_line


def test_a_log_line_cannot_drive_the_terminal() -> None:
    row = {
        "logTime": "T",
        "level": "info",
        "src": "wasmCode",
        "appletName": "a\x1b[2J",
        "msg": "x\r\ny",
    }
    assert log_line(row) == "T info  a\\x1b[2J: x\\r\\ny"
