"""The protocol of systemd for services: reports that a service is ready and that it still works.

Source: sd_notify(3), systemd.service(5) on `Type=notify` and `WatchdogSec=`.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress

_SOCKET, _WATCHDOG_US, _WATCHDOG_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
_READY, _ALIVE = b"R", b"A"
_SIGNS_PER_LIMIT = 4  # signs of life per time limit of systemd's watchdog


class ServiceManager:
    """systemd, or another program that has set `NOTIFY_SOCKET`; without the variable, nothing is
    sent.

    Attributes:
        sign_s: seconds between two signs of life; None if none are expected.
    """

    def __init__(self, address: str = "", limit_s: float | None = None) -> None:
        """`address` is a path, or begins with `@`; `limit_s` is the limit of the watchdog."""
        self._address = address
        self.sign_s = limit_s / _SIGNS_PER_LIMIT if address and limit_s else None

    @classmethod
    def from_environment(cls) -> ServiceManager:
        """Read the variables, and remove them, because they are meant only for this process."""
        address = os.environ.pop(_SOCKET, "")
        limit_us = os.environ.pop(_WATCHDOG_US, "")
        pid = os.environ.pop(_WATCHDOG_PID, "")
        is_meant = pid in ("", str(os.getpid()))
        return cls(address, int(limit_us) / 1e6 if limit_us.isdecimal() and is_meant else None)

    @property
    def is_there(self) -> bool:
        """Whether there is a service manager."""
        return bool(self._address)

    def ready(self, status: str) -> None:
        """Report that the service serves; `status` is a line for users."""
        self._tell("READY=1", f"STATUS={status}")

    def alive(self) -> None:
        """Send a sign of life."""
        if self.sign_s is not None:
            self._tell("WATCHDOG=1")

    def stopping(self) -> None:
        """Report that the service ends."""
        self._tell("STOPPING=1", "STATUS=stopping")

    def _tell(self, *lines: str) -> None:
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        # If the manager is restarting, or its socket is full, it gets the next sign.
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
            sending.setblocking(False)
            sending.sendto("\n".join(lines).encode(), address)


class Reports:
    """Reports of a child to its parent; only the parent may talk to the service manager.

    They are sent through a pipe: the child calls `ready` and `alive`, the parent calls `take`.
    """

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def ready(self) -> None:
        """Report that the child serves."""
        self._put(_READY)

    def alive(self) -> None:
        """Report that the child works."""
        self._put(_ALIVE)

    def _put(self, what: bytes) -> None:
        with suppress(BlockingIOError):  # the pipe is full of reports already
            os.write(self._writing, what)

    def take(self) -> tuple[bool, bool]:
        """Return whether the child has reported since the last call that it serves, and that it
        works."""
        try:
            found = os.read(self._reading, 4_096)
        except BlockingIOError:
            return False, False
        return _READY in found, _ALIVE in found

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._reading)
        os.close(self._writing)
