"""The metrics of a node, read like Prometheus reads them."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from tests.support.nodes import RunningNode

Figures = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def scrape(node: RunningNode) -> Figures:
    answer = node.call("GET", "/metrics", token="")
    assert answer.status == 200, answer
    found = {}
    for family in text_string_to_metric_families(answer.body.decode()):
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found, key
            found[key] = sample.value
    return found


def one(node: RunningNode, name: str, /, **labels: str) -> float:
    """Return the present value of a metric; 0 if it has no sample, for example for a reason that
    never occurred."""
    return scrape(node).get((f"fieldbrook_{name}", frozenset(labels.items())), 0.0)
