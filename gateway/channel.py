"""A channel's name: that of its project, or with its owner's prefix as later clients write it.

Source: interface document, 3.3 and 5.1.
"""

from __future__ import annotations

import re

_PREFIXES = ("aid_", "eth_")
_PREFIXED = re.compile(r"(?:aid_[0-9]{1,19}|eth_0x[0-9A-Fa-f]{40})_(.+)", re.DOTALL)


def project_name(channel: str) -> str:
    """The name of the project that a channel means.

    Names are unique in the node, so a prefix says nothing more; it is not compared with the
    owner's id or address, because devices carry it over from nodes where their project's
    owner had another. No project can be named like a prefixed channel.
    """
    if channel.startswith(_PREFIXES):
        match = _PREFIXED.fullmatch(channel)
        if match is not None:
            return match[1]
    return channel


def aliases(name: str, account_id: int) -> tuple[str, ...]:
    """The channels of a project, for a broker that must be told them beforehand."""
    return (name, f"aid_{account_id}_{name}")
