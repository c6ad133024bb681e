"""What a node does about its cluster before it starts: found one, join one, or nothing."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable

from fieldbrook.cluster import hosts_file, joining
from fieldbrook.cluster.engine import find_program
from fieldbrook.cluster.identity import Identity
from fieldbrook.core.cluster.membership import Host, Membership, is_host_name
from fieldbrook.core.errors import SettingsError
from fieldbrook.core.settings import Settings
from fieldbrook.security import node_secrets

log = logging.getLogger(__name__)


def prepare(settings: Settings, stops: Callable[[], bool]) -> Membership | None:
    """Found or join a cluster as the settings say, unless that was done before.

    A host that joins waits until there are enough of them.

    Returns:
        The cluster; None when this node is in none.

    Raises:
        SettingsError: the settings do not fit, or the cluster refuses this host.
    """
    data = settings.data
    hosts_file.require_member(data)
    known = hosts_file.load(data)
    if known is None and settings.cluster_bind is None:
        if settings.join is not None:
            raise SettingsError(reason="join needs cluster_bind, the address of this host")
        return None
    find_program()
    if settings.chains:
        raise SettingsError(reason="chains do not run on a cluster yet: remove the setting chains")
    if known is None:
        known = _join(settings) if settings.join else _found(settings)
    if not known.formed and not known.is_founder:
        known = joining.await_forming(data, known, stops)
    return known


def _host(settings: Settings) -> Host:
    assert settings.cluster_bind is not None
    name = settings.host_name or socket.gethostname()
    if not is_host_name(name):
        raise SettingsError(reason=f"{name!r} is no name of a host: choose one with --host-name")
    return Host(
        name,
        settings.cluster_bind,
        settings.cluster_port,
        settings.engine_port,
    )


def _found(settings: Settings) -> Membership:
    data, host = settings.data, _host(settings)
    for name in joining.SHARED_SECRETS:
        node_secrets.load_or_create_key(data / "secrets", name)
    identity = Identity(data)
    identity.create_authority()
    identity.keep(identity.issue(host.name, host.address))
    founded = Membership(hosts_file.new_cluster_id(), host.name, (host,))
    hosts_file.save(data, founded)
    return founded


def _join(settings: Settings) -> Membership:
    data = settings.data
    if settings.join is None or settings.join_token is None:
        raise SettingsError(reason="join needs join_token; the cluster tells it")
    if any((data / "projects").glob("*")):
        raise SettingsError(
            reason=f"{data} has projects: only a node with an empty data folder can join a cluster"
        )
    address, _, port = settings.join.rpartition(":")
    if not address or not port.isdecimal():
        raise SettingsError(reason=f"join must be ADDRESS:PORT, not {settings.join!r}")
    joined = joining.join(
        data, (address.strip("[]"), int(port)), settings.join_token, _host(settings)
    )
    log.info("joined the cluster of %s", ", ".join(host.name for host in joined.hosts))
    return joined
