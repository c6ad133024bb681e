"""The hosts of a cluster."""

from __future__ import annotations

import re
from collections.abc import Collection

import msgspec

from fieldbrook.core.errors import SettingsError

QUORUM_HOSTS = 3
"""The smallest cluster: of two hosts, neither can know whether the other one is dead or cut off."""


_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


def is_host_name(name: str) -> bool:
    """Whether a host may have this name: it is in certificates, and in lines between hosts."""
    return _NAME.fullmatch(name) is not None


class Host(msgspec.Struct, frozen=True):
    """One host.

    Attributes:
        name: never given to another host, not even after this one is gone.
        address: where other hosts reach it.
        port: of connections between hosts.
        engine_port: of connections between the engines.
    """

    name: str
    address: str
    port: int
    engine_port: int


class Membership(msgspec.Struct, frozen=True):
    """A cluster as one of its hosts knows it.

    Attributes:
        cluster: the id of the cluster.
        me: the name of this host.
        hosts: all hosts, in the order in which they joined; the first one has founded the cluster.
        formed: whether there were enough hosts once, so that projects are replicated.
        gone: names of hosts that were removed.
        drained: names of hosts that get no projects.
        version: grows by one with each change since the cluster has formed.
    """

    cluster: str
    me: str
    hosts: tuple[Host, ...]
    formed: bool = False
    gone: tuple[str, ...] = ()
    drained: tuple[str, ...] = ()
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
        """Return why a host may not join; empty when it may."""
        if not is_host_name(host.name):
            return (
                f"{host.name!r} is no name of a host: use up to 63 letters, digits, dots and "
                "hyphens, with --host-name"
            )
        known = {each.name: each for each in self.hosts}
        if host.name in self.gone:
            return (
                f"the name {host.name!r} belonged to a host that was removed; names are never "
                "used again: choose another one with --host-name"
            )
        if host.name in known and known[host.name] != host:
            return f"the cluster has a host {host.name!r} at {known[host.name].address} already"
        for other in self.hosts:
            if other.name == host.name or other.address != host.address:
                continue
            for port in {host.port, host.engine_port} & {other.port, other.engine_port}:
                return f"host {other.name!r} has the address {host.address}:{port} already"
        return ""

    def joined(self, host: Host) -> Membership:
        """Return the cluster with one more host."""
        if any(each.name == host.name for each in self.hosts):
            return self
        hosts = (*self.hosts, host)
        formed = self.formed or len(hosts) >= QUORUM_HOSTS
        return msgspec.structs.replace(self, hosts=hosts, formed=formed)

    def is_newer(self, than: Membership) -> bool:
        """Whether this is a later list of hosts than another one of the same cluster."""
        return (self.version, len(self.hosts)) > (than.version, len(than.hosts))

    def without_projects(self, name: str) -> Membership:
        """Return the cluster with a host that gets no projects.

        Raises:
            SettingsError: it has no such host, or no other host is left for the projects.
        """
        self._require(name)
        if name in self.drained:
            return self
        drained = (*self.drained, name)
        if len(drained) == len(self.hosts):
            raise SettingsError(reason="all other hosts are drained: one has to run the projects")
        return msgspec.structs.replace(self, drained=drained)

    def with_projects(self, name: str) -> Membership:
        """Return the cluster with a host that gets projects again.

        Raises:
            SettingsError: it has no such host.
        """
        self._require(name)
        drained = tuple(each for each in self.drained if each != name)
        return msgspec.structs.replace(self, drained=drained)

    def removed(self, name: str, silent: Collection[str]) -> Membership:
        """Return the cluster without a host that is gone for good.

        Args:
            name: the host.
            silent: the hosts that are not heard.

        Raises:
            SettingsError: it has no such host, the host is there, or another one is not.
        """
        self._require(name)
        if name not in silent:
            raise SettingsError(
                reason=f"host {name!r} is there: stop it for good before it is removed"
            )
        others = sorted(set(silent) - {name})
        if others:
            raise SettingsError(
                reason=f"host {others[0]!r} is silent, too: all other hosts have to be there"
            )
        return msgspec.structs.replace(
            self,
            hosts=tuple(host for host in self.hosts if host.name != name),
            drained=tuple(each for each in self.drained if each != name),
            gone=(*self.gone, name),
        )

    def _require(self, name: str) -> None:
        if name in self.gone:
            raise SettingsError(reason=f"host {name!r} was removed already")
        if all(host.name != name for host in self.hosts):
            names = ", ".join(host.name for host in self.hosts)
            raise SettingsError(reason=f"the cluster has no host {name!r}; it has {names}")
