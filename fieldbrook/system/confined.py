"""Running a part of the program in a child process with limits.

For work on files from outside: whatever is in them, the memory, processor time and disk that
reading them takes are the child's, and end with it.

`python -m fieldbrook.system.confined CPU_S ADDRESS_BYTES FILE_BYTES MODULE ARGUMENT...` sets the
limits, imports the module and ends with the status that its `main(arguments)` returns.
"""

from __future__ import annotations

import importlib
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fieldbrook.system.process import die_with_parent, how_it_ended, own_program

_STDERR_READ = 64 << 10


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a child may use: processor time and time by the clock in seconds, address space
    and the size of each file it writes in bytes."""

    cpu_s: int
    timeout_s: float
    address_bytes: int
    file_bytes: int


class ConfinedError(Exception):
    """The child ended without an answer; the text says why, for whoever sent the file."""


def run_confined(
    module: str, arguments: Sequence[str], bounds: Bounds, scratch: Path, data: bytes = b""
) -> bytes:
    """Run a module's `main` in a child. Blocks until it has ended.

    Args:
        scratch: a folder in which the child's complaints are kept meanwhile.
        data: what the child reads from its standard input.

    Returns:
        What it wrote to its standard output.

    Raises:
        ConfinedError: it ended with another status than 0, or was stopped at a limit.
        OSError: no process could be started.
    """
    limits = bounds.cpu_s, bounds.address_bytes, bounds.file_bytes
    command = own_program("fieldbrook.system.confined", *map(str, limits), module, *arguments)
    pipe = subprocess.PIPE
    with tempfile.TemporaryFile(dir=scratch) as complaints:
        child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=complaints)
        try:
            output, _ = child.communicate(data, timeout=bounds.timeout_s)
        except subprocess.TimeoutExpired:
            raise ConfinedError(f"it takes more than {bounds.timeout_s:g} s") from None
        finally:
            if child.poll() is None:
                child.kill()
                child.communicate()
        if child.returncode == 0:
            return output
        complaints.seek(0)
        said = complaints.read(_STDERR_READ).decode("utf-8", "replace")
    raise ConfinedError(_death(child.returncode, said, bounds))


def _death(status: int, complaint: str, bounds: Bounds) -> str:
    if -status in (signal.SIGXCPU, signal.SIGKILL):
        return f"it takes more than {bounds.cpu_s} s of processor time, or the system stopped it"
    if "MemoryError" in complaint:
        return f"it takes more than {bounds.address_bytes >> 20} MiB of memory"
    return how_it_ended("the process that read it", status, complaint)


def main(arguments: Sequence[str]) -> int:
    """The child's side."""
    cpu_s, address_bytes, file_bytes, module, *rest = arguments
    die_with_parent()
    for kind, wanted in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, int(cpu_s)),
        (resource.RLIMIT_AS, int(address_bytes)),
        (resource.RLIMIT_FSIZE, int(file_bytes)),
    ):
        _, most = resource.getrlimit(kind)
        value = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        # macOS knows no limit of address space: the limits of time and files remain.
        with suppress(ValueError):
            resource.setrlimit(kind, (value, value))
    status: int = importlib.import_module(module).main(rest)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
