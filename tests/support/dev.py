"""Commands on applets in processes of their own: on a terminal, and the blocks of `applet dev`."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.cli import main
from tests.support.nodes import until
from tests.support.tools import LIMIT_S

ROOT = Path(__file__).parents[2]


def environment(home: Path) -> dict[str, str]:
    """The variables of a user who has no login."""
    kept = {key: text for key, text in os.environ.items() if not key.startswith("FIELDBROOK_")}
    return {**kept, "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": str(home)}


def on_terminal(variables: dict[str, str], *arguments: str, typed: bytes, last: bytes) -> str:
    """Run a command on a terminal; return its output up to `last`, and end the command."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "fieldbrook", *arguments],
        env=variables,
        stdin=follower,
        stdout=follower,
        stderr=follower,
        start_new_session=True,
    )
    os.close(follower)
    shown = b""
    try:
        os.write(leader, typed)
        while last not in shown:
            more = os.read(leader, 65_536)
            assert more
            shown += more
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(LIMIT_S)
        os.close(leader)
    return shown.decode().replace("\r\n", "\n")


class Dev:
    """A running `applet dev --json`; as a context manager, it ends the command."""

    def __init__(
        self, folder: Path, *options: str, environment: Mapping[str, str], text: bool = False
    ) -> None:
        form = [] if text else ["--json"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fieldbrook", *form, "applet", "dev", str(folder), *options],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._out: list[str] = []
        self._errors: list[str] = []
        self._seen = 0
        self._readers = [
            threading.Thread(target=self._read, args=(pipe, lines))
            for pipe, lines in (
                (self.process.stdout, self._out),
                (self.process.stderr, self._errors),
            )
        ]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(pipe: Any, lines: list[str]) -> None:
        with pipe:
            for line in pipe:
                lines.append(line.decode())

    @property
    def out(self) -> str:
        return "".join(self._out)

    @property
    def errors(self) -> str:
        return "".join(self._errors)

    @property
    def blocks(self) -> list[dict[str, Any]]:
        """Return the blocks so far."""
        found = [json.loads(line) for line in list(self._out)]
        return [value for value in found if "log" not in value]

    @property
    def rows(self) -> list[str]:
        """Return the texts of the log rows so far."""
        found = [json.loads(line) for line in list(self._out)]
        return [value["log"]["msg"] for value in found if "log" in value]

    def block(self) -> dict[str, Any]:
        """Wait for the next block and return it."""
        self.wait(lambda: len(self.blocks) > self._seen, "a block")
        self._seen += 1
        return self.blocks[self._seen - 1]

    def wait(self, condition: Callable[[], Any], what: str) -> None:
        """Wait for a condition; fail if the command ends before."""

        def found() -> bool:
            ended = self.process.poll() is not None
            if condition():
                return True
            assert not ended, (self.out, self.errors)
            return False

        until(found, what)

    def end(self, number: int = signal.SIGINT) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(60)

    def __enter__(self) -> Dev:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)
        for reader in self._readers:
            reader.join(60)


def run_applet(captured: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Run `fieldbrook applet` in this process; return its exit code and output."""
    code = main.run(["applet", *map(str, arguments)])
    printed = captured.readouterr()
    return code, printed.out, printed.err
