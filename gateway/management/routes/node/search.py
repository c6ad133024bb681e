"""Search by name, id, hash or address, within the rights of an account.

Source: ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import string
import time
from collections.abc import Set
from functools import partial
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import UNSET, UnsetType

from fieldbrook.chain.blocks.logs import normalize_hex
from fieldbrook.core.model import ADMIN, AccessKey, Project
from fieldbrook.gateway.management.framework.route import Call, Route
from fieldbrook.security.access_keys import Group, Permission, permission_on
from fieldbrook.storage.project.history.search import EventFilter
from fieldbrook.storage.registry.search import (
    APPLET,
    MONITOR,
    OF_A_KIND,
    OPERATOR,
    PROJECT,
    PUBLISHER,
    ROWS_LIMIT,
    Effort,
    Match,
    search_registry,
)

RESULTS_LIMIT = 20
EVENT, TRANSACTION = "event", "transaction"
GROUPS: dict[str, Group] = {
    PROJECT: Group.PROJECT,
    APPLET: Group.APPLET,
    PUBLISHER: Group.PUBLISHER,
    EVENT: Group.EVENT,
    TRANSACTION: Group.OPERATOR,
    OPERATOR: Group.OPERATOR,
    MONITOR: Group.MONITOR,
}
"""The groups on which an access key needs READONLY to find a kind."""

Kind = Literal["project", "applet", "publisher", "event", "transaction", "operator", "monitor"]

_EVENT_ID_LEAST = 6  # shorter texts are words that the user is still typing
_HISTORIES_LIMIT = 200
_FLUSHED_LIMIT = 16
_FLUSH_LIMIT_S = 0.3
_PART_LIMIT_S = 0.5  # for the histories, and for the transactions
_TRANSACTIONS_LIMIT = 20_000
_HASH_DIGITS = range(8, 65)


class SearchText(msgspec.Struct, frozen=True, kw_only=True):
    """The text to find."""

    q: Annotated[str, msgspec.Meta(min_length=2, max_length=256)]


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was found.

    `name` is the name of a project, an applet or a publisher, the id of an event, the hash of a
    transaction, the address of an operator, or the address that a monitor watches. `id` is that of
    the row; for an event it is the event's. `project` is the name of the project it belongs to;
    for an operator that of a project for which it signs, if there is one.
    """

    kind: Kind
    name: str
    project: str | UnsetType = UNSET
    id: str


class SearchReply(msgspec.Struct, frozen=True, kw_only=True):
    """At most 20 results, 5 of a kind: first those that are equal to the text, then those that
    begin with it, then the others."""

    data: list[SearchResult]


async def search(call: Call[None, SearchText]) -> SearchReply:
    """Find projects, applets, publishers, events, transactions and addresses by a text.

    Names, keys and addresses contain the text, in any case. The id of an event is equal to it (at
    least 6 characters); the hash of a transaction begins with it (at least 8 digits). Accounts find
    what belongs to their own projects, administrators in all, and operators of their own. The
    effort is limited: in a node with very many rows, not all are looked at. An access key finds
    the kinds of which it may read the group: Project, Applet, Publisher, Event, Operator
    (transactions too), Monitor.
    """
    text, kinds = call.query.q.strip(), _allowed(call.key)
    account = call.account
    with call.workers.lookups.hold_for(account):
        reader = call.context.reader
        owner = None if account.role == ADMIN else account.account_id

        def look() -> tuple[list[Project], list[Match]]:
            with reader.snapshot() as registry:
                projects = registry.projects(owner, limit=ROWS_LIMIT)
                found = search_registry(
                    registry, text, projects, account.account_id, kinds, Effort()
                )
            return projects, found

        projects, found = await call.search(look)
        if EVENT in kinds and len(text) >= _EVENT_ID_LEAST:
            found += await _find_events(call, projects, text)
        if TRANSACTION in kinds and _begins_a_hash(text):
            found += await _find_transactions(call, projects, normalize_hex(text))
    found.sort(key=lambda match: match.rank)
    return SearchReply(data=[_result(match) for match in found[:RESULTS_LIMIT]])


def _begins_a_hash(text: str) -> bool:
    """Return whether a text can be the first digits of a transaction's hash, with or without
    `0x`."""
    digits = text.lower().removeprefix("0x")
    return len(digits) in _HASH_DIGITS and set(digits) <= set(string.hexdigits)


def _allowed(key: AccessKey | None) -> Set[str]:
    """Return the kinds that a caller may find."""
    return {
        kind
        for kind, group in GROUPS.items()
        if key is None or permission_on(key, group) >= Permission.READONLY
    }


async def _find_events(call: Call[Any, Any], projects: list[Project], text: str) -> list[Match]:
    """Search the histories for an event's id: first of running projects, then of the newest
    projects.

    Projects that other hosts of a cluster own are skipped.
    """
    running = call.context.running()
    owner = call.context.cluster.owner
    projects = [project for project in projects if owner(project.project_id) is None]
    order = sorted(projects, key=lambda one: (one.project_id not in running, -one.project_id))
    order = order[:_HISTORIES_LIMIT]
    awake = [one.project_id for one in order if one.project_id in running]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_FLUSH_LIMIT_S):
            await asyncio.gather(*map(call.context.flush_project, awake[:_FLUSHED_LIMIT]))
    until = time.monotonic() + _PART_LIMIT_S
    wanted = EventFilter(event_id=text)
    found: list[Match] = []
    for project in order:
        store = call.context.store_reader(project.project_id)
        if store is not None:
            page = await call.search(partial(store.find_events, wanted, 0, 1))
            found += [Match(0, EVENT, text, project.name, text) for _ in page.rows]
        if len(found) >= OF_A_KIND or time.monotonic() >= until:
            break
    return found


async def _find_transactions(
    call: Call[Any, Any], projects: list[Project], start: str
) -> list[Match]:
    """Search the newest transactions of each chain for a hash that begins with the text."""
    names = {project.project_id: project.name for project in projects}
    until = time.monotonic() + _PART_LIMIT_S
    found: list[Match] = []
    for chain in call.context.chains:
        store = call.context.chain_reader(chain.id)
        if store is None or len(found) >= OF_A_KIND or time.monotonic() >= until:
            continue
        rows = await call.search(
            partial(store.transactions.with_hash, start, names, _TRANSACTIONS_LIMIT, until)
        )
        for row, tx_hash in rows:
            rank = 0 if tx_hash == start else 1
            found.append(Match(rank, TRANSACTION, tx_hash, names[row.project_id], row.name))
    return found[:OF_A_KIND]


def _result(match: Match) -> SearchResult:
    return SearchResult(
        kind=cast(Kind, match.kind),
        name=match.name,
        project=match.project or UNSET,
        id=match.found_id,
    )


ROUTES: tuple[Route, ...] = (Route("GET", "/search", "Search", search),)
