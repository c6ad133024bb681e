"""The hosts of the cluster as a gateway sees them: which of them runs a project."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

from fieldbrook.actors.remote_path import FACTS, HOSTS
from fieldbrook.core.cluster import placement
from fieldbrook.core.cluster.facts import Facts
from fieldbrook.core.errors import OwnedElsewhereError


class KnownHost(msgspec.Struct, frozen=True):
    """A host as the process of this host that knows the others sees it.

    Attributes:
        name: its name.
        address: where other hosts reach it, with the port.
        state: `up`, `catching_up`, `drained`, `silent`, or `waiting` before the cluster has enough
            hosts.
    """

    name: str
    address: str
    state: str


class KnownHosts(msgspec.Struct, frozen=True):
    """All hosts, and to which of them projects belong.

    Attributes:
        me: the name of this host.
        hosts: all hosts.
        owners: the names of those to which projects belong now.
        elsewhere: by project: the host that still runs it, if it belongs to another one.
        pins: by project: the host to which it belongs whenever that is one of `owners`.
    """

    me: str
    hosts: list[KnownHost]
    owners: list[str]
    elsewhere: dict[int, str] = {}
    pins: dict[int, str] = {}

    def host_of(self, project_id: int) -> str:
        """Return the host that owns a project; this one as long as the cluster has not formed."""
        if not self.owners:
            return self.me
        return self.elsewhere.get(project_id) or placement.project_home(
            project_id, self.owners, self.pins
        )


class _Read(NamedTuple):
    changed_ns: int
    hosts: KnownHosts | None


class ClusterHosts:
    """Reads what the process that knows the other hosts has written.

    Args:
        run_dir: the folder of the file; None for a node in no cluster.
    """

    def __init__(self, run_dir: Path | None) -> None:
        self._path = None if run_dir is None else run_dir / HOSTS
        self._read = _Read(0, None)

    def known(self) -> KnownHosts | None:
        """Return all hosts; None when the node is in no cluster."""
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
        """Return what all hosts tell of themselves; None when the node is in no cluster."""
        if self._path is None:
            return None
        try:
            return msgspec.json.decode(self._path.with_name(FACTS).read_bytes(), type=Facts)
        except (OSError, msgspec.MsgspecError):
            return None

    @property
    def is_member(self) -> bool:
        """Whether projects may be owned by other hosts."""
        known = self.known()
        return known is not None and bool(known.owners)

    def owner(self, project_id: int) -> str | None:
        """Return the other host that owns a project; None when this one does."""
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
