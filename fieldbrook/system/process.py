"""Kernel settings of a process: its name, death signals, core dumps, limits."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import logging
import resource
import signal
import sys
from pathlib import Path

log = logging.getLogger(__name__)

_STDERR_SHOWN = 300
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 1, 4, 15, 36

_M_MMAP_THRESHOLD = -3

FATAL_SIGNALS = frozenset(
    {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT}
)
"""Signals after which a process cannot continue: a handler that returns would run the faulting
instruction again. `faulthandler` handles the same signals."""

_libc = ctypes.CDLL(None, use_errno=True)


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of this project as a separate program.

    With `-P` nothing is imported from the current folder, where a file `regex.py` would replace
    a library. A fatal signal writes a traceback of all threads to standard error.
    """
    return [sys.executable, "-P", "-X", "faulthandler", "-m", module, *arguments]


def installed_program(name: str) -> Path:
    """Return where a program lies that was installed with this interpreter; it may be absent."""
    return Path(sys.executable).with_name(name)


def describe_exit(program: str, status: int, stderr: str) -> str:
    """Explain to the sender of a file why the program that read the file has failed.

    After a signal standard error holds a traceback of our own code: it is logged, and the
    sender gets only the number of the signal.

    Args:
        program: the name of the program in the text.
        status: the exit status, or a signal as a negative number.
        stderr: the program's standard error.
    """
    if status < 0:
        log.error("signal %d ended %s:\n%s", -status, program, stderr.rstrip())
        return f"{program} ended with signal {-status}"
    last = " ".join(stderr.split())[-_STDERR_SHOWN:]
    return f"{program} ended with status {status}{': ' if last else ''}{last}"


def report_fatal_signals() -> None:
    """Write a traceback of all threads to standard error when a fatal signal ends this process
    or a fork of it."""
    if sys.__stderr__ is not None:  # a service may have closed it
        faulthandler.enable(sys.__stderr__, all_threads=True)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies (Linux only)."""
    with contextlib.suppress(AttributeError):
        _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent dies (Linux only)."""
    with contextlib.suppress(AttributeError):
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def keep_memory_private() -> None:
    """Disable core dumps, and keep other processes of the same user from reading this memory.

    The memory holds keys and passwords. Forks inherit both; a program started with exec inherits
    only the disabled core dumps. The protection of the memory works on Linux only; root can
    still read it.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(AttributeError):
        _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def map_large_blocks() -> None:
    """Have every block of 1 MiB and more mapped by itself, which takes no memory until it is used.

    LMDB allocates 2 MiB of zeros for each environment that is written to, and uses little of it.
    Once such a block was freed, glibc's allocator would clear a used one instead: 2 MiB of memory
    and half a millisecond for each project. Other allocators are left as they are.
    """
    with contextlib.suppress(AttributeError):
        _libc.mallopt(_M_MMAP_THRESHOLD, 1 << 20)


def name_process(name: str) -> None:
    """Set the process name shown by `ps` and `top`, at most 15 bytes (Linux only)."""
    with contextlib.suppress(AttributeError):
        _libc.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def descriptor_limit() -> int | None:
    """The soft limit of open files of this process; None when there is no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft
