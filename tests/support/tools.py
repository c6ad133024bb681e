"""External programs that tests need, free ports, and the time limit of waiting."""

from __future__ import annotations

import fcntl
import itertools
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

# Where the makers of Go and Rust install them; not every PATH has them.
_TOOLCHAINS = ("/usr/local/go/bin", str(Path.home() / ".cargo" / "bin"))

_RANDOM = random.SystemRandom()
_PORTS_EACH = 2_500
_BLOCKED_PORT = 10_080
"""The only port of these that browsers do not open (Fetch standard, "port blocking")."""

# For what has no need to be fast: a busy machine may take many times longer than another one.
LIMIT_S = 60.0

# For installing and building within a test, whose own limit is not much longer.
PREPARING_S = 100.0


def require_tool(name: str) -> str:
    """The path of a program; the test is skipped without it, and fails when CI=true.

    Benchmarks use this, too, where there is no pytest.
    """
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *_SERVERS, *_TOOLCHAINS])
    found = shutil.which(name, path=path)
    if found is not None:
        return found
    if os.environ.get("CI") == "true":
        raise AssertionError(f"{name} is not installed, and CI tests everything")
    raise SkipTest(f"{name} is not installed")


def _first_port() -> int:
    """Where the ports of this process of a test run begin.

    All lie below 32,768, where the system looks for a port for whoever asks for any. A process
    that runs tests beside others has a range of its own: no other takes a port before its server
    has started, or while its server starts again.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    share = int(worker.removeprefix("gw")) % 8 + 1 if worker else 0
    return 10_000 + _PORTS_EACH * share


# One after the other, so that none comes again soon. Another test run may have the same range.
_PORT_NUMBERS = itertools.count(_RANDOM.randrange(_PORTS_EACH))


def free_port() -> int:
    """A port for a server that is started soon, free on all addresses of IPv4."""
    for number in itertools.islice(_PORT_NUMBERS, _PORTS_EACH):
        port = _first_port() + number % _PORTS_EACH
        if port == _BLOCKED_PORT:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("0.0.0.0", port))  # noqa: S104 - nothing listens there
            except OSError:
                continue
            return port
    raise AssertionError("all ports of this process are taken")


# How the program of a folder is built: the file that says which libraries it needs, the command.
# Of Go without C, of Rust without optimisation: that is faster.
_BUILDS = {
    "go.sum": ("go", "build", "-buildvcs=false", "-o", "build/client", "."),
    "Cargo.lock": ("cargo", "build", "--quiet", "--locked", "--target-dir", "build"),
    "pom.xml": ("mvn", "--batch-mode", "--quiet", "--strict-checksums", "compile"),
}


def built(folder: Path, limit_s: float = PREPARING_S) -> Path:
    """Build the Go, Rust or Java program of a folder, unless its `build`, which it returns, is
    newer than its files."""
    name = next(name for name in _BUILDS if (folder / name).exists())
    program, *options = _BUILDS[name]
    command, build = [require_tool(program), *options], folder / "build"
    # Cargo takes the first rustc of PATH, which may be another one than its own.
    path = f"{Path(command[0]).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    stamp = build / ".complete"
    # Other processes run tests, too. Go and Cargo themselves lock their files, so the folder is
    # locked.
    alone = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(alone, fcntl.LOCK_EX)
        sources = [
            path for path in folder.rglob("*") if build not in path.parents and path.is_file()
        ]
        newest = max(path.stat().st_mtime for path in sources)
        if stamp.exists() and stamp.stat().st_mtime >= newest:
            return build
        done = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | {"CGO_ENABLED": "0", "PATH": path},
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        stamp.touch()
    finally:
        os.close(alone)
    return build


def npm_installed(folder: Path, limit_s: float = PREPARING_S) -> Path:
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
            timeout=limit_s,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    return modules


def own_memory(pid: int) -> int:
    """The memory of a process in bytes, without the files that it has mapped."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) << 10
