"""Paths of sockets on other hosts of a cluster."""

from __future__ import annotations

from pathlib import Path

PEERS = "peers"
"""The socket in the folder `run` that leads to sockets of other hosts
(`cluster/links/tunnels.py`)."""
HOSTS = "hosts"
"""The file in the folder `run` with the list of hosts, and with the hosts that run projects."""
MQTT_SOCKET = "mqtt"
"""The socket in the folder `run` on which the MQTT gateway receives messages of other hosts."""
FACTS = "cluster_facts"
"""The file in the folder `run` with the reports of all hosts; `fb-cluster` writes it each
second."""
HTTP_SOCKET = "http"
"""The socket in the folder `run` on which the HTTP gateway receives requests of other hosts."""


def remote_path(run_dir: Path, host: str, socket: str) -> str:
    """Return the path of a socket on another host, for a link of a gateway."""
    return f"{run_dir / PEERS}\n{host} {socket}"


def split_path(path: str) -> tuple[str, bytes]:
    """Return the path to connect to, and the first bytes to send; see `remote_path`."""
    here, _, there = path.partition("\n")
    return here, f"{there}\n".encode() if there else b""
