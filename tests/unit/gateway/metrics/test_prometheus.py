"""The metrics in the format of Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fieldbrook.gateway.metrics.prometheus import Collected, FolderSizes, Node, is_local, render
from fieldbrook.observability import health, metrics
from fieldbrook.observability.metrics import GAUGE
from fieldbrook.observability.metrics_table import Row

Shown = Mapping[tuple[str, frozenset[tuple[str, str]]], float]

CURL = {"Host": "127.0.0.1:3000"}


def row(part: str, counts: Mapping[int, float], pid: int = 0) -> Row:
    numbers = [0.0] * metrics.COLUMNS
    for column, number in counts.items():
        numbers[column] = number
    return Row(part, pid, numbers)


def shown(node: Node) -> Shown:
    kind, body = render(node, "")
    assert kind.startswith("text/plain; version=0.0.4")
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found
            found[key] = sample.value
    return found


def of(found: Shown, name: str, /, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


def test_processes_of_one_gateway_are_added_up() -> None:
    rows = [
        row("http:0", {metrics.EVENTS_RECEIVED: 3}),
        row("http:1", {metrics.EVENTS_RECEIVED: 4}),
        row("mqtt:0", {metrics.EVENTS_RECEIVED: 5}),
    ]
    found = shown(Node("1", rows, health.NodeHealth()))
    assert of(found, "fieldbrook_events_received_total", gateway="http") == 7
    assert of(found, "fieldbrook_events_received_total", gateway="mqtt") == 5


def test_projects_are_one_unless_some_have_figures_of_their_own() -> None:
    rows = [
        row("projects:3", {metrics.PROJECT_EVENTS: 3}),
        row("projects:4", {metrics.PROJECT_EVENTS: 4}),
    ]
    found = shown(Node("1", rows, health.NodeHealth()))
    assert of(found, "fieldbrook_project_events_total") == 7
    rows.append(row("project:12", {metrics.PROJECT_EVENTS: 9}))
    found = shown(Node("1", rows, health.NodeHealth()))
    assert of(found, "fieldbrook_project_events_total", project="") == 7
    assert of(found, "fieldbrook_project_events_total", project="12") == 9
    assert of(found, "fieldbrook_up", part="project") == 0


def test_a_histogram_is_cumulative_and_has_its_sum_and_count() -> None:
    family = next(f for f in metrics.FAMILIES if f.name == "fieldbrook_commit_duration_seconds")
    last = family.first + family.columns - 1
    counts = {family.first: 2.0, family.first + 1: 1.0, last - 1: 1.0, last: 12.5}
    found = shown(Node("1", [row("projects:5", counts)], health.NodeHealth()))
    assert of(found, "fieldbrook_commit_duration_seconds_bucket", le="0.0005") == 2
    assert of(found, "fieldbrook_commit_duration_seconds_bucket", le="0.001") == 3
    assert of(found, "fieldbrook_commit_duration_seconds_bucket", le="5.0") == 3
    assert of(found, "fieldbrook_commit_duration_seconds_bucket", le="+Inf") == 4
    assert of(found, "fieldbrook_commit_duration_seconds_count") == 4
    assert of(found, "fieldbrook_commit_duration_seconds_sum") == 12.5


def test_a_renamed_metric_is_exported_under_its_old_name_as_well() -> None:
    known = {family.name for family in metrics.FAMILIES}
    assert known.isdisjoint(metrics.DEPRECATED_NAMES.values())
    node = Node("1", [row("http:0", {metrics.EVENT_RETRIES: 3.0})], health.NodeHealth())
    found = shown(node)
    assert of(found, "fieldbrook_event_retries_total", gateway="http") == 3
    assert of(found, "fieldbrook_events_put_off_total", gateway="http") == 3
    assert (
        "fieldbrook_event_seconds_bucket",
        frozenset({("gateway", "http"), ("le", "+Inf")}),
    ) in found
    help_lines = [line for line in render(node, "")[1].decode().splitlines() if "put_off" in line]
    assert help_lines[0].endswith("(deprecated: use fieldbrook_event_retries_total)")


def test_only_reasons_that_occurred_are_shown() -> None:
    counts = {metrics.EVENTS_REFUSED["ProjectNotFound"]: 2.0}
    found = shown(Node("1", [row("http:0", counts)], health.NodeHealth()))
    refused = [value for key, value in found.items() if key[0].startswith(metrics.REFUSED_NAME)]
    assert refused == [2.0]


def test_every_state_of_health_is_1_or_0() -> None:
    conditions = (
        health.Condition("project:1", health.STORE_FULL, "", 1),
        health.Condition("project:2", health.STORE_FULL, "", 1),
    )
    found = shown(Node("1", [], health.NodeHealth(conditions=conditions)))
    states = {key: value for key, value in found.items() if key[0] == "fieldbrook_health_state"}
    assert len(states) == len(health.MEANINGS)
    assert sum(states.values()) == 1
    assert of(found, "fieldbrook_health_parts", state="store_full") == 2


def test_what_is_looked_up_has_its_labels_written_as_they_must_be() -> None:
    odd = Collected("odd", 'a "text"\nof two lines', GAUGE, ("name",), [(('a"b\\c\nd',), 1.5)])
    found = shown(Node("1", [], health.NodeHealth(), [odd]))
    assert of(found, "odd", name='a"b\\c\nd') == 1.5


def test_open_metrics_are_given_to_who_asks_for_them() -> None:
    kind, body = render(Node("1", [], health.NodeHealth()), "application/openmetrics-text")
    assert kind.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_sizes_are_looked_up_seldom(tmp_path: Path) -> None:
    now = 0.0
    sizes = FolderSizes(tmp_path, lambda: now)
    assert sizes.now()["projects"] == 0
    (tmp_path / "projects" / "1").mkdir(parents=True)
    (tmp_path / "projects" / "1" / "data").write_bytes(b"x" * 10_000)
    assert sizes.now()["projects"] == 0
    now = FolderSizes.MAX_AGE_S
    assert sizes.now()["projects"] >= 8_192


@pytest.mark.parametrize(
    ("peer", "headers"),
    [
        ("127.0.0.1", CURL),
        ("127.0.0.1", {"Host": "localhost:3000"}),
        ("127.0.0.1", {"Host": "127.0.0.1"}),
        ("::1", {"Host": "[::1]:3000"}),
        ("::ffff:127.0.0.1", CURL),
    ],
)
def test_a_program_on_the_machine_is_local(peer: str, headers: dict[str, str]) -> None:
    assert is_local(peer, headers)


@pytest.mark.parametrize(
    ("peer", "headers"),
    [
        ("192.0.2.1", CURL),
        ("::ffff:192.0.2.1", CURL),
        ("", CURL),
        ("127.0.0.1", {**CURL, "X-Forwarded-For": "192.0.2.1"}),
        ("127.0.0.1", {**CURL, "X-Forwarded-Host": "node.example"}),
        ("127.0.0.1", {**CURL, "X-Forwarded-Proto": "https"}),
        ("127.0.0.1", {**CURL, "Forwarded": "for=192.0.2.1"}),
        ("127.0.0.1", {**CURL, "X-Real-IP": "192.0.2.1"}),
        ("127.0.0.1", {**CURL, "Via": "1.1 proxy"}),
        ("127.0.0.1", {**CURL, "CF-Connecting-IP": "192.0.2.1"}),
        ("127.0.0.1", {**CURL, "True-Client-IP": "192.0.2.1"}),
        ("127.0.0.1", {**CURL, "Origin": "https://attacker.example"}),
        ("127.0.0.1", {"Host": "rebound.example:3000"}),
        ("127.0.0.1", {}),
    ],
)
def test_a_proxy_a_page_in_a_browser_and_another_machine_are_not(
    peer: str, headers: dict[str, str]
) -> None:
    assert not is_local(peer, headers)
