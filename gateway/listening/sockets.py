"""Listening sockets."""

from __future__ import annotations

import socket

from fieldbrook.core.errors import SettingsError

_BACKLOG = 1_024
_UNREAD_LIMIT_MS = 60_000


def bind(address: str, port: int, *, shared: bool) -> socket.socket:
    """Bind a socket and listen on it.

    Args:
        address: an IPv4 or IPv6 address.
        port: the TCP port.
        shared: whether several gateway processes may listen on the same port.

    Raises:
        SettingsError: the port is taken or the address does not belong to this machine.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # asyncio sets TCP_NODELAY only on sockets whose protocol is named. With Nagle's algorithm,
    # pipelined answers wait 40 ms for the client's delayed acknowledgement.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listening.setblocking(False)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # Each connection inherits this: the kernel closes a connection whose client does not
        # read its answer for this long, whatever the request was.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_LIMIT_MS)
    try:
        listening.bind((address, port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise SettingsError(reason=f"port {port} on {address}: {error.strerror}") from error
    return listening
