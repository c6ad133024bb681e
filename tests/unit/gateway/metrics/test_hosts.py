"""The metrics of one host about the other hosts."""

from __future__ import annotations

from fieldbrook.core.cluster.facts import Facts, Known, Told
from fieldbrook.gateway.metrics.hosts import host_metrics

NAMES = {
    "fieldbrook_hosts_spare",
    "fieldbrook_host_silence_seconds",
    "fieldbrook_host_clock_difference_seconds",
}


def test_a_node_in_no_cluster_has_no_samples() -> None:
    found = list(host_metrics(None, 1.0))
    assert {one.name for one in found} == NAMES
    assert not any(one.samples for one in found)


def test_other_hosts_are_labels_and_one_that_was_never_heard_has_no_silence() -> None:
    hosts = [
        Known(name="h1", told=Told(), heard=100.0, clock_difference_s=0.0),
        Known(name="h2", told=Told(), heard=97.0, clock_difference_s=-2.0),
        Known(name="h3", told=Told()),
    ]
    facts = Facts(me="h1", at=99.5, hosts=hosts, spare=-1, outlook="")
    found = {one.name: list(one.samples) for one in host_metrics(facts, 100.0)}
    assert found == {
        "fieldbrook_hosts_spare": [((), -1.0)],
        "fieldbrook_host_silence_seconds": [(("h2",), 2.5)],
        "fieldbrook_host_clock_difference_seconds": [(("h2",), -2.0)],
    }
