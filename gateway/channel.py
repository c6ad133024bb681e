"""Channel names: the project's name, to which later clients add a prefix, the id or address of the
account that owns it.

Source: interface document, 3.3 and 5.1.
"""

from __future__ import annotations

import re

_PREFIXES = ("aid_", "eth_")
_PREFIXED = re.compile(r"(?:aid_[0-9]{1,19}|eth_0x[0-9A-Fa-f]{40})_(.+)", re.DOTALL)


def project_name(channel: str) -> str:
    """Return the name of the project that a channel belongs to.

    Project names are unique in the node, so the prefix is not needed to find the project. The
    prefix is not compared with the account's id or address, because devices keep the prefix of an
    earlier node, where the account had another id. No project can have the name of a prefixed
    channel.
    """
    if channel.startswith(_PREFIXES):
        match = _PREFIXED.fullmatch(channel)
        if match is not None:
            return match[1]
    return channel


def aliases(name: str, account_id: int) -> tuple[str, ...]:
    """List the channels of a project, for a broker that needs the list in advance."""
    return (name, f"aid_{account_id}_{name}")
