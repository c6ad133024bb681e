"""Parse `host[:port]` into a normalized form that can be compared.

Source: RFC 3986, 3.2; RFC 9110, 4.2.3, for default ports.
"""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

_LONGEST = 300  # a host name has at most 253 characters
_PORTS_LEFT_OUT = frozenset({"80", "443"})
_HOST = re.compile(r"[a-z0-9._-]++", re.ASCII)
_PORT = re.compile(r"[0-9]{1,5}+", re.ASCII)


class HostPort(NamedTuple):
    """A normalized host and port.

    The host is in lower case; an IPv6 address has no brackets and is in its shortest form. The
    port is "" for 80 and 443, because clients omit the default ports of http and https.
    """

    host: str
    port: str

    @property
    def is_loopback(self) -> bool:
        """Return whether the host is `localhost` or a loopback address."""
        return self.host == "localhost" or is_loopback(self.host)


def is_loopback(address: str) -> bool:
    """Return whether the text is a loopback IP address (without brackets).

    On a port for both IP versions, the address of an IPv4 client is `::ffff:127.0.0.1`.
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    return (getattr(parsed, "ipv4_mapped", None) or parsed).is_loopback


def read_host_port(text: str) -> HostPort | None:
    """Parse the host and port of a `Host` header or of a sign-in message.

    Non-ASCII letters are refused: browsers send such names in their ASCII form, and the lower
    case of some non-ASCII letters is an ASCII letter.

    Returns:
        The normalized host and port; None when the text is not of the form `host[:port]`.
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
