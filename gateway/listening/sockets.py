"""Listening sockets.

The node's main process holds those of all ports, and its forks use them. While a gateway is started
again, clients wait in the system's queue instead of being refused.
"""

from __future__ import annotations

import socket
from contextlib import suppress

from fieldbrook.core.errors import SettingsError
from fieldbrook.system import kernel

_BACKLOG = 1_024
_UNREAD_LIMIT_MS = 60_000


_held: dict[tuple[str, int, int], socket.socket] = {}


def hold(address: str, port: int, processes: int = 1) -> None:
    """Bind a port once for each of `processes` later forks, and listen on it.

    Raises:
        SettingsError: see `bind`.
    """
    if not kernel.BALANCES_PORTS:
        listening = _bind(address, port, shared=False)
        _held.update({(address, port, slot): listening for slot in range(processes)})
        return
    for slot in range(processes):
        _held[address, port, slot] = _bind(address, port, shared=processes > 1)


def stop_listening() -> None:
    """Have the system refuse new connections to the held ports, whoever has them open."""
    for listening in _held.values():
        with suppress(OSError):  # it was done before
            listening.shutdown(socket.SHUT_RDWR)


def bind(address: str, port: int, *, shared: bool, slot: int = 0) -> socket.socket:
    """Return a socket that listens on a port; the held one, if there is one.

    Args:
        address: an IPv4 or IPv6 address.
        port: the TCP port.
        shared: whether several gateway processes may listen on the same port.
        slot: the number of this process among those.

    Raises:
        SettingsError: the port is taken or the address does not belong to this machine.
    """
    held = _held.get((address, port, slot))
    return _bind(address, port, shared=shared) if held is None else held.dup()


def _bind(address: str, port: int, *, shared: bool) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # asyncio sets TCP_NODELAY only on sockets whose protocol is named. With Nagle's algorithm,
    # pipelined answers wait 40 ms for the client's delayed acknowledgement.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listening.setblocking(False)
    # Each connection inherits this: the kernel closes a connection whose client does not
    # read its answer for this long, whatever the request was.
    kernel.limit_unread(listening, _UNREAD_LIMIT_MS)
    try:
        listening.bind((address, port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise SettingsError(reason=f"port {port} on {address}: {error.strerror}") from error
    return listening
