"""Paths of sockets on other hosts of a cluster."""

from __future__ import annotations

from pathlib import Path

PEERS = "peers"
"""The socket in the folder `run` from which connections to other hosts begin."""
HOSTS = "hosts"
"""The file in the folder `run` with what this host knows of the others."""
MQTT_SOCKET = "mqtt"
"""The socket in the folder `run` where the MQTT gateway takes messages from other hosts."""
FACTS = "cluster_facts"
"""The file in the folder `run` with what all hosts tell of themselves, written each second."""
HTTP_SOCKET = "http"
"""The socket in the folder `run` where the HTTP gateway takes requests from other hosts."""


def remote_path(run_dir: Path, host: str, socket: str) -> str:
    """Return the path, for a link of a gateway, of a socket on another host."""
    return f"{run_dir / PEERS}\n{host} {socket}"


def split_path(path: str) -> tuple[str, bytes]:
    """Return the path to connect to, and what to send first; see `remote_path`."""
    here, _, there = path.partition("\n")
    return here, f"{there}\n".encode() if there else b""
