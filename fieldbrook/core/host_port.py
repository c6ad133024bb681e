"""A host and its port, `host[:port]`, in a form that can be compared.

Source: RFC 3986, 3.2; RFC 9110, 4.2.3, for ports that may be left out.
"""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

_LONGEST = 300  # a host name has 253 characters at most
_PORTS_LEFT_OUT = frozenset({"80", "443"})
_HOST = re.compile(r"[a-z0-9._-]++", re.ASCII)
_PORT = re.compile(r"[0-9]{1,5}+", re.ASCII)


class HostPort(NamedTuple):
    """A host in lower case, an IPv6 address without brackets and in its shortest form, and its
    port; "" for those of http and https, which clients leave out."""

    host: str
    port: str

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine itself is reached by it."""
        return self.host == "localhost" or is_loopback(self.host)


def is_loopback(address: str) -> bool:
    """Whether an IP address, without brackets, is one of the loopback."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def read_host_port(text: str) -> HostPort | None:
    """The host and port in `text`, of a `Host` header or a sign-in message; None when it is
    of another form.

    Letters beyond ASCII are refused: browsers send such names in their ASCII form, and some
    of those letters have an ASCII one as their lower case.
    """
    if len(text) > _LONGEST or not text.isascii():
        return None
    text = text.lower()
    if text.startswith("["):
        inner, bracket, rest = text[1:].partition("]")
        host = _ipv6(inner) if bracket else ""
    else:
        host, colon, port = text.partition(":")
        host, rest = host if _HOST.fullmatch(host) else "", colon + port
    if not host or (rest and not rest.startswith(":")):
        return None
    port = rest[1:]
    if port:
        if not _PORT.fullmatch(port) or not 1 <= int(port) <= 65_535:
            return None
        port = str(int(port))
    return HostPort(host, "" if port in _PORTS_LEFT_OUT else port)


def _ipv6(text: str) -> str:
    try:
        return "" if "%" in text else ipaddress.IPv6Address(text).compressed
    except ValueError:
        return ""
