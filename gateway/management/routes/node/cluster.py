"""The hosts of the node's cluster, changes of them, and tokens for new ones, for administrators.

Source: ours; the original interface has no such routes.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from fieldbrook.core.cluster import placement
from fieldbrook.core.cluster.facts import Facts
from fieldbrook.core.cluster.membership import QUORUM_HOSTS
from fieldbrook.core.errors import (
    HostChangeRefusedError,
    NotFoundError,
    SettingsError,
    UnavailableError,
)
from fieldbrook.gateway.links.cluster_hosts import KnownHosts
from fieldbrook.gateway.management.framework.binding import Paging, Text, json_key
from fieldbrook.gateway.management.framework.route import Auth, Call, Route
from fieldbrook.gateway.management.routes.accounts.access_keys import require_all_rights


class HostRow(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """A host, as the one that answers sees it.

    `state` is `up`, `catching_up`, `drained`, `silent`, or `waiting` for more hosts. It owns
    `projects` now, and `running` of them run. `load` is the load average of its machine over a
    minute, for each processor. It leads `streamsLed` of the `streamsHeld` streams of which it has a
    copy, and its copies lack `lagRecords`. `registryLag` is the number of changes of the registry
    that it lacks; `changesRegistry` marks the host that makes them. `silentS` are the seconds since
    it was heard, absent if it never was. Its clock is `clockAheadS` ahead of the one of the host
    that answers, give or take `clockErrorS`. What a silent host has told is from before.
    """

    name: str
    address: str
    state: str
    me: bool
    version: str | UnsetType = UNSET
    projects: int
    running: int | UnsetType = UNSET
    load: float | UnsetType = UNSET
    streams_led: int | UnsetType = UNSET
    streams_held: int | UnsetType = UNSET
    lag_records: int | UnsetType = UNSET
    registry_lag: int | UnsetType = UNSET
    changes_registry: bool
    silent_s: float | UnsetType = UNSET
    clock_ahead_s: float | UnsetType = UNSET
    clock_error_s: float | UnsetType = UNSET


class HostList(msgspec.Struct, frozen=True, kw_only=True):
    """All hosts. `missing` ones have to join first; `spare` ones may die. `outlook` says in words
    what the loss of one more would mean."""

    data: list[HostRow]
    total: int
    missing: int
    spare: int
    outlook: str


class OwnedProject(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """A project, and the `host` that owns it. `account` is the name of its owner. `pinnedTo` is the
    host that owns it whenever that is up, if an administrator has chosen one."""

    project: str
    project_id: str
    account: str
    host: str
    pinned_to: str | UnsetType = UNSET


class OwnedPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of projects by name; `total` counts all that match."""

    data: list[OwnedProject]
    total: int


class ListOwned(Paging, frozen=True, kw_only=True):
    """Projects of one host, or of all."""

    host: Text = ""


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """The host that owns a project whenever it is up."""

    host: Text


class Invitation(msgspec.Struct, frozen=True, kw_only=True):
    """A token for hosts that join at `address` within `expiresIn` seconds."""

    token: str
    address: str | UnsetType = UNSET
    expires_in: int = msgspec.field(name="expiresIn")


