"""Which health conditions follow from what a host knows of its cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fieldbrook.actors.messages import ClusterCondition
from fieldbrook.core.cluster.facts import Facts, Known
from fieldbrook.observability import health

CLOCK_LIMIT_S = 1.0
"""How far clocks may be apart."""
STALLED_S = 3.0
"""How long a record may wait until that is a condition; an election takes longer."""
FENCED_S = 300.0
"""How long it is shown that records were refused."""
BEHIND_S = 5.0
"""How long the registry may lag behind."""


class Since(NamedTuple):
    """How long something has lasted on this host, in seconds; None: it is not so.

    Attributes:
        append_s: the oldest record waits.
        fenced_s: the last record was refused because another host is the owner.
        registry_s: the registry lacks changes that another host has.
        stalled_s: a stream has no leader.
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
        facts: what this host knows.
        silent: the hosts that are not heard.
        since: how long this host has been in some states.
        silence_s: how long a host may be silent.
    """
    found = []
    for host in facts.hosts:
        part = f"host:{host.name}"
        if host.name in silent:
            found.append(ClusterCondition(part, health.HOST_SILENT, _silent(host, silence_s)))
        elif _is_apart(host):
            found.append(ClusterCondition(part, health.CLOCK_APART, _apart(host)))
    here = "cluster"
    stalled = _stalled(facts, since)
    if stalled:
        found.append(ClusterCondition(here, health.JOURNAL_STALLED, stalled))
    elif facts.spare == 0:
        found.append(ClusterCondition(here, health.ONE_MORE_LOSS, facts.outlook))
    if since.fenced_s is not None and since.fenced_s < FENCED_S:
        detail = "it was paused, cut off or slow; what it had not committed was sent again or 503"
        found.append(ClusterCondition(here, health.FENCED, detail))
    if since.registry_s is not None and since.registry_s >= BEHIND_S:
        mine = next(host for host in facts.hosts if host.name == facts.me)
        detail = f"{mine.registry_lag} changes that another host has are not here"
        found.append(ClusterCondition("registry", health.REGISTRY_BEHIND, detail))
    return tuple(found)


def _silent(host: Known, silence_s: float) -> str:
    if not host.heard:
        return "it was not heard since this host was started"
    if host.told.draining:
        return "it was stopped"
    return f"without notice, for more than {silence_s:.1f} s"


def _is_apart(host: Known) -> bool:
    difference_s = host.clock_difference_s
    return difference_s is not None and abs(difference_s) - host.clock_error_s > CLOCK_LIMIT_S


def _apart(host: Known) -> str:
    seconds = host.clock_difference_s or 0.0
    way = "ahead of" if seconds > 0 else "behind"
    return f"its clock is {abs(seconds):.0f} s {way} this host's"


def _stalled(facts: Facts, since: Since) -> str:
    if facts.spare < 0 and len(facts.hosts) > 1 and since.stalled_s is None:
        return facts.outlook
    if since.stalled_s is not None and since.stalled_s >= STALLED_S:
        return f"streams have had no leader for more than {STALLED_S:.0f} s"
    if since.append_s is not None and since.append_s >= STALLED_S:
        return f"records have waited for more than {STALLED_S:.0f} s"
    return ""
