"""The hosts of the cluster, for gateways: which of them owns a project."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

from fieldbrook.actors.remote_path import FACTS, HOSTS
from fieldbrook.core.cluster import placement
from fieldbrook.core.cluster.facts import Facts
from fieldbrook.core.errors import OwnedElsewhereError


class KnownHost(msgspec.Struct, frozen=True):
    """A host, as reported by this host's process that watches the other hosts.

    Attributes:
        name: the name of the host.
        address: the address for other hosts, with the port.
        state: `up`, `catching_up`, `drained`, `silent`, or `waiting` before the cluster has enough
            hosts.
    """

    name: str
    address: str
    state: str


class KnownHosts(msgspec.Struct, frozen=True):
    """All hosts, and which of them own projects.

    Attributes:
        me: the name of this host.
        hosts: all hosts.
        owners: the names of the hosts that own projects now.
        elsewhere: by project: the host that still runs it, if another host owns it.
        pins: by project: the host that owns it whenever this host is one of `owners`.
    """

    me: str
    hosts: list[KnownHost]
    owners: list[str]
    elsewhere: dict[int, str] = {}
    pins: dict[int, str] = {}

    def host_of(self, project_id: int) -> str:
        """Return the host that owns a project; this host as long as the cluster has not formed."""
        if not self.owners:
            return self.me
        return self.elsewhere.get(project_id) or placement.project_home(
            project_id, self.owners, self.pins
        )


class _Read(NamedTuple):
    changed_ns: int
    hosts: KnownHosts | None


class ClusterHosts:
    """Reads the file in which the process that watches the other hosts describes them.

    Args:
        run_dir: the folder of the file; None for a node without a cluster.
    """

    def __init__(self, run_dir: Path | None) -> None:
        self._path = None if run_dir is None else run_dir / HOSTS
        self._read = _Read(0, None)

    def known(self) -> KnownHosts | None:
        """Return all hosts; None if the node belongs to no cluster."""
        if self._path is None:
            return None
        try:
            changed_ns = self._path.stat().st_mtime_ns
            if changed_ns != self._read.changed_ns:
                hosts = msgspec.json.decode(self._path.read_bytes(), type=KnownHosts)
                self._read = _Read(changed_ns, hosts)
        except (OSError, msgspec.MsgspecError):
            return self._read.hosts
        return self._read.hosts

    def facts(self) -> Facts | None:
        """Return the facts that all hosts report about themselves; None if the node belongs to no
        cluster."""
        if self._path is None:
            return None
        try:
            return msgspec.json.decode(self._path.with_name(FACTS).read_bytes(), type=Facts)
        except (OSError, msgspec.MsgspecError):
            return None

    @property
    def is_member(self) -> bool:
        """Return whether other hosts may own projects."""
        known = self.known()
        return known is not None and bool(known.owners)

    def owner(self, project_id: int) -> str | None:
        """Return the other host that owns a project; None if this host owns it."""
        known = self.known()
        if known is None:
            return None
        host = known.host_of(project_id)
        return None if host == known.me else host

    def require_here(self, project_id: int) -> None:
        """Refuse to read the store of a project that another host owns.

        Raises:
            OwnedElsewhereError: another host owns it.
        """
        host = self.owner(project_id)
        if host is not None:
            raise OwnedElsewhereError(project=project_id, host=host)
