"""The hosts of a cluster."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

import msgspec

from fieldbrook.core.errors import SettingsError

QUORUM_HOSTS = 3
"""The size of the smallest cluster. With two hosts, neither could find out whether the other one is
dead or disconnected."""

PINS_LIMIT = 1_000
"""The limit of pinned projects. The list is limited because each host sends it to all others."""

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


def is_host_name(name: str) -> bool:
    """Return whether this is a valid host name, for certificates and messages between hosts."""
    return _NAME.fullmatch(name) is not None


class Host(msgspec.Struct, frozen=True):
    """One host.

    Attributes:
        name: the name, which no other host may get, even after this host was removed.
        address: the address at which other hosts reach it.
        port: the port for connections between hosts.
        engine_port: the port for connections between replication engines.
    """

    name: str
    address: str
    port: int
    engine_port: int


class Membership(msgspec.Struct, frozen=True):
    """One host's copy of the list of hosts.

    Attributes:
        cluster: the id of the cluster.
        me: the name of this host.
        hosts: all hosts, in the order in which they joined; the first one has founded the cluster.
        formed: whether the cluster has had enough hosts, so that projects are replicated.
        gone: names of hosts that were removed.
        drained: names of hosts that may own no projects.
        pins: ids of projects, each with the name of the host that owns it whenever that is up.
        version: increases by one with each change after the cluster has formed.
    """

    cluster: str
    me: str
    hosts: tuple[Host, ...]
    formed: bool = False
    gone: tuple[str, ...] = ()
    drained: tuple[str, ...] = ()
    pins: tuple[tuple[int, str], ...] = ()
    version: int = 0

    @property
    def is_founder(self) -> bool:
        """Whether this host has founded the cluster."""
        return self.hosts[0].name == self.me

    @property
    def myself(self) -> Host:
        """This host."""
        return self.host(self.me)

    @property
    def others(self) -> tuple[Host, ...]:
        """All other hosts."""
        return tuple(host for host in self.hosts if host.name != self.me)

    def host(self, name: str) -> Host:
        """Return the host with this name, which must exist."""
        return next(host for host in self.hosts if host.name == name)

    def why_not(self, host: Host) -> str:
        """Return why a host may not join; an empty text if it may."""
        if not is_host_name(host.name):
            return (
                f"{host.name!r} is not a valid host name: use up to 63 letters, digits, dots and "
                "hyphens, with --host-name"
            )
        known = {each.name: each for each in self.hosts}
        if host.name in self.gone:
            return (
                f"the name {host.name!r} belonged to a removed host, and names cannot be used "
                "again: choose another one with --host-name"
            )
        if host.name in known and known[host.name] != host:
            return f"the cluster already has a host {host.name!r} at {known[host.name].address}"
        for other in self.hosts:
            if other.name == host.name or other.address != host.address:
                continue
            for port in {host.port, host.engine_port} & {other.port, other.engine_port}:
                return f"host {other.name!r} already uses the address {host.address}:{port}"
        return ""

    def joined(self, host: Host) -> Membership:
        """Return the cluster with one more host."""
        if any(each.name == host.name for each in self.hosts):
            return self
        hosts = (*self.hosts, host)
        formed = self.formed or len(hosts) >= QUORUM_HOSTS
        return msgspec.structs.replace(self, hosts=hosts, formed=formed)

    def is_newer(self, than: Membership) -> bool:
        """Return whether this list is newer than another one of the same cluster."""
        return (self.version, len(self.hosts)) > (than.version, len(than.hosts))

    def without_projects(self, name: str) -> Membership:
        """Return the cluster with a drained host, which may own no projects.

        Raises:
            SettingsError: it has no such host, or no other host is left for the projects.
        """
        self._require(name)
        if name in self.drained:
            return self
        drained = (*self.drained, name)
        if len(drained) == len(self.hosts):
            raise SettingsError(
                reason="all other hosts are drained, and one host must run the projects"
            )
        return msgspec.structs.replace(self, drained=drained)

    def with_projects(self, name: str) -> Membership:
        """Return the cluster with a host that is not drained any more.

        Raises:
            SettingsError: it has no such host.
        """
        self._require(name)
        drained = tuple(each for each in self.drained if each != name)
        return msgspec.structs.replace(self, drained=drained)

    def pinned(self, project_id: int, name: str, gone: Iterable[int] = ()) -> Membership:
        """Return the cluster with a project that a host owns whenever it is up.

        Args:
            project_id: the project.
            name: the name of the host.
            gone: projects that do not exist any more; their pins are removed.

        Raises:
            SettingsError: it has no such host, or `PINS_LIMIT` projects are pinned.
        """
        self._require(name)
        pins = self.unpinned(project_id, *gone).pins
        if len(pins) >= PINS_LIMIT:
            raise SettingsError(reason=f"{PINS_LIMIT:,} projects are pinned, which is the limit")
        return msgspec.structs.replace(self, pins=(*pins, (project_id, name)))

    def unpinned(self, *project_ids: int) -> Membership:
        """Return the cluster with projects that any host may own again."""
        pins = tuple(pin for pin in self.pins if pin[0] not in project_ids)
        return msgspec.structs.replace(self, pins=pins)

    def removed(self, name: str, silent: Collection[str]) -> Membership:
        """Return the cluster without a host that will never return.

        Args:
            name: the name of the host.
            silent: the names of hosts without recent heartbeats.

        Raises:
            SettingsError: it has no such host, the host is up, or another host is silent.
        """
        self._require(name)
        if name not in silent:
            raise SettingsError(
                reason=f"host {name!r} is up: stop it permanently before you remove it"
            )
        others = sorted(set(silent) - {name})
        if others:
            raise SettingsError(
                reason=f"host {others[0]!r} is silent, too: all other hosts must be up"
            )
        return msgspec.structs.replace(
            self,
            hosts=tuple(host for host in self.hosts if host.name != name),
            drained=tuple(each for each in self.drained if each != name),
            pins=tuple(pin for pin in self.pins if pin[1] != name),
            gone=(*self.gone, name),
        )

    def _require(self, name: str) -> None:
        if name in self.gone:
            raise SettingsError(reason=f"host {name!r} was removed already")
        if all(host.name != name for host in self.hosts):
            names = ", ".join(host.name for host in self.hosts)
            raise SettingsError(reason=f"the cluster has no host {name!r}; it has {names}")
