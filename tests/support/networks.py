"""Networks of hosts that can be cut: each host has a network namespace of its own.

They need Linux, root and iproute2.
"""

from __future__ import annotations

import ctypes
import http.client
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_NAMES = "/var/run/netns"
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_libc = ctypes.CDLL(None, use_errno=True)


class Network:
    """A switch with a cable to each host; `addresses` has those of the hosts, by name."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self.addresses = {name: f"10.77.0.{at}" for at, name in enumerate(hosts, 1)}
        self._switch = self.namespace("switch")
        try:
            self._make(self._switch)
            self._in_switch("link", "add", "bridge", "type", "bridge")
            self._in_switch("link", "set", "bridge", "up")
            for name in hosts:
                self._connect(name)
        except BaseException:
            self.remove()
            raise

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    @staticmethod
    def namespace(host: str) -> str:
        """Return the name of a host's namespace."""
        return f"fieldbrook-{os.getpid()}-{host}"

    def prefix(self, host: str) -> tuple[str, ...]:
        """Return the words before a command that runs on a host."""
        return ("ip", "netns", "exec", self.namespace(host))

    def cut(self, host: str) -> None:
        """Disconnect a host from the switch."""
        self._in_switch("link", "set", host, "down")

    def mend(self, host: str) -> None:
        """Connect the host again."""
        self._in_switch("link", "set", host, "up")

    def remove(self) -> None:
        """Remove all namespaces; no process may run in one."""
        for name in (*self.addresses, "switch"):
            with suppress(subprocess.CalledProcessError):
                _ip("netns", "delete", self.namespace(name))

    def _make(self, namespace: str) -> None:
        _ip("netns", "add", namespace)
        _ip("-n", namespace, "link", "set", "lo", "up")

    def _connect(self, host: str) -> None:
        own = self.namespace(host)
        self._make(own)
        self._in_switch("link", "add", host, "type", "veth", "peer", "name", "eth0", "netns", own)
        self._in_switch("link", "set", host, "master", "bridge", "up")
        _ip("-n", own, "address", "add", f"{self.addresses[host]}/24", "dev", "eth0")
        _ip("-n", own, "link", "set", "eth0", "up")

    def _in_switch(self, *arguments: str) -> None:
        _ip("-n", self._switch, *arguments)


class ConnectionInside(http.client.HTTPConnection):
    """A connection that begins in a network namespace, like that of a device next to a host."""

    def __init__(self, namespace: str, port: int, timeout: float) -> None:
        super().__init__("127.0.0.1", port, timeout=timeout)
        self._namespace = namespace

    def connect(self) -> None:
        """Connect. The socket stays in the namespace; the thread leaves it."""
        with _inside(self._namespace):
            super().connect()


@contextmanager
def _inside(namespace: str) -> Iterator[None]:
    """Move this thread into a network namespace during the block."""
    current, named = Path("/proc/thread-self/ns/net"), Path(_NAMES, namespace)
    with current.open() as before, named.open() as wanted:
        _enter(wanted.fileno())
        try:
            yield
        finally:
            _enter(before.fileno())


def _enter(descriptor: int) -> None:
    if _libc.setns(descriptor, _NEW_NETWORK):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
