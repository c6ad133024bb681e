"""The hosts of the node's cluster, changes of them, and tokens for new ones, for administrators.

Source: ours; the original interface has no such routes.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from fieldbrook.cluster import joining
from fieldbrook.cluster.identity import TOKEN_S, Identity
from fieldbrook.core.cluster.membership import QUORUM_HOSTS
from fieldbrook.core.errors import (
    HostChangeRefusedError,
    NotFoundError,
    SettingsError,
    UnavailableError,
)
from fieldbrook.gateway.links.cluster_hosts import KnownHosts
from fieldbrook.gateway.management.framework.route import Auth, Call, Route


class HostRow(msgspec.Struct, frozen=True, kw_only=True):
    """A host: `state` is `up`, `drained`, `silent`, or `waiting` for more hosts. It owns `projects`
    now."""

    name: str
    address: str
    state: str
    projects: int
    me: bool


class HostList(msgspec.Struct, frozen=True, kw_only=True):
    """All hosts. `missing` ones have to join first; `spare` ones may die."""

    data: list[HostRow]
    total: int
    missing: int
    spare: int


class Invitation(msgspec.Struct, frozen=True, kw_only=True):
    """A token for hosts that join at `address` within `expiresIn` seconds."""

    token: str
    address: str | UnsetType = UNSET
    expires_in: int = msgspec.field(name="expiresIn")


async def list_hosts(call: Call[None, None]) -> HostList:
    """The hosts of the node's cluster. 404 for a node that is in none."""
    known = _known(call)
    owned = dict.fromkeys((host.name for host in known.hosts), 0)
    for project in call.context.reader.projects():
        owner = call.context.cluster.owner(project.project_id) or known.me
        owned[owner] = owned.get(owner, 0) + 1
    rows = [
        HostRow(
            name=host.name,
            address=host.address,
            state=host.state,
            projects=owned[host.name],
            me=host.name == known.me,
        )
        for host in known.hosts
    ]
    up = sum(host.state in ("up", "drained") for host in known.hosts)
    return HostList(
        data=rows,
        total=len(rows),
        missing=max(0, QUORUM_HOSTS - len(rows)),
        spare=max(0, up - (len(rows) // 2 + 1)),
    )


async def drain(call: Call[None, None]) -> None:
    """Give a host no projects any more, and move those that it runs to others."""
    await _change(call, "drain")


async def undrain(call: Call[None, None]) -> None:
    """Give a drained host projects again."""
    await _change(call, "undrain")


async def forget(call: Call[None, None]) -> None:
    """Remove a host that is gone for good; its name is never used again."""
    await _change(call, "forget")


async def invite(call: Call[None, None]) -> Invitation:
    """Make a token with which other hosts can join the node's cluster for an hour."""
    known = _known(call)
    return Invitation(
        token=Identity(call.context.settings.data).token(),
        address=known.hosts[0].address,
        expires_in=TOKEN_S,
    )


async def _change(call: Call[None, None], what: str) -> None:
    """Have the process of this host that knows the others change the list of hosts."""
    known = _known(call)
    address = next(host.address for host in known.hosts if host.name == known.me)
    host, _, port = address.rpartition(":")
    context = Identity(call.context.settings.data).client_context()
    question = {"op": "change", "what": what, "host": call.path["name"]}
    try:
        answer = await joining.ask((host, int(port)), context, question)
    except SettingsError as error:
        raise UnavailableError(what=str(error)) from error
    if "refused" in answer:
        raise HostChangeRefusedError(reason=str(answer["refused"]))


def _known(call: Call[None, None]) -> KnownHosts:
    known = call.context.cluster.known()
    if known is None:
        raise NotFoundError(
            what="the node is in no cluster: start it with the setting cluster_bind"
        )
    return known


ROUTES: tuple[Route, ...] = (
    Route("GET", "/cluster", "ListClusterHosts", list_hosts, Auth.ADMIN),
    Route("POST", "/cluster/hosts/{name}/drain", "DrainClusterHost", drain, Auth.ADMIN),
    Route("DELETE", "/cluster/hosts/{name}/drain", "UndrainClusterHost", undrain, Auth.ADMIN),
    Route("DELETE", "/cluster/hosts/{name}", "RemoveClusterHost", forget, Auth.ADMIN),
    Route("POST", "/cluster/invitation", "InviteClusterHost", invite, Auth.ADMIN),
)
