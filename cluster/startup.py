"""Prepares a node before its start: founds a cluster, joins one, or does nothing."""

from __future__ import annotations

import logging
import socket

from fieldbrook.cluster import hosts_file, joining
from fieldbrook.cluster.engine import find_program
from fieldbrook.cluster.identity import Identity
from fieldbrook.core.cluster.membership import Host, Membership, is_host_name
from fieldbrook.core.errors import SettingsError
from fieldbrook.core.settings import Settings
from fieldbrook.security import node_secrets

log = logging.getLogger(__name__)


def prepare(settings: Settings) -> Membership | None:
    """Found or join a cluster according to the settings, unless the data folder belongs to one.

    A host that joins then waits in `joining.await_forming` until the cluster has enough hosts.

    Returns:
        The list of hosts; None if this node belongs to no cluster.

    Raises:
        SettingsError: the settings contradict each other, or the cluster refuses this host.
    """
    data = settings.data
    hosts_file.require_member(data)
    known = hosts_file.load(data)
    if known is None and settings.cluster_bind is None:
        if settings.join is not None:
            raise SettingsError(
                reason="the setting join requires cluster_bind, the address of this host"
            )
        return None
    find_program()
    if settings.chains:
        raise SettingsError(
            reason="a cluster does not support chains yet: remove the setting chains"
        )
    if known is None:
        known = _join(settings) if settings.join else _found(settings)
    return known


def _host(settings: Settings) -> Host:
    assert settings.cluster_bind is not None
    name = settings.host_name or socket.gethostname()
    if not is_host_name(name):
        raise SettingsError(
            reason=f"{name!r} is not a valid host name: choose another one with --host-name"
        )
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
    identity.store_own(identity.issue(host.name, host.address))
    founded = Membership(hosts_file.new_cluster_id(), host.name, (host,))
    hosts_file.save(data, founded)
    return founded


def _join(settings: Settings) -> Membership:
    data = settings.data
    if settings.join is None or settings.join_token is None:
        raise SettingsError(
            reason="the setting join requires join_token: get one with `fieldbrook cluster invite` "
            "on a host of the cluster"
        )
    if any((data / "projects").glob("*")):
        raise SettingsError(
            reason=f"the data folder {data} has projects: only a node with an empty one can join a "
            "cluster"
        )
    address, _, port = settings.join.rpartition(":")
    if not address or not port.isdecimal():
        raise SettingsError(reason=f"join must be ADDRESS:PORT, not {settings.join!r}")
    joined = joining.join(
        data, (address.strip("[]"), int(port)), settings.join_token, _host(settings)
    )
    log.info("joined the cluster of %s", ", ".join(host.name for host in joined.hosts))
    return joined
