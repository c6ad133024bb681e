"""Export and import of projects: the other node gets a complete project, or nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.storage.backup.archive import unpack
from fieldbrook.storage.backup.verify import verify
from tests.stores.make import PROJECT, fill
from tests.support.applets import TALLY
from tests.support.nodes import PREFIX, RunningNode, message, parts, strategies
from tests.support.shell import Shell
from tests.support.tools import own_memory

# Many processes are started, which takes a minute with a fifth of a core.
pytestmark = pytest.mark.timeout(240)

# The handler stores its payload under the payload's first four bytes.
STORING = b"""
(module
  (import "env" "ws_get_data" (func $get_data (param i32 i32 i32) (result i32)))
  (import "env" "ws_set_db" (func $set_db (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 32)
  (func (export "alloc") (param $size i32) (result i32) (i32.const 1024))
  (func (export "start") (param $rid i32) (result i32)
    (drop (call $get_data (local.get $rid) (i32.const 0) (i32.const 4)))
    (call $set_db
      (i32.load (i32.const 0)) (i32.const 4) (i32.load (i32.const 0)) (i32.load (i32.const 4)))))
"""
ROWS = {"statement": "SELECT f_text FROM t_kept", "params": []}


class Pair:
    """A node with a project, and another node without one."""

    def __init__(self, folder: Path) -> None:
        self.first, self.second = RunningNode(folder / "a"), RunningNode(folder / "b")
        self.known = fill(self.first)
        self.second.log_in()
        self.here = self._shell(folder / "here", self.first, b"a password that is published\n")
        self.there = self._shell(folder / "there", self.second, b"correct horse\n")

    def _shell(self, home: Path, node: RunningNode, password: bytes) -> Shell:
        made = Shell(home, node, logged_in=False)
        made("login", "--password-stdin", stdin=password)
        return made

    def projects(self) -> list[str]:
        return [row["projectName"] for row in self.there.json("project", "list")]

    def stores(self) -> list[str]:
        return sorted(path.name for path in (self.second.data / "projects").iterdir())


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    made = Pair(tmp_path_factory.mktemp("transfer"))
    yield made
    made.first.stop()
    made.second.stop()


def send(node: RunningNode, project: str, publisher: Any, payload: bytes, kind: str) -> Any:
    answer = node.send(project, message(publisher, payload, kind))
    assert answer.status == 201, answer
    return answer.json["results"][0]


def applet_id(node: RunningNode, project: str, name: str) -> str:
    rows = node.call("GET", f"/applet/{project}").json["data"]
    found: str = next(row["appletID"] for row in rows if row["name"] == name)
    return found


def publisher_of(node: RunningNode, project: str, key: str) -> Any:
    rows = node.call("GET", f"/publisher/{project}").json["data"]
    return next(row for row in rows if row["key"] == key)


def test_a_moved_project_goes_on_where_it_was_and_its_devices_with_it(
    pair: Pair, tmp_path: Path
) -> None:
    file = tmp_path / "kept.fieldbrook"
    pair.here("project", "export", PROJECT, str(file), "--tokens")
    assert file.stat().st_mode & 0o777 == 0o600
    made = pair.there.json("project", "import", str(file))
    assert made["name"] == PROJECT
    assert made["projectID"] != pair.known["projectID"]
    tally = applet_id(pair.second, PROJECT, "tally")
    assert pair.second.count(PROJECT, tally) == 3
    device = pair.known["publishers"][0]
    assert send(pair.second, PROJECT, device, b"one more", "START")["code"] >= 0
    assert pair.second.count(PROJECT, tally) == 4
    assert send(pair.second, PROJECT, device, json.dumps(ROWS).encode(), "GET")["code"] == 0
    querying = applet_id(pair.second, PROJECT, "querying")
    assert b"a row" in pair.second.kv(PROJECT, querying, b"rows")
    (job,) = pair.second.call("GET", f"/cronjob/{made['projectID']}").json["data"]
    assert job["eventType"] == "YEARLY"
    (limit,) = pair.second.call("GET", f"/traffic/x/{PROJECT}/datalist").json["data"]
    assert limit["threshold"] == 1000
    env = pair.second.call("GET", f"/project_config/x/{PROJECT}/PROJECT_ENV").json
    assert env["env"] == [["PLACE", "roof"]]
    assert pair.second.call("GET", f"/dead_letter/{PROJECT}").json["data"] == []
    assert verify(pair.second.data).defects == []
    pair.there("project", "delete", PROJECT, "--yes")


def test_a_copy_without_tokens_has_publishers_with_tokens_of_its_own(
    pair: Pair, tmp_path: Path
) -> None:
    file = tmp_path / "kept.fieldbrook"
    pair.here("project", "export", PROJECT, str(file))
    for device in pair.known["publishers"]:
        assert device["token"].encode() not in file.read_bytes()
    made = pair.here.json("project", "import", str(file), "--name", "copied")
    assert made["name"] == "copied"
    fresh = publisher_of(pair.first, "copied", "one")
    assert fresh["token"] != pair.known["publishers"][0]["token"]
    tally = applet_id(pair.first, "copied", "tally")
    assert pair.first.count("copied", tally) == 3
    send(pair.first, "copied", fresh, b"x", "START")
    assert pair.first.count("copied", tally) == 4
    assert pair.first.count(PROJECT, pair.known["tally"]) == 3, "the copy has a store of its own"
    refused = pair.first.send("copied", message(pair.known["publishers"][0], b"x", "START"))
    assert refused.status == 401
    pair.here("project", "delete", "copied", "--yes")


def test_a_copy_without_data_begins_anew(pair: Pair, tmp_path: Path) -> None:
    file = tmp_path / "kept.fieldbrook"
    pair.here("project", "export", PROJECT, str(file), "--no-data")
    pair.there("project", "import", str(file), "--name", "empty")
    fresh = publisher_of(pair.second, "empty", "one")
    assert send(pair.second, "empty", fresh, b"x", "START")["code"] >= 0
    assert pair.second.count("empty", applet_id(pair.second, "empty", "tally")) == 1
    pair.there("project", "delete", "empty", "--yes")


@pytest.mark.thorough
def test_a_project_with_a_dead_strategy_is_moved_and_the_import_warns(
    pair: Pair, tmp_path: Path
) -> None:
    file = tmp_path / "dead.fieldbrook"
    pair.here("project", "create", "dead")
    pair.first.deploy("dead", TALLY, "tally", strategies=strategies(A="none"))
    pair.here("project", "export", "dead", str(file))
    made = pair.there("project", "import", str(file))
    assert "warning: strategy A is dead: the module exports no handler none" in made.stderr.decode()
    (group,) = pair.second.call("GET", "/strategy/dead").json["data"]
    assert [row["dead"] for row in group["strategies"]] == [True]
    pair.here("project", "delete", "dead", "--yes")
    pair.there("project", "delete", "dead", "--yes")


@pytest.mark.thorough
def test_what_cannot_be_imported_leaves_nothing(pair: Pair, tmp_path: Path) -> None:
    file, broken = tmp_path / "kept.fieldbrook", tmp_path / "broken"
    pair.here("project", "export", PROJECT, str(file), "--tokens")
    said = pair.here.fails("project", "import", str(file))
    assert "ProjectNameConflict" in said
    pair.there("project", "import", str(file), "--name", "taken")
    before = pair.projects(), pair.stores()
    # A project of the node already has the tokens in the file, and a token may belong to only one
    # publisher.
    said = pair.there.fails("project", "import", str(file), "--name", "again")
    assert "the token of publisher one" in said
    for content in (b"no archive", file.read_bytes()[:-200]):
        broken.write_bytes(content)
        said = pair.there.fails("project", "import", str(broken), "--name", "again")
        assert "not an archive of fieldbrook" in said
        assert str(pair.second.data) not in said
    said = pair.there.fails("project", "import", str(file), "--name", "not a name")
    assert "must be 1 to 32 letters" in said
    assert (pair.projects(), pair.stores()) == before
    assert list((pair.second.data / "uploads").iterdir()) == []
    pair.there("project", "import", str(file), "--name", "again", "--new-tokens")
    assert verify(pair.second.data).defects == []
    for name in ("taken", "again"):
        pair.there("project", "delete", name, "--yes")


def test_a_file_is_not_written_over_and_a_project_of_others_is_not_exported(
    pair: Pair, tmp_path: Path
) -> None:
    file = tmp_path / "f"
    file.touch()
    assert "File exists" in pair.here.fails("project", "export", PROJECT, str(file))
    assert "ProjectNotFound" in pair.here.fails("project", "export", "absent", str(tmp_path / "g"))
    assert not (tmp_path / "g").exists()


def test_a_large_export_is_sent_whole_and_the_gateway_does_not_grow_by_it(
    pair: Pair, tmp_path: Path
) -> None:
    node = pair.first
    node.create_project("large")
    node.deploy("large", STORING, strategies=strategies(DEFAULT="start"))
    sender = node.add_publisher("large", "p")
    for number in range(60):
        payload = number.to_bytes(4) + os.urandom(700_000)
        sent = node.send("large", message(sender, payload))
        assert sent.json["results"][0]["code"] == 0, sent
    gateway = parts(node)["fb-http:0"]
    before = own_memory(gateway)
    connection = node.connection(node.http_port)
    head = {"Authorization": f"Bearer {node.token}"}
    connection.request("POST", f"{PREFIX}/project/x/large/export", b"{}", head)
    answer = connection.getresponse()
    body, most = bytearray(), before
    while piece := answer.read(1 << 20):
        body += piece
        most = max(most, own_memory(gateway))
    connection.close()
    assert (answer.status, answer.headers["Content-Length"]) == (200, str(len(body)))
    assert len(body) > 60 * 700_000
    assert most - before < 16 << 20
    (tmp_path / "large").write_bytes(body)
    (tmp_path / "unpacked").mkdir()
    manifest = unpack(tmp_path / "large", tmp_path / "unpacked", "project")
    assert manifest.about == {"project": "large", "tokens": False}
    assert list((node.data / "uploads").iterdir()) == []
    node.call("DELETE", "/project/large")


def test_only_a_projects_owner_exports_it_and_an_import_needs_a_file(pair: Pair) -> None:
    node = pair.first
    answer = node.call("POST", f"/project/x/{PROJECT}/export", {"data": False})
    assert answer.status == 200
    assert answer.body.startswith(b"\x1f\x8b")
    assert f"{PROJECT}.fieldbrook" in answer.headers["Content-Disposition"]
    assert node.call("POST", f"/project/x/{PROJECT}/export", {}, token="x").status == 401
    kind = {"Content-Type": "multipart/form-data; boundary=m"}
    info = b'--m\r\nContent-Disposition: form-data; name="info"\r\n\r\n{}\r\n--m--\r\n'
    answer = node.call("POST", "/project/import", info, headers=kind)
    assert answer.status == 400
    assert answer.json["fields"][0]["field"] == "file"
