"""The load tools: small C programs, compiled when first used."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from benchmarks.measure import BenchmarkError

_SOURCES = Path(__file__).parent
_SLACK_S = 60.0  # beyond what a tool was told to take


def compiler() -> str | None:
    """The C compiler, if there is one."""
    return next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)


def tool(name: str) -> Path:
    """The program of `<name>.c`, compiled again when its source is newer.

    Raises:
        BenchmarkError: there is no C compiler, or it refuses.
    """
    source, program = _SOURCES / f"{name}.c", _SOURCES / "bin" / name
    if program.exists() and program.stat().st_mtime >= source.stat().st_mtime:
        return program
    found = compiler()
    if found is None:
        raise BenchmarkError("the load tools need a C compiler (Debian: gcc libc6-dev)")
    program.parent.mkdir(exist_ok=True)
    fresh = program.with_suffix(f".{os.getpid()}")
    done = subprocess.run(
        [found, "-O2", "-o", str(fresh), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BenchmarkError(f"{source.name} does not compile: {done.stderr}")
    fresh.replace(program)  # another run may be using the old one
    return program


def run_tool(name: str, *words: object, seconds: float) -> dict[str, float]:
    """Run a tool and read the `key=value` pairs it prints.

    Args:
        words: its arguments.
        seconds: how long it was told to take; it is killed a minute after that.

    Raises:
        BenchmarkError: it failed, e.g. because a server closed a connection.
    """
    command = [str(tool(name)), *(str(word) for word in words)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=seconds + _SLACK_S
        )
    except subprocess.TimeoutExpired as error:
        raise BenchmarkError(f"{name} did not end in time") from error
    if done.returncode:
        raise BenchmarkError(f"{name} ended with {done.returncode}: {done.stderr.strip()}")
    return {key: float(value) for key, value in (p.split("=") for p in done.stdout.split())}
