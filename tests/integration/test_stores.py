"""Data folders of every released version open in this version."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fieldbrook import __version__
from fieldbrook.storage.backup.backup import restore
from fieldbrook.storage.backup.verify import verify
from tests.support.nodes import RunningNode, message

STORES = Path(__file__).parents[1] / "stores"
VERSIONS = sorted(path.name.removesuffix(".tar.gz") for path in STORES.glob("*.tar.gz"))
COUNT = {"statement": "SELECT f_text FROM t_kept", "params": []}


class Opened:
    def __init__(self, version: str, folder: Path) -> None:
        self.known: dict[str, Any] = json.loads((STORES / f"{version}.json").read_text())
        restore(STORES / f"{version}.tar.gz", folder / "n")
        self.node = RunningNode(folder / "n")
        self.node.log_in(self.known["username"], self.known["password"])

    def send(self, payload: bytes, event_type: str, event_id: str = "", publisher: int = 0) -> Any:
        sent = message(self.known["publishers"][publisher], payload, event_type)
        if event_id:
            sent["header"]["event_id"] = event_id
        answer = self.node.send(self.known["project"], sent)
        assert answer.status == 201, answer
        return answer.json

    def get(self, path: str) -> Any:
        answer = self.node.call("GET", path)
        assert answer.status == 200, answer
        return answer.json


@pytest.fixture(scope="module", params=VERSIONS)
def opened(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Opened]:
    made = Opened(request.param, tmp_path_factory.mktemp("stores"))
    yield made
    made.node.stop()


def test_there_is_a_store_of_this_version() -> None:
    assert __version__ in VERSIONS


def test_an_opened_store_has_all_of_its_data(opened: Opened) -> None:
    known = opened.known
    project = opened.get(f"/project/{known['project']}")
    assert project["projectID"] == known["projectID"]
    applets = opened.get(f"/applet/{known['project']}")["data"]
    assert sorted(row["name"] for row in applets) == ["querying", "sending", "tally"]
    listed = opened.get(f"/publisher/{known['project']}")["data"]
    assert {row["token"] for row in listed} == {row["token"] for row in known["publishers"]}
    (job,) = opened.get(f"/cronjob/{known['projectID']}")["data"]
    assert (job["cronExpressions"], job["eventType"]) == ("0 5 1 1 *", "YEARLY")
    (limit,) = opened.get(f"/traffic/x/{known['project']}/datalist")["data"]
    assert limit["threshold"] == 1000
    (letter,) = opened.get(f"/dead_letter/{known['project']}")["data"]
    assert (letter["eventID"], letter["handler"]) == ("fail-0", "fail")
    lines = [row["msg"] for row in opened.get(f"/applet_log/{known['project']}")["data"]]
    assert [line for line in lines if line.startswith("line")] == ["line 0", "line 1", "line 2"]
    (record,) = opened.get(f"/event_log/{known['project']}?eventID=fail-0")["data"]
    assert record["size"] == 6


def test_an_opened_store_takes_new_events(opened: Opened) -> None:
    project, tally = opened.known["project"], opened.known["tally"]
    # The outbox is parked after a restore, so what was sent then still waits.
    assert (opened.node.data / "projects" / opened.known["projectID"] / "outbox.waiting").exists()
    assert opened.node.count(project, tally) == 3
    opened.send(b"line 2", "START", "start-2")  # the id is only a label: the event runs
    assert opened.node.count(project, tally) == 4
    opened.send(b"line 3", "START", "start-3")
    assert opened.node.count(project, tally) == 5
    assert opened.send(json.dumps(COUNT).encode(), "GET")["results"][0]["code"] == 0
    assert b"a row" in opened.node.kv(project, opened.known["querying"], b"rows")
    (letter,) = opened.get(f"/dead_letter/{project}")["data"]
    replayed = opened.node.call(
        "POST", f"/dead_letter/{project}/replay", {"letterIDs": [letter["letterID"]]}
    )
    assert replayed.json["results"][0]["code"] == -1
    assert opened.get(f"/dead_letter/{project}")["data"][0]["attempts"] == 2


def test_an_opened_store_passes_verification_afterwards(opened: Opened) -> None:
    assert verify(opened.node.data).defects == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_store_is_small_enough_to_be_kept(version: str) -> None:
    assert (STORES / f"{version}.tar.gz").stat().st_size < 200_000
