"""The command line, in the same form as for users: each command in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.command_server import command_server
from tests.support.nodes import RunningNode

ROOT = Path(__file__).parents[2]


class Shell:
    """Runs `fieldbrook` commands against a node, with a home of its own: as the account whose token
    the node object has, or without a login until the command `login` saves one."""

    def __init__(self, home: Path, node: RunningNode, *, logged_in: bool = True) -> None:
        self.environment = {
            **{key: text for key, text in os.environ.items() if not key.startswith("FIELDBROOK_")},
            "PYTHONPATH": str(ROOT),
            "XDG_CONFIG_HOME": str(home),
            "FIELDBROOK_SERVER": f"http://127.0.0.1:{node.http_port}",
        }
        if logged_in:
            self.environment["FIELDBROOK_TOKEN"] = node.token

    def start(self, *arguments: str, **more: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "fieldbrook", *arguments], env=self.environment, **more
        )

    def __call__(
        self, *arguments: str, stdin: bytes = b"", code: int = 0
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command to its end; it must end with `code`."""
        done = command_server().run(arguments, self.environment, stdin)
        assert done.returncode == code, (arguments, done)
        return done

    def text(self, *arguments: str) -> str:
        return self(*arguments).stdout.decode()

    def json(self, *arguments: str) -> Any:
        return json.loads(self("--json", *arguments).stdout)

    def fails(self, *arguments: str, code: int = 1, stdin: bytes = b"") -> str:
        """Run a command that must fail without a traceback; return its error text."""
        done = self(*arguments, code=code, stdin=stdin)
        said = done.stderr.decode()
        assert said
        assert "Traceback" not in said
        return said


def shell_with_login(home: Path, node: RunningNode) -> Shell:
    """Return a shell with the administrator's login, which the command `login` has saved."""
    made = Shell(home, node, logged_in=False)
    made("login", "--password-stdin", stdin=b"correct horse\n")
    return made
