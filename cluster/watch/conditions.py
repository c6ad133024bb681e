"""The health conditions of a cluster, computed from the facts that one host has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fieldbrook.actors.messages import ClusterCondition
from fieldbrook.core.cluster.facts import Facts, Known
from fieldbrook.observability import health

CLOCK_LIMIT_S = 1.0
"""The largest allowed difference between the clocks of two hosts, in seconds."""
STALLED_S = 3.0
"""How long a record may wait, or a stream may have no leader, before the condition is raised. The
election of a new leader takes longer, so each election raises the condition."""
FENCED_S = 300.0
"""How long the condition stays after the last refused record."""
BEHIND_S = 5.0
"""How long this host's copy of the registry may lack changes before the condition is raised."""


class Since(NamedTuple):
    """How long states of this host have lasted, in seconds; None if this host is not in the state.

    Attributes:
        append_s: how long the oldest record has waited to be stored.
        fenced_s: how long ago the last record was refused because another host is the owner.
        registry_s: how long this host's copy of the registry has lacked changes that another host
            has.
        stalled_s: how long a stream has had no leader.
    """

    append_s: float | None = None
    fenced_s: float | None = None
    registry_s: float | None = None
    stalled_s: float | None = None


def conditions(
    facts: Facts, silent: Sequence[str], since: Since, silence_s: float
) -> tuple[ClusterCondition, ...]:
    """Return all conditions, each with its part, its state and a detail.

    Args:
        facts: the facts that this host has about the cluster.
        silent: the names of hosts without recent heartbeats.
        since: durations of states of this host.
        silence_s: after this time without a heartbeat a host counts as silent.
    """
    found = []
    for host in facts.hosts:
        part = f"host:{host.name}"
        if host.name in silent:
            found.append(ClusterCondition(part, health.HOST_SILENT, _silent(host, silence_s)))
        elif _is_apart(host):
            found.append(ClusterCondition(part, health.CLOCK_APART, _apart(host)))
    here = "cluster"
    stalled = _stalled(facts, silent, since)
    if stalled:
        found.append(ClusterCondition(here, health.JOURNAL_STALLED, stalled))
    elif facts.spare == 0:
        found.append(ClusterCondition(here, health.ONE_MORE_LOSS, facts.outlook))
    if since.fenced_s is not None and since.fenced_s < FENCED_S:
        detail = (
            "this host was paused, disconnected or slow; events that it had not committed were "
            "sent again or answered 503"
        )
        found.append(ClusterCondition(here, health.FENCED, detail))
    if since.registry_s is not None and since.registry_s >= BEHIND_S:
        mine = next(host for host in facts.hosts if host.name == facts.me)
        detail = f"changes that another host has and this host lacks: {mine.registry_lag}"
        found.append(ClusterCondition("registry", health.REGISTRY_BEHIND, detail))
    return tuple(found)


def _silent(host: Known, silence_s: float) -> str:
    if not host.heard:
        return "no heartbeat since this host was started"
    if host.told.draining:
        return "it was stopped"
    return f"no heartbeat for more than {silence_s:.1f} s"


def _is_apart(host: Known) -> bool:
    difference_s = host.clock_difference_s
    return difference_s is not None and abs(difference_s) - host.clock_error_s > CLOCK_LIMIT_S


def _apart(host: Known) -> str:
    seconds = host.clock_difference_s or 0.0
    way = "ahead of" if seconds > 0 else "behind"
    return f"its clock is {abs(seconds):.0f} s {way} this host's"


def _stalled(facts: Facts, silent: Sequence[str], since: Since) -> str:
    # A replication engine without a majority has no leaders either: the lost hosts are the cause.
    too_few = 2 * (len(facts.hosts) - len(silent)) <= len(facts.hosts)
    if facts.spare < 0 and len(facts.hosts) > 1 and (too_few or since.stalled_s is None):
        return facts.outlook
    if since.stalled_s is not None and since.stalled_s >= STALLED_S:
        return f"streams have had no leader for more than {STALLED_S:.0f} s"
    if since.append_s is not None and since.append_s >= STALLED_S:
        return f"records have waited to be stored for more than {STALLED_S:.0f} s"
    return ""
