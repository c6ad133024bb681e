"""Write the Grafana dashboards of `monitoring/grafana` from the panels in this file.

    python scripts/grafana.py            # writes them
    python scripts/grafana.py --check    # exit code 1 when a file is not what it would write

The form is Grafana's dashboard model, schema version 39 (Grafana 10.4 and later).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "monitoring" / "grafana"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS = 24
_TALL = 8
_EACH_S = "15s"


@dataclass(frozen=True)
class Panel:
    """A chart. `queries` are pairs of PromQL and a legend; `unit` is a unit of Grafana."""

    title: str
    queries: Sequence[tuple[str, str]]
    unit: str = "short"
    text: str = ""
    kind: str = "timeseries"
    wide: int = 8


def rate(metric: str, by: str = "", where: str = "") -> str:
    """Return PromQL for the rate of a counter, summed by a label."""
    of = f" by ({by})" if by else ""
    return f"sum{of} (rate(fieldbrook_{metric}{where}[$__rate_interval]))"


def quantile(share: float, metric: str, by: str = "") -> str:
    """Return PromQL for a quantile of a histogram."""
    labels = f"{by}, le" if by else "le"
    inner = f"sum by ({labels}) (rate(fieldbrook_{metric}_bucket[$__rate_interval]))"
    return f"histogram_quantile({share}, {inner})"


NODE: dict[str, list[Panel]] = {
    "Now": [
        Panel("Ready", [("min(fieldbrook_ready)", "")], kind="stat", wide=4),
        Panel(
            "Health conditions",
            [("sum(fieldbrook_health_parts)", "")],
            text="`fieldbrook health` names them.",
            kind="stat",
            wide=4,
        ),
        Panel("Events", [(rate("events_received_total"), "")], "reqps", kind="stat", wide=4),
        Panel("Dead letters", [("sum(fieldbrook_dead_letters)", "")], kind="stat", wide=4),
        Panel("Outbox", [("sum(fieldbrook_outbox_pending)", "")], kind="stat", wide=4),
        Panel(
            "Restarts in a day",
            [("sum(increase(fieldbrook_process_restarts_total[1d]))", "")],
            kind="stat",
            wide=4,
        ),
    ],
    "Events": [
        Panel(
            "Received and acknowledged",
            [
                (rate("events_received_total", "gateway"), "received, {{gateway}}"),
                (rate("events_acknowledged_total", "gateway"), "acknowledged, {{gateway}}"),
            ],
            "reqps",
        ),
        Panel("Refused", [(rate("events_refused_total", "reason"), "{{reason}}")], "reqps"),
        Panel("Unmatched", [(rate("events_unmatched_total", "gateway"), "{{gateway}}")], "reqps"),
        Panel(
            "Time to the answer",
            [
                (quantile(0.5, "event_duration_seconds", "gateway"), "median, {{gateway}}"),
                (quantile(0.99, "event_duration_seconds", "gateway"), "p99, {{gateway}}"),
            ],
            "s",
            "From admission to the answer, which follows the commit.",
        ),
        Panel(
            "Time of a commit",
            [
                (quantile(0.5, "commit_duration_seconds"), "median"),
                (quantile(0.99, "commit_duration_seconds"), "p99"),
            ],
            "s",
        ),
        Panel(
            "Failed handler runs",
            [(rate("handler_failures_total", "reason"), "{{reason}}")],
            "reqps",
        ),
        Panel(
            "Waiting for projects", [("sum by (gateway) (fieldbrook_queue_events)", "{{gateway}}")]
        ),
        Panel(
            "Delay of event loops",
            [("max by (gateway) (fieldbrook_event_loop_lag_seconds)", "{{gateway}}")],
            "s",
        ),
        Panel("Retries", [(rate("event_retries_total", "gateway"), "{{gateway}}")], "reqps"),
    ],
    "Connections": [
        Panel(
            "Open connections",
            [
                ("sum(fieldbrook_http_connections)", "HTTP"),
                ("sum(fieldbrook_http_connections_limit)", "HTTP, limit"),
                ("sum(fieldbrook_mqtt_connections)", "MQTT"),
            ],
        ),
        Panel(
            "MQTT sessions and what they keep",
            [
                ("sum(fieldbrook_mqtt_sessions)", "sessions"),
                ("sum(fieldbrook_mqtt_subscriptions)", "subscriptions"),
                ("sum(fieldbrook_mqtt_retained)", "retained"),
            ],
        ),
        Panel(
            "MQTT clients refused or ended",
            [
                (rate("mqtt_connects_refused_total"), "refused"),
                (rate("mqtt_protocol_errors_total"), "protocol error"),
                (rate("mqtt_connections_evicted_total"), "evicted"),
                (rate("mqtt_undelivered_total"), "undelivered messages"),
            ],
            "reqps",
        ),
    ],
    "Delivery": [
        Panel("Delivered", [(rate("outbox_delivered_total", "kind"), "{{kind}}")], "reqps"),
        Panel(
            "Failed and refused deliveries",
            [
                (rate("outbox_failures_total", "kind"), "failed, {{kind}}"),
                (rate("outbox_refused_total", "kind"), "refused, {{kind}}"),
            ],
            "reqps",
        ),
        Panel(
            "Waiting",
            [
                ("sum(fieldbrook_outbox_pending)", "outbox"),
                ("sum(fieldbrook_dead_letters)", "dead letters"),
            ],
        ),
    ],
    "Processes": [
        Panel(
            "Processor time",
            [
                (
                    "sum by (part) (rate(fieldbrook_process_cpu_seconds[$__rate_interval]))",
                    "{{part}}",
                )
            ],
            "percentunit",
        ),
        Panel(
            "Resident memory",
            [("sum by (part) (fieldbrook_process_resident_memory_bytes)", "{{part}}")],
            "bytes",
        ),
        Panel(
            "Restarts",
            [("sum by (part) (increase(fieldbrook_process_restarts_total[5m]))", "{{part}}")],
        ),
        Panel("Disk space", [("sum by (store) (fieldbrook_store_bytes)", "{{store}}")], "bytes"),
        Panel(
            "Registry",
            [
                ("fieldbrook_registry_used_bytes", "used"),
                ("fieldbrook_registry_limit_bytes", "limit"),
            ],
            "bytes",
        ),
        Panel("Projects", [("sum by (state) (fieldbrook_projects)", "{{state}}")]),
    ],
    "Chains": [
        Panel(
            "Age of the newest block",
            [("max by (chain) (fieldbrook_chain_head_age_seconds)", "{{chain}}")],
            "s",
        ),
        Panel(
            "Blocks that monitors are behind",
            [("max by (chain) (fieldbrook_chain_monitor_lag_blocks)", "{{chain}}")],
        ),
        Panel(
            "Usable endpoints",
            [("sum by (chain) (fieldbrook_chain_endpoint_usable)", "{{chain}}")],
        ),
        Panel(
            "Transactions under way",
            [("sum by (chain, state) (fieldbrook_transactions)", "{{chain}} {{state}}")],
        ),
        Panel(
            "Oldest transaction",
            [("max by (chain) (fieldbrook_transactions_oldest_seconds)", "{{chain}}")],
            "s",
        ),
        Panel(
            "Failures of endpoints",
            [
                (
                    rate("chain_endpoint_failures_total", "chain, endpoint"),
                    "{{chain}}, endpoint {{endpoint}}",
                ),
                (rate("chain_failovers_total", "chain"), "{{chain}}, changes of endpoint"),
            ],
            "reqps",
        ),
    ],
}

_OF = '{project=~"$project"}'


def of_project(metric: str) -> str:
    """Return PromQL for the rate of a counter of the chosen projects."""
    return rate(metric, "project", _OF)


def now_of_project(metric: str) -> str:
    """Return PromQL for a gauge of the chosen projects."""
    return f"sum by (project) (fieldbrook_{metric}{_OF})"


PROJECT: dict[str, list[Panel]] = {
    "Events": [
        Panel("Events", [(of_project("project_events_total"), "{{project}}")], "reqps"),
        Panel(
            "Events answered from memory",
            [(of_project("project_duplicate_events_total"), "{{project}}")],
            "reqps",
            "Repetitions of events that were handled before.",
        ),
        Panel("Batches", [(of_project("project_batches_total"), "{{project}}")], "reqps"),
        Panel(
            "Failed handler runs",
            [(rate("handler_failures_total", "project, reason", _OF), "{{project}}, {{reason}}")],
            "reqps",
        ),
        Panel("Dead letters", [(now_of_project("dead_letters"), "{{project}}")]),
        Panel(
            "Failed commits",
            [(of_project("project_commits_failed_total"), "{{project}}")],
            "reqps",
        ),
    ],
    "Effects": [
        Panel(
            "Effects of handlers",
            [(rate("handler_effects_total", "project, kind", _OF), "{{project}}, {{kind}}")],
            "reqps",
        ),
        Panel("Waiting in the outbox", [(now_of_project("outbox_pending"), "{{project}}")]),
        Panel(
            "Failed deliveries",
            [(rate("outbox_failures_total", "project, kind", _OF), "{{project}}, {{kind}}")],
            "reqps",
        ),
    ],
    "Resources": [
        Panel(
            "Share of a worker's time",
            [(of_project("project_busy_seconds_total"), "{{project}}")],
            "percentunit",
        ),
        Panel("Memory", [(now_of_project("project_memory_bytes"), "{{project}}")], "bytes"),
        Panel("Store", [(now_of_project("project_store_used_bytes"), "{{project}}")], "bytes"),
    ],
}
DATASOURCE = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Source"}
CHOICE = {
    "name": "project",
    "label": "Project",
    "type": "query",
    "datasource": SOURCE,
    "query": "label_values(fieldbrook_project_events_total, project)",
    "refresh": 2,
    "multi": True,
    "includeAll": True,
    "allValue": ".*",
    "current": {"text": "All", "value": "$__all"},
}


def drawn(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    """Return a panel in Grafana's form."""
    stat = panel.kind == "stat"
    found = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "datasource": SOURCE,
        "gridPos": {"h": _TALL // 2 if stat else _TALL, "w": panel.wide, "x": x, "y": y},
        "targets": [
            {"refId": chr(65 + n), "datasource": SOURCE, "expr": query, "legendFormat": legend}
            for n, (query, legend) in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {} if stat else {"tooltip": {"mode": "multi", "sort": "desc"}},
    }
    return found | ({"description": panel.text} if panel.text else {})


def dashboard(
    uid: str, title: str, rows: dict[str, list[Panel]], variables: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return a dashboard in Grafana's form; its panels fill rows of 24 columns."""
    panels: list[dict[str, Any]] = []
    y = 0
    for name, members in rows.items():
        place = {"h": 1, "w": _COLUMNS, "x": 0, "y": y}
        row = {"id": len(panels) + 1, "type": "row", "title": name, "gridPos": place, "panels": []}
        panels.append({**row, "collapsed": False})
        y += 1
        x = 0
        for panel in members:
            if x + panel.wide > _COLUMNS:
                x, y = 0, y + panels[-1]["gridPos"]["h"]
            panels.append(drawn(panel, len(panels) + 1, x, y))
            x += panel.wide
        y += panels[-1]["gridPos"]["h"]
    return {
        "uid": uid,
        "title": title,
        "tags": ["fieldbrook"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": _EACH_S,
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "templating": {"list": variables},
        "annotations": {"list": []},
        "links": [],
        "panels": panels,
    }


def files() -> dict[Path, str]:
    """Return the content of each file."""
    made = {
        "node.json": dashboard("fieldbrook-node", "fieldbrook: node", NODE, [DATASOURCE]),
        "project.json": dashboard(
            "fieldbrook-project", "fieldbrook: projects", PROJECT, [DATASOURCE, CHOICE]
        ),
    }
    return {FOLDER / name: json.dumps(each, indent=2) + "\n" for name, each in made.items()}


def main() -> int:
    """Write the files, or compare them."""
    wrong = [
        path for path, text in files().items() if not path.exists() or path.read_text() != text
    ]
    if "--check" not in sys.argv[1:]:
        for path, text in files().items():
            path.write_text(text)
        return 0
    for path in wrong:
        print(f"{path.name} is not what scripts/grafana.py writes")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
