"""The dashboards for Grafana: their form is valid, and a real Prometheus has data for them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from tests.docs.site import ROOT
from tests.support.applets import TALLY
from tests.support.nodes import RunningNode, StartNode, message, until
from tests.support.tools import LIMIT_S, free_port, npm_installed, require_tool

MONITORING = ROOT / "monitoring"
DASHBOARDS = sorted((MONITORING / "grafana").glob("*.json"))
CHECKS = Path(__file__).parent / "js"
TYPED = "import type {{ Dashboard }} from '@grafana/schema';\nexport const it: Dashboard = {};\n"
CHAINS = "Chains"  # the row of panels that have no data without a chain
NEVER = {"Retries", "Failed deliveries"}  # panels of events that do not happen in the test


def type_errors(folder: Path, text: str) -> str:
    """Return the errors of TypeScript for a dashboard with Grafana's own types."""
    modules = npm_installed(CHECKS)
    (folder / "node_modules").symlink_to(modules)
    (folder / "it.ts").write_text(TYPED.format(text))
    options = ["--noEmit", "--strict", "--skipLibCheck", "--moduleResolution", "bundler"]
    command = [require_tool("node"), str(modules / "typescript" / "bin" / "tsc"), *options]
    done = subprocess.run(
        [*command, "--module", "esnext", "--target", "esnext", "it.ts"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    return done.stdout


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_has_grafanas_form(path: Path, tmp_path: Path) -> None:
    assert type_errors(tmp_path, path.read_text()) == ""


def test_another_form_is_noticed(tmp_path: Path) -> None:
    wrong = json.loads(DASHBOARDS[0].read_text()) | {"editable": "yes"}
    assert "'string' is not assignable to type 'boolean" in type_errors(tmp_path, json.dumps(wrong))


def panels(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the panels of a dashboard, each with the title of its row."""
    row = ""
    for panel in json.loads(path.read_text())["panels"]:
        if panel["type"] == "row":
            row = panel["title"]
        else:
            yield row, panel


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_no_two_panels_lie_on_each_other(path: Path) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(path.read_text())["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


class Prometheus:
    """Prometheus with the repository's configuration, which scrapes a node each second."""

    def __init__(self, folder: Path, node: RunningNode) -> None:
        self._port = free_port()
        text = (MONITORING / "prometheus" / "prometheus.yml").read_text()
        text = text.replace("127.0.0.1:3000", f"127.0.0.1:{node.dashboard_port}")
        (folder / "prometheus.yml").write_text(text.replace(": 15s", ": 1s"))
        rules = "fieldbrook.rules.yml"
        (folder / rules).write_bytes((MONITORING / "prometheus" / rules).read_bytes())
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    require_tool("prometheus"),
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'tsdb'}",
                    f"--web.listen-address=127.0.0.1:{self._port}",
                ],
                stdout=log,
                stderr=log,
            )

    def ask(self, path: str, **query: str) -> Any:
        address = f"http://127.0.0.1:{self._port}/api/v1/{path}?{urlencode(query)}"
        with urlopen(address, timeout=LIMIT_S) as answer:
            found = json.load(answer)
        assert found["status"] == "success"
        return found["data"]

    def series(self, query: str) -> int:
        """Return the current number of series of a query."""
        return len(self.ask("query", query=query)["result"])

    def is_up(self) -> bool:
        try:
            return self.series("count_over_time(up[1m]) >= 3 and up == 1") == 1
        except OSError:
            return False

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(LIMIT_S)


@pytest.fixture(scope="module")
def prometheus(
    start_module_node: StartNode, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    node = start_module_node()
    node.create_project("room")
    applet = node.deploy("room", TALLY)
    strategy = {"appletID": applet["appletID"], "eventType": "BROKEN", "handler": "fail"}
    assert node.call("POST", "/strategy/x/room", strategy).status == 201
    publisher = node.add_publisher("room", "sensor")
    with closing(Prometheus(tmp_path_factory.mktemp("prometheus"), node)) as made:
        until(made.is_up, "Prometheus reads the node's metrics")
        for _ in range(3):
            assert node.send("room", message(publisher, b"21.5")).status == 201
            node.send("room", message(publisher, b"", "BROKEN"))
            node.send("nowhere", message(publisher, b""))
        done = "sum(fieldbrook_handler_failures_total) >= 3"
        until(lambda: made.series(done) == 1, "the figures of the events")
        yield made


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
@pytest.mark.thorough("node")
def test_prometheus_has_figures_for_every_panel(prometheus: Prometheus, path: Path) -> None:
    missing = [
        (panel["title"], target["expr"].replace("$__rate_interval", "5m").replace("$project", ".+"))
        for row, panel in panels(path)
        for target in panel["targets"]
        if row != CHAINS and panel["title"] not in NEVER
    ]
    assert missing

    def all_have() -> bool:
        missing[:] = [each for each in missing if not prometheus.series(each[1])]
        return not missing

    try:
        until(all_have, "figures for every panel")
    except AssertionError:
        pytest.fail(f"no figures: {missing}")


def test_the_project_can_be_chosen(prometheus: Prometheus) -> None:
    (choice,) = [
        each
        for each in json.loads((MONITORING / "grafana" / "project.json").read_text())["templating"][
            "list"
        ]
        if each["name"] == "project"
    ]
    found = re.fullmatch(r"label_values\((\w+), (\w+)\)", choice["query"])
    assert found
    assert prometheus.ask(f"label/{found[2]}/values", **{"match[]": found[1]}) != []


def test_prometheus_evaluates_the_alert_rules(prometheus: Prometheus) -> None:
    def healths() -> set[str]:
        groups = prometheus.ask("rules")["groups"]
        return {rule["health"] for group in groups for rule in group["rules"]}

    until(lambda: "unknown" not in healths(), "each rule was evaluated")
    assert healths() == {"ok"}
