"""Run a module of the program in a child process with resource limits.

This is for work on untrusted files: the child bounds the memory, processor time and disk that
reading a hostile file can take.

`python -m fieldbrook.system.confined CPU_S ADDRESS_BYTES FILE_BYTES DATA_BYTES MODULE ARGUMENT...`
sets the limits, imports the module and exits with the status that its `main(arguments)` returns.
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
from pathlib import Path

import msgspec

from fieldbrook.system.kernel import die_with_parent
from fieldbrook.system.process import describe_exit, module_command

OUT_OF_MEMORY = ("memory allocation", "MemoryError", "out of memory")
"""The error text of Python, and of the libraries that are used, if a child exceeds its memory
limit."""
_STDERR_READ = 64 << 10


class Bounds(msgspec.Struct, frozen=True):
    """Limits of a child: processor time and wall time in seconds, address space and the size of
    each written file in bytes.

    `data_bytes` limits the writable memory, for children that reserve more address space than
    they use; with 0 there is no such limit.
    """

    cpu_s: int
    timeout_s: float
    address_bytes: int
    file_bytes: int
    data_bytes: int = 0


class ConfinedError(Exception):
    """The child ended without a result; the text gives the reason to the sender of the file."""


def run_confined(
    module: str, arguments: Sequence[str], bounds: Bounds, scratch: Path, data: bytes = b""
) -> bytes:
    """Run a module's `main` in a child. Blocks until the child has ended.

    Args:
        module: the name of a module with a `main(arguments)`.
        arguments: the arguments of `main`.
        bounds: the limits of the child.
        scratch: a folder for a temporary file with the child's standard error.
        data: the child's standard input.

    Returns:
        The child's standard output.

    Raises:
        ConfinedError: the exit status was not 0, or the child was stopped at a limit.
        OSError: no process could be started.
    """
    limits = bounds.cpu_s, bounds.address_bytes, bounds.file_bytes, bounds.data_bytes
    command = module_command("fieldbrook.system.confined", *map(str, limits), module, *arguments)
    pipe = subprocess.PIPE
    with tempfile.TemporaryFile(dir=scratch) as stderr:
        child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=stderr)
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
        stderr.seek(0)
        said = stderr.read(_STDERR_READ).decode("utf-8", "replace")
    raise ConfinedError(_exit_reason(child.returncode, said, bounds))


def _exit_reason(status: int, stderr: str, bounds: Bounds) -> str:
    if -status in (signal.SIGXCPU, signal.SIGKILL):
        return f"it takes more than {bounds.cpu_s} s of processor time, or the system stopped it"
    if any(word in stderr for word in OUT_OF_MEMORY):
        return f"it takes more than {bounds.address_bytes >> 20} MiB of memory"
    return describe_exit("the process that read it", status, stderr)


def main(arguments: Sequence[str]) -> int:
    """Set the limits in the child and run the module's `main`; return its exit status."""
    cpu_s, address_bytes, file_bytes, data_bytes, module, *rest = arguments
    die_with_parent()
    for kind, wanted in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, int(cpu_s)),
        (resource.RLIMIT_AS, int(address_bytes)),
        (resource.RLIMIT_FSIZE, int(file_bytes)),
        (resource.RLIMIT_DATA, int(data_bytes) or int(address_bytes)),
    ):
        _, most = resource.getrlimit(kind)
        value = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        # macOS has no limit of address space; the limits of time and file size remain.
        with suppress(ValueError):
            resource.setrlimit(kind, (value, value))
    status: int = importlib.import_module(module).main(rest)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
