"""The benchmark suite runs to its end and writes what it found; no figure is looked at."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.__main__ import SCENARIOS, main
from benchmarks.report import P99, RATE, Table
from benchmarks.tools import compiler
from tests.tools import require_tool


def test_the_smallest_scenario_measures_a_node_and_writes_a_table_json_and_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if compiler() is None:
        require_tool("cc")
    words = ["smallest", "--peers", "none", "--rounds", "2", "--seconds", "0.1"]
    assert main([*words, "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    servers = ["node, payload read", "node, one key written"]
    assert all(server in printed for server in servers)
    assert "tornado: missing, not asked for" in printed
    table = json.loads((tmp_path / "smallest.json").read_text())["tables"][0]
    assert list(table["rounds"]) == servers
    assert all(len(rounds) == 2 for rounds in table["rounds"].values())
    assert all(min(medians[RATE], medians[P99]) > 0 for medians in table["medians"].values())
    picture = ElementTree.parse(tmp_path / "smallest.svg")  # noqa: S314 - made a moment ago
    texts = [element.text or "" for element in picture.iter() if element.tag.endswith("text")]
    assert all(server in texts for server in servers)


def test_the_suite_lists_its_scenarios_with_what_they_measure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(SCENARIOS)
    assert all(len(line.split()) > 3 for line in lines)


def test_a_table_gives_medians_their_range_and_ratios_and_names_a_missing_baseline() -> None:
    table = Table("title", baselines=["peer"], missing={"other": "not installed"})
    for rate in (100.0, 400.0, 200.0):
        table.add("node", {RATE: rate})
    table.add("peer", {RATE: 50.0})
    title, head, node, ranges, peer, missing = table.text().splitlines()
    assert (title, head.split()) == ("title", ["events/s", "x", "peer"])
    assert node.split() == ["node", "200.0", "4.00"]
    assert ranges.split() == ["min-max", "100.0-400.0"]
    assert peer.split() == ["peer", "50.00", "1.00"]
    assert missing == "other: missing, not installed"
