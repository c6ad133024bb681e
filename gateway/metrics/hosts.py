"""Metrics of the other hosts of a cluster, as measured by this host."""

from __future__ import annotations

from collections.abc import Iterator

from fieldbrook.core.cluster.facts import Facts
from fieldbrook.gateway.metrics.prometheus import Collected
from fieldbrook.observability.metrics import GAUGE


def host_metrics(facts: Facts | None, now: float) -> Iterator[Collected]:
    """Return the metrics; they have no samples on a node without a cluster.

    Args:
        facts: the facts that this host has about the others.
        now: monotonic seconds of this machine.
    """
    text = "Hosts that may be lost before nothing is committed; -1: that is so now."
    spare = [] if facts is None else [((), float(facts.spare))]
    yield Collected("fieldbrook_hosts_spare", text, GAUGE, (), spare)
    hosts = [] if facts is None else [host for host in facts.hosts if host.name != facts.me]
    silence = []
    if facts is not None:
        silence = [((one.name,), facts.silence_s(one, now)) for one in hosts if one.heard]
    text = "Time since this host has heard another one, which tells of itself every 0.25 s."
    yield Collected("fieldbrook_host_silence_seconds", text, GAUGE, ("host",), silence)
    clocks = [
        ((host.name,), host.clock_difference_s)
        for host in hosts
        if host.clock_difference_s is not None
    ]
    text = "How far the clock of another host is ahead of this one's."
    yield Collected("fieldbrook_host_clock_difference_seconds", text, GAUGE, ("host",), clocks)
