"""A process of the node: its signals, core dumps, limits, and the programs that it starts."""

from __future__ import annotations

import faulthandler
import logging
import resource
import signal
import sys
from pathlib import Path

from fieldbrook.system.kernel import hide_memory

log = logging.getLogger(__name__)

_STDERR_SHOWN = 300

FATAL_SIGNALS = frozenset(
    {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT}
)
"""Signals after which a process cannot continue: after a handler returns, the faulting instruction
would run again. `faulthandler` handles the same signals."""


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of this project as a separate program.

    With `-P` nothing is imported from the current folder, where a file `regex.py` would replace
    a library. A fatal signal writes a traceback of all threads to standard error.
    """
    return [sys.executable, "-P", "-X", "faulthandler", "-m", module, *arguments]


def installed_program(name: str) -> Path:
    """Return the path of a program that is installed with this interpreter; the file may be
    absent."""
    return Path(sys.executable).with_name(name)


def describe_exit(program: str, status: int, stderr: str) -> str:
    """Explain to the sender of a file why the program that read the file has failed.

    After a signal, standard error has a traceback of the node's own code. It is logged, and the
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
    """Write a traceback of all threads to standard error if a fatal signal ends this process or a
    fork of it."""
    if sys.__stderr__ is not None:  # a service may have closed it
        faulthandler.enable(sys.__stderr__, all_threads=True)


def keep_memory_private() -> None:
    """Disable core dumps, and keep other processes of the same user from reading this memory.

    The memory holds keys and passwords. Forks inherit both; a program started with exec inherits
    only the disabled core dumps. Root can still read the memory.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hide_memory()


def descriptor_limit() -> int | None:
    """The soft limit of open files of this process; None when there is no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft
