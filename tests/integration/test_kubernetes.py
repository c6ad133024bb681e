"""The probes and settings of the manifests for Kubernetes, with a real node."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fieldbrook.storage.backup.backup import restore
from tests.integration.test_stores import STORES, VERSIONS
from tests.support.nodes import RunningNode, until
from tests.support.tools import LIMIT_S
from tests.unit.repository.test_kubernetes import JOB, NODE, VARIABLES

ROOT = Path(__file__).parents[2]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    made = RunningNode(tmp_path / "n", command="node", environment={**os.environ, **VARIABLES})
    made.log_in()
    yield made
    made.stop()


def test_a_node_with_the_variables_of_the_manifest_answers_its_probes(node: RunningNode) -> None:
    for name in ("startupProbe", "livenessProbe"):
        assert node.call("GET", NODE[name]["httpGet"]["path"], token="").status == 200
    path = NODE["readinessProbe"]["httpGet"]["path"]
    until(lambda: node.call("GET", path, token="").status == 200, "the node is ready")
    answer = node.call("GET", "/setting")
    assert answer.status == 200
    given = {row["name"] for row in answer.json["data"] if row["source"] == "environment"}
    assert given >= {name.removeprefix("FIELDBROOK_").lower() for name in VARIABLES}


@pytest.mark.parametrize(
    ("program", "completes"),
    [("fieldbrook", True), ("tests.support.next_version", True), ("no.such.version", False)],
)
def test_the_job_completes_when_a_node_of_the_image_can_start(
    tmp_path: Path, program: str, completes: bool
) -> None:
    restore(STORES / f"{VERSIONS[-1]}.tar.gz", tmp_path / "data")
    command = tmp_path / "bin" / "fieldbrook"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {program} "$@"\n')
    command.chmod(0o755)
    (container,) = JOB["spec"]["template"]["spec"]["containers"]
    done = subprocess.run(
        container["command"],
        cwd=ROOT,
        env={
            "PATH": f"{command.parent}:{os.environ['PATH']}",
            "FIELDBROOK_DATA": str(tmp_path / "data"),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert (done.returncode == 0) is completes, done
    assert ("the next start converts" in done.stderr) is completes
