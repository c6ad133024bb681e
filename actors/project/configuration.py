"""The configuration of a project: its objects in one version of the registry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from fieldbrook.actors.project.routing import Routes, Target, build_routes, match
from fieldbrook.actors.wire import EXACT, NODE_COMMAND, POISON, WireEvent
from fieldbrook.core.errors import DisabledAccountError, NodeError, StorageQuotaError
from fieldbrook.core.model import (
    ENABLED,
    EVENT,
    PER_BATCH,
    PER_EVENT,
    PROJECT_DATABASE,
    Applet,
    TrafficLimit,
)
from fieldbrook.storage.registry.service import RegistryReader, RegistrySnapshot


class ProjectConfiguration(msgspec.Struct, frozen=True):
    """A project's configuration, read in one snapshot of the registry.

    `per_batch` has the ids of the applets whose events share an instance. `database` is the
    configuration of the SQL database as JSON. `closed` is the reason why the project takes no
    events, if there is one. `retries_chains` says whether events that need a chain are refused
    while the chain is unavailable, so that their senders try again.
    """

    routes: Routes
    applets: Mapping[int, Applet]
    per_batch: frozenset[int]
    env: Mapping[str, str]
    database: bytes | None
    traffic_limit: TrafficLimit | None
    closed: NodeError | None
    retries_chains: bool

    def targets(self, event: WireEvent) -> Sequence[Target]:
        """Return the handlers of an event."""
        if event[5] & EXACT:
            return self.routes.get(event[0], ())
        return match(self.routes, event[0])

    def shared_target(self, event_type: str) -> Target | None:
        """Return the handler whose runs for events of a type may share an instance, if any."""
        if self.closed is not None:
            return None
        targets = match(self.routes, event_type)
        if len(targets) != 1:
            return None
        target = targets[0]
        is_shared = target.applet_id in self.per_batch and target.started and not target.dead
        return target if is_shared else None

    def early_targets(self, event: WireEvent) -> Sequence[Target]:
        """Return the handlers of an event if all of them may run before its turn, else none.

        This does not recognise duplicates and refused events; the executor does when their turn
        comes.
        """
        if event[1] == NODE_COMMAND or event[5] & POISON:
            return ()
        targets = self.targets(event)
        applets = self.applets
        if all(
            t.started and not t.dead and applets[t.applet_id].isolation == PER_EVENT
            for t in targets
        ):
            return targets
        return ()


NO_CONFIGURATION = ProjectConfiguration({}, {}, frozenset(), {}, None, None, None, False)
"""The configuration before the registry was read."""


def read_configuration(reader: RegistryReader, project_id: int) -> ProjectConfiguration:
    """Read the present configuration of a project."""
    with reader.snapshot() as registry:
        applets = registry.applets(project_id)
        database = registry.config(project_id, PROJECT_DATABASE)
        exported = {
            applet.applet_id: resource.handlers
            for applet in applets
            if (resource := registry.resource(applet.resource_id)) is not None
        }
        limits = registry.traffic_limits(project_id)
        return ProjectConfiguration(
            routes=build_routes(registry.strategies(project_id), applets, exported),
            applets={applet.applet_id: applet for applet in applets},
            per_batch=frozenset(a.applet_id for a in applets if a.isolation == PER_BATCH),
            env=registry.environment(project_id),
            database=database.value if database else None,
            traffic_limit=next((limit for limit in limits if limit.api_type == EVENT), None),
            closed=_why_closed(registry, project_id),
            retries_chains=registry.retries_chains(project_id),
        )


def _why_closed(registry: RegistrySnapshot, project_id: int) -> NodeError | None:
    """Return the reason why a project takes no events at all, or None.

    Gateways already refuse the events of devices. This check is for cron jobs, chains and
    replays, which have no token that a gateway could check.
    """
    project = registry.project(project_id)
    account = None if project is None else registry.account(project.account_id)
    if account is None:
        return None
    if account.state != ENABLED:
        return DisabledAccountError(account=account.account_id)
    if account.over_storage:
        return StorageQuotaError(account=account.username)
    return None
