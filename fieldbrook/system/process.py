"""What a process of the node asks of the kernel."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import logging
import resource
import signal
import sys

log = logging.getLogger(__name__)

_COMPLAINT_SHOWN = 300
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 1, 4, 15, 36

FATAL_SIGNALS = frozenset(
    {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT}
)
"""Signals of a process that cannot go on: a handler that returns would run the same instruction
again. `faulthandler` knows these."""

_libc = ctypes.CDLL(None, use_errno=True)


def own_program(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of ours as a program of its own.

    Nothing is imported from the current folder (`-P`): a file `regex.py` there would take the
    place of a library. A fatal signal leaves a traceback of all threads on standard error.
    """
    return [sys.executable, "-P", "-X", "faulthandler", "-m", module, *arguments]


def how_it_ended(program: str, status: int, complaint: str) -> str:
    """Why a program of ours that works on a file from outside has failed, for whoever sent the
    file. After a signal the complaint is a traceback of our own code, which is for the log.

    Args:
        program: what it is called.
        status: its exit status, or a signal as a negative number.
        complaint: what it wrote to standard error.
    """
    if status < 0:
        log.error("signal %d ended %s:\n%s", -status, program, complaint.rstrip())
        return f"{program} ended with signal {-status}"
    last = " ".join(complaint.split())[-_COMPLAINT_SHOWN:]
    return f"{program} ended with status {status}{': ' if last else ''}{last}"


def report_fatal_signals() -> None:
    """Write a traceback of all threads to standard error when a fatal signal ends this process,
    or a fork of it."""
    if sys.__stderr__ is not None:  # a service may have closed it
        faulthandler.enable(sys.__stderr__, all_threads=True)


def die_with_parent() -> None:
    """Be killed when the parent dies (Linux; elsewhere this does nothing)."""
    with contextlib.suppress(AttributeError):
        _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent dies (Linux; elsewhere nothing)."""
    with contextlib.suppress(AttributeError):
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def keep_memory_private() -> None:
    """Leave no core file, and be read by no process of the same user but a debugger of root:
    memory holds keys and passwords. Inherited by forks; by programs that are started only as
    far as the core file goes (Linux; elsewhere that alone)."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(AttributeError):
        _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def name_process(name: str) -> None:
    """Be called this in `ps` and `top`: at most 15 characters (Linux; elsewhere nothing)."""
    with contextlib.suppress(AttributeError):
        _libc.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def descriptors() -> int | None:
    """How many files this process may have open; None when there is no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft
