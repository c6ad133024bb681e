"""Listening sockets.

The node's main process holds the sockets of all ports, and its forks use them. While a gateway
restarts, clients wait in the system's queue instead of being refused. A host of a cluster only
reserves its ports until its gateways serve: refused clients use another host at once.
"""

from __future__ import annotations

import socket
from contextlib import suppress

from fieldbrook.core.errors import SettingsError
from fieldbrook.system import kernel

_BACKLOG = 1_024
_UNREAD_LIMIT_MS = 60_000


_held: dict[tuple[str, int, int], socket.socket] = {}


def hold(address: str, port: int, processes: int = 1, *, listens: bool) -> None:
    """Bind a port once for each of `processes` later forks.

    Args:
        address: an IPv4 or IPv6 address.
        port: the TCP port.
        processes: the number of forks that use the port.
        listens: whether clients wait until a fork serves them; otherwise the system refuses them
            until then.

    Raises:
        SettingsError: see `bind`.
    """
    if not kernel.BALANCES_PORTS:
        held = _bind(address, port, shared=False, listens=listens)
        _held.update({(address, port, slot): held for slot in range(processes)})
        return
    for slot in range(processes):
        _held[address, port, slot] = _bind(address, port, shared=processes > 1, listens=listens)


def stop_listening() -> None:
    """Make the system refuse new connections to the held ports, in all processes that have them
    open."""
    for listening in _held.values():
        refuse(listening)


def refuse(listening: socket.socket) -> None:
    """Make the system refuse new connections to a socket, in all processes that have it open."""
    with suppress(OSError):  # the socket does not listen
        listening.shutdown(socket.SHUT_RDWR)


def release() -> None:
    """Close the held sockets, so that their ports can be held again."""
    stop_listening()
    for held in _held.values():
        held.close()
    _held.clear()


def bind(address: str, port: int, *, shared: bool, slot: int = 0) -> socket.socket:
    """Return a socket that listens on a port; if a held socket exists, return it.

    Args:
        address: an IPv4 or IPv6 address.
        port: the TCP port.
        shared: whether several gateway processes may listen on the same port.
        slot: the number of this process among these processes.

    Raises:
        SettingsError: the port is taken or the address does not belong to this machine.
    """
    held = _held.get((address, port, slot))
    if held is None:
        return _bind(address, port, shared=shared)
    listening = held.dup()
    _listen(listening, address, port)
    return listening


def _bind(address: str, port: int, *, shared: bool, listens: bool = True) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # asyncio sets TCP_NODELAY only on sockets whose protocol is named. With Nagle's algorithm,
    # pipelined answers wait 40 ms for the client's delayed acknowledgement.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.setblocking(False)
    # Each connection inherits this: the kernel closes a connection whose client does not
    # read its answer for this long, whatever the request was.
    kernel.limit_unread(bound, _UNREAD_LIMIT_MS)
    try:
        bound.bind((address, port))
    except OSError as error:
        bound.close()
        raise _unusable(address, port, error) from error
    if listens:
        _listen(bound, address, port)
    return bound


def _listen(bound: socket.socket, address: str, port: int) -> None:
    try:
        bound.listen(_BACKLOG)
    except OSError as error:  # another program uses the port
        bound.close()
        raise _unusable(address, port, error) from error


def _unusable(address: str, port: int, error: OSError) -> SettingsError:
    return SettingsError(reason=f"port {port} on {address}: {error.strerror}")
