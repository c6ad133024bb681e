"""The host names that a browser may use for the dashboard: a defence against DNS rebinding.

A foreign page can make its own host name resolve to this node, and then read the node's answers. In
such a request the header `Host` contains the foreign name, so the request is refused.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from fieldbrook.core.host_port import read_host_port
from fieldbrook.security import tls


def is_dashboard_host(header: str, names: Sequence[str]) -> bool:
    """Return whether a browser may use this host for the dashboard.

    Args:
        header: the header `Host`; a client that is no browser may send none ("").
        names: names of the node, in lower case, with `*.` for any one label.

    Returns:
        True for `localhost` and its subdomains, for an IP address, which cannot be rebound, and for
        one of the names.
    """
    found = read_host_port(header)
    if found is None:
        return False
    host = found.host.removesuffix(".")
    if host == "localhost" or host.endswith(".localhost") or _is_address(host):
        return True
    return tls.covers(names, host)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
