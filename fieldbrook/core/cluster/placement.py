"""Placement: the owner of each name, equal on all hosts that see the same hosts.

Each name has an order of all hosts, and belongs to the first of them that is there. So when a
host goes or comes, only names that belong to it move (rendezvous hashing).

Source: D. Thaler and C. Ravishankar, A Name-Based Mapping Scheme for Rendezvous, 1996.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection

REGISTRY = "registry"


def project_name(project_id: int) -> str:
    """The name of a project as something that is owned."""
    return f"project {project_id}"


def home(name: str, hosts: Collection[str]) -> str:
    """Return the host that owns `name`.

    Args:
        name: of what is owned.
        hosts: the names of the hosts that are there; at least one.
    """
    return max(hosts, key=lambda host: (_weight(name, host), host))


def _weight(name: str, host: str) -> bytes:
    return hashlib.blake2b(f"{name}\0{host}".encode(), digest_size=8).digest()