async def list_hosts(call: Call[None, None]) -> HostList:
    """The hosts of the node's cluster: their state, what each owns, leads and lacks, and what the
    loss of one more would mean. 404 for a node that is in none."""
    known, reader = _known(call), call.context.reader
    owned = await call.search(
        lambda: Counter(known.host_of(project.project_id) for project in reader.projects())
    )
    facts, now = call.context.cluster.facts(), time.monotonic()
    registry = placement.home(placement.REGISTRY, known.owners) if known.owners else known.me
    rows = [
        _with_facts(
            HostRow(
                name=host.name,
                address=host.address,
                state=host.state,
                me=host.name == known.me,
                projects=owned[host.name],
                changes_registry=host.name == registry,
            ),
            facts,
            now,
        )
        for host in known.hosts
    ]
    up = sum(host.state in ("up", "drained", "catching_up") for host in known.hosts)
    return HostList(
        data=rows,
        total=len(rows),
        missing=max(0, QUORUM_HOSTS - len(rows)),
        spare=max(0, up - (len(rows) // 2 + 1) if facts is None else facts.spare),
        outlook="" if facts is None else facts.outlook,
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


def _with_facts(row: HostRow, facts: Facts | None, now: float) -> HostRow:
    """Add the facts that the host has reported, if it has ever sent any."""
    found = [] if facts is None else [one for one in facts.hosts if one.name == row.name]
    if facts is None or not found or not found[0].heard:
        return row
    host = found[0]
    told = host.told
    replicated = bool(told.held)
    return msgspec.structs.replace(
        row,
        version=told.version or UNSET,
        running=told.running,
        load=told.load,
        streams_led=told.led if replicated else UNSET,
        streams_held=told.held if replicated else UNSET,
        lag_records=UNSET if host.lag is None else host.lag,
        registry_lag=host.registry_lag if told.registry else UNSET,
        silent_s=0.0 if row.me else round(facts.silence_s(host, now), 1),
        clock_ahead_s=_or_unset(host.clock_difference_s),
        clock_error_s=UNSET if host.clock_difference_s is None else round(host.clock_error_s, 3),
    )


def _or_unset(seconds: float | None) -> float | UnsetType:
    return UNSET if seconds is None else round(seconds, 3)


async def list_owned(call: Call[None, ListOwned]) -> OwnedPage:
    """Which host owns which project, by the names of the projects; query: one `host`."""
    known, query, reader = _known(call), call.query, call.context.reader

    def select() -> OwnedPage:
        accounts = {account.account_id: account.username for account in reader.accounts()}
        found = [
            project
            for project in sorted(reader.projects(), key=lambda one: one.name)
            if query.host in ("", known.host_of(project.project_id))
        ]
        end = None if query.size < 0 else query.offset + query.size
        data = [
            OwnedProject(
                project=project.name,
                project_id=str(project.project_id),
                account=accounts.get(project.account_id, ""),
                host=known.host_of(project.project_id),
                pinned_to=known.pins.get(project.project_id, UNSET),
            )
            for project in found[query.offset : end]
        ]
        return OwnedPage(data=data, total=len(found))

    return await call.search(select)


async def pin(call: Call[Pin, None]) -> None:
    """Move a project to a host, which owns it from then on whenever it is up."""
    known, project_id = _known(call), _project_id(call)
    gone = [each for each in known.pins if call.context.reader.project(each) is None]
    await _ask(call, {"what": "pin", "host": call.body.host, "project": project_id, "gone": gone})


async def unpin(call: Call[None, None]) -> None:
    """Let any host own a project again, as placement decides."""
    await _ask(call, {"what": "unpin", "project": _project_id(call)})


def _project_id(call: Call[Any, None]) -> int:
    name = call.path["project"]
    project = call.context.reader.project_named(name)
    if project is None:
        raise NotFoundError(what=f"there is no project {name!r}")
    return project.project_id


async def invite(call: Call[None, None]) -> Invitation:
    """Make a token with which other hosts can join the node's cluster for an hour.

    An access key needs all rights, because a host that has joined may do everything.
    """
    require_all_rights(call, "inviting a host")
    from fieldbrook.cluster.identity import TOKEN_S, Identity

    known = _known(call)
    return Invitation(
        token=Identity(call.context.settings.data).token(),
        address=known.hosts[0].address,
        expires_in=TOKEN_S,
    )


async def _change(call: Call[None, None], what: str) -> None:
    """Change the host that the path names."""
    await _ask(call, {"what": what, "host": call.path["name"]})


async def _ask(call: Call[Any, None], change: dict[str, Any]) -> None:
    """Ask this host's process that watches the other hosts to change the list of hosts.

    The modules are imported here, because a node without a cluster does not need them, and they
    take a tenth of its start.
    """
    from fieldbrook.cluster import joining
    from fieldbrook.cluster.identity import Identity

    known = _known(call)
    address = next(host.address for host in known.hosts if host.name == known.me)
    host, _, port = address.rpartition(":")
    context = Identity(call.context.settings.data).client_context()
    question = {"op": "change", **change}
    try:
        answer = await joining.ask((host, int(port)), context, question)
    except SettingsError as error:
        raise UnavailableError(what=str(error)) from error
    if "refused" in answer:
        raise HostChangeRefusedError(reason=str(answer["refused"]))


def _known(call: Call[Any, Any]) -> KnownHosts:
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
    Route("GET", "/cluster/projects", "ListOwnedProjects", list_owned, Auth.ADMIN),
    Route("PUT", "/cluster/projects/{project}/pin", "PinProject", pin, Auth.ADMIN),
    Route("DELETE", "/cluster/projects/{project}/pin", "UnpinProject", unpin, Auth.ADMIN),
    Route("POST", "/cluster/invitation", "InviteClusterHost", invite, Auth.ADMIN),
)
