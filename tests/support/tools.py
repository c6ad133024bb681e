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

# On Debian, servers are in folders that are not in a user's PATH.
_SERVERS = (
    "/usr/sbin",
    "/usr/local/sbin",
    *sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True),
)

# The usual folders of Go and Rust, which are not in every PATH.
_TOOLCHAINS = ("/usr/local/go/bin", str(Path.home() / ".cargo" / "bin"))

_RANDOM = random.SystemRandom()
_PORTS_EACH = 2_500
_BLOCKED_PORT = 10_080
"""The only port in this range that browsers block (Fetch standard, "port blocking")."""

# The time limit for steps whose speed is not tested: a busy machine may take many times longer than
# another one.
LIMIT_S = 60.0

# The time limit for installing and building within a test, whose own limit is not much longer.
PREPARING_S = 100.0


def require_tool(name: str) -> str:
    """Return the path of a program; without it the test is skipped, or fails if CI=true.

    Benchmarks also use this, without pytest.
    """
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *_SERVERS, *_TOOLCHAINS])
    found = shutil.which(name, path=path)
    if found is not None:
        return found
    if os.environ.get("CI") == "true":
        raise AssertionError(f"{name} is not installed, and CI tests everything")
    raise SkipTest(f"{name} is not installed")


def _first_port() -> int:
    """Return the first port of this process in a test run.

    All ports are below 32,768, where the system's own range of free ports begins. Each of several
    test processes has a range of its own, so no other process takes a port before its server has
    started, or while the server restarts.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    share = int(worker.removeprefix("gw")) % 8 + 1 if worker else 0
    return 10_000 + _PORTS_EACH * share


# Ports are used one after the other, so that none is reused soon. Another test run may have the
# same range.
_PORT_NUMBERS = itertools.count(_RANDOM.randrange(_PORTS_EACH))


def free_port() -> int:
    """Return a port for a server that is started soon; it is free on all addresses of IPv4."""
    for number in itertools.islice(_PORT_NUMBERS, _PORTS_EACH):
        port = _first_port() + number % _PORTS_EACH
        if port == _BLOCKED_PORT:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("0.0.0.0", port))  # noqa: S104 - the socket never listens
            except OSError:
                continue
            return port
    raise AssertionError("all ports of this process are taken")


# How the program of a folder is built: the file that lists its libraries, and the command. Go is
# built without C and Rust without optimisation, because that is faster.
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
    # Cargo uses the first rustc in PATH, which may be of another version.
    path = f"{Path(command[0]).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    stamp = build / ".complete"
    # Other test processes may build the same program, so the folder is locked. Go and Cargo lock
    # their own files themselves.
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
    """Install the packages of a folder's lock file; return their folder `node_modules`."""
    npm, modules = require_tool("npm"), folder / "node_modules"
    installed, lock = modules / ".package-lock.json", folder / "package-lock.json"
    options = ["--silent", "--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund"]
    with lock.open() as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)  # other test processes may install, too
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
    """Return the memory of a process in bytes, without mapped files."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) << 10
