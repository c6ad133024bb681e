"""External programs that tests need, free ports, and the time limit of waiting."""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import socket
import subprocess
from pathlib import Path
from unittest import SkipTest

# Debian keeps servers where a user's PATH does not look.
_SERVERS = (
    "/usr/sbin",
    "/usr/local/sbin",
    *sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True),
)

_RANDOM = random.SystemRandom()

# For what has no need to be fast: a busy machine may take many times longer than another one.
LIMIT_S = 60.0


def require_tool(name: str) -> str:
    """The path of a program; the test is skipped without it, and fails when CI=true.

    Benchmarks use this, too, where there is no pytest.
    """
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *_SERVERS])
    found = shutil.which(name, path=path)
    if found is not None:
        return found
    if os.environ.get("CI") == "true":
        raise AssertionError(f"{name} is not installed, and CI tests everything")
    raise SkipTest(f"{name} is not installed")


def free_port() -> int:
    """A port of the loopback for a server that is started soon: none of those that the system
    gives to whoever asks for any, so nobody takes it meanwhile."""
    while True:
        port = _RANDOM.randrange(10_000, 32_768)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def npm_installed(folder: Path) -> Path:
    """Install what a folder's lock file says; it stays in the `node_modules` it returns."""
    npm, modules = require_tool("npm"), folder / "node_modules"
    installed, lock = modules / ".package-lock.json", folder / "package-lock.json"
    options = ["--silent", "--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund"]
    with lock.open() as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)  # other processes run tests, too
        if installed.exists() and installed.stat().st_mtime >= lock.stat().st_mtime:
            return modules
        done = subprocess.run(
            [npm, "ci", *options],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    return modules
