"""The hosts that applets may call: the rules of the setting `api_hosts`.

An entry is a host name or an address, or `*.example.org` for every host below a domain.
A private or loopback address is allowed only if an entry names the host itself.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence


def is_allowed(host: str, entries: Sequence[str]) -> bool:
    """Return whether an entry covers the host."""
    host = host.lower().rstrip(".")
    return is_named(host, entries) or any(
        entry.startswith("*.") and host.endswith(entry[1:]) for entry in entries
    )


def is_named(host: str, entries: Sequence[str]) -> bool:
    """Return whether an entry names exactly this host."""
    return host.lower().rstrip(".") in entries


def is_public(address: str) -> bool:
    """Return whether an IP address is a public, unicast Internet address."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed).is_global and not parsed.is_multicast
