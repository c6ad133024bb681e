"""Placement: the owner host of each name; hosts that see the same hosts compute the same owner.

Rendezvous hashing: each name has an order of all hosts, and the first of these hosts that is up
owns it. So when a host fails or returns, only the names that it owns move.

Source: D. Thaler and C. Ravishankar, A Name-Based Mapping Scheme for Rendezvous, 1996.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping

REGISTRY = "registry"


def project_name(project_id: int) -> str:
    """Return the name under which a project is placed."""
    return f"project {project_id}"


def project_home(project_id: int, hosts: Collection[str], pins: Mapping[int, str]) -> str:
    """Return the host that owns a project.

    Args:
        project_id: the project.
        hosts: the names of the hosts that are up; at least one.
        pins: by project: the host that owns it whenever that is up.
    """
    pinned = pins.get(project_id, "")
    return pinned if pinned in hosts else home(project_name(project_id), hosts)


def home(name: str, hosts: Collection[str]) -> str:
    """Return the host that owns `name`.

    Args:
        name: the name of a project (`project_name`) or `REGISTRY`.
        hosts: the names of the hosts that are up; at least one.
    """
    return max(hosts, key=lambda host: (_weight(name, host), host))


def _weight(name: str, host: str) -> bytes:
    return hashlib.blake2b(f"{name}\0{host}".encode(), digest_size=8).digest()
