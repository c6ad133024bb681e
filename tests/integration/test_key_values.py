"""The keys of applets over HTTP: pages, bytes that are not text, and changes."""

from __future__ import annotations

import base64
import json
import threading
import urllib.parse
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fieldbrook.actors.wire import NODE_COMMAND, WRITE_KEY, WireEvent, pack
from fieldbrook.core.errors import DisabledAccountError, NodeError, StorageQuotaError
from fieldbrook.core.model import PER_BATCH
from fieldbrook.storage.project import kv
from tests.support.management import User, holder
from tests.support.nodes import (
    Answer,
    RunningNode,
    message,
    strategies,
    until,
)
from tests.support.projects import Project
from tests.support.shell import Shell

BINARY = b"\xff\x00key"


@pytest.fixture(scope="module")
def path(node: RunningNode) -> str:
    node.create_project("keys")
    applet = node.deploy("keys", COUNTER_MODULE, strategies=strategies(DEFAULT="start"))
    return f"/kv/keys?appletID={applet['appletID']}"


# `start` adds one to the 4-byte number under `count`, and returns it.
COUNTER_MODULE = b"""
(module
  (import "env" "ws_set_db" (func $set_db (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_get_db" (func $get_db (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 32) "count")
  (func (export "alloc") (param $size i32) (result i32) (i32.const 1024))
  (func (export "start") (param $rid i32) (result i32)
    (if (i32.eqz (call $get_db (i32.const 32) (i32.const 5) (i32.const 0) (i32.const 4)))
      (then (i32.store (i32.const 64) (i32.load (i32.load (i32.const 0))))))
    (i32.store (i32.const 64) (i32.add (i32.load (i32.const 64)) (i32.const 1)))
    (drop (call $set_db (i32.const 32) (i32.const 5) (i32.const 64) (i32.const 4)))
    (i32.load (i32.const 64))))
"""


def put(node: RunningNode, path: str, key: bytes, value: bytes) -> Answer:
    encoded = urllib.parse.quote_plus(base64.b64encode(key).decode())
    body = {"value": base64.b64encode(value).decode(), "encoding": "base64"}
    return node.call("PUT", f"{path}&encoding=base64&key={encoded}", body)


def count(node: RunningNode, publisher: Any) -> int:
    """Run `start` and return its code."""
    answer = node.send("keys", message(publisher))
    assert answer.status == 201, answer
    code: int = answer.json["results"][0]["code"]
    return code


def test_a_written_key_is_stored_when_its_answer_comes_and_a_handler_goes_on_with_it(
    node: RunningNode, path: str
) -> None:
    publisher = node.add_publisher("keys", "p")
    created = put(node, path, b"count", (41).to_bytes(4, "little"))
    assert (created.status, created.json["created"], created.json["size"]) == (200, True, 4)
    assert count(node, publisher) == 42
    changed = node.call("PUT", f"{path}&key=count", {"value": "\x06\0\0\0"})
    assert changed.json["created"] is False
    assert count(node, publisher) == 7
    assert node.call("DELETE", f"{path}&key=count").status == 204
    assert node.call("DELETE", f"{path}&key=count").status == 404
    assert count(node, publisher) == 1


def test_keys_and_values_that_are_not_text_stand_in_a_page_beside_those_that_are(
    node: RunningNode, path: str
) -> None:
    for key, value in [(b"", b"empty"), (b"a", b"1"), (BINARY, b"2"), (b"b", b"\xff")]:
        assert put(node, path, key, value).status == 200
    pages, after = [], ""
    while True:
        page = node.call("GET", f"{path}&values=true&limit=2&after={after}").json
        pages += page["data"]
        if "next" not in page:
            break
        after = urllib.parse.quote(page["next"])
    found = {item["key"]: item for item in pages if item["key"] != "count"}
    assert list(found) == ["", "a", "b", base64.b64encode(BINARY).decode()]
    assert found["a"] == {
        "key": "a", "keyEncoding": "text", "value": "1", "encoding": "text", "size": 1,
    }  # fmt: skip
    assert (found["b"]["keyEncoding"], found["b"]["encoding"]) == ("text", "base64")
    last = pages[-1]
    assert (last["keyEncoding"], last["value"], last["encoding"]) == ("base64", "2", "text")
    everything = node.call("GET", path).json
    assert everything["encoding"] == "base64"
    assert BINARY in map(base64.b64decode, everything["data"])
    assert node.call("GET", f"{path}&prefix=a").json == {
        "appletID": everything["appletID"], "encoding": "text", "data": ["a"],
    }  # fmt: skip
    first = node.call("GET", f"{path}&limit=1&after=").json
    assert first["data"] == [""]
    assert node.call("GET", f"{path}&limit=1&after={first['next']}").json["data"] == ["a"]


def test_a_page_of_large_values_ends_before_it_is_too_large(node: RunningNode, path: str) -> None:
    for number in range(4):
        assert put(node, path, b"large%d" % number, bytes(600_000)).status == 200
    page = node.call("GET", f"{path}&prefix=large&values=true").json
    assert [item["key"] for item in page["data"]] == ["large0"]
    assert "next" in page


def test_what_is_wrong_with_a_change_is_named(node: RunningNode, path: str) -> None:
    value = {"value": "x"}
    for method, query, body, field in [
        ("PUT", "", value, "key"),
        ("PUT", "&key=a", {}, "value"),
        ("PUT", "&key=a", {"value": 5}, "value"),
        ("PUT", "&key=a", {"value": "!", "encoding": "base64"}, "value"),
        ("PUT", "&key=a", {"value": "x", "encoding": "hex"}, "encoding"),
        ("PUT", "&key=!&encoding=base64", value, "key"),
        ("DELETE", "", None, "key"),
        ("GET", "&after=!", None, "after"),
        ("GET", "&values=maybe", None, "values"),
    ]:
        answer = node.call(method, path + query, body)
        assert answer.status == 400, (method, query)
        assert [each["field"] for each in answer.json["fields"]] == [field]
    assert put(node, path, b"a", bytes(800_000)).status == 413
    assert node.call("PUT", "/kv/keys?appletID=5&key=a", value).json["key"] == "AppletNotFound"


def test_changes_by_clients_and_by_handlers_lose_nothing_of_each_other(
    node: RunningNode, path: str
) -> None:
    """Each run of the handler increments the count; each change resets it to a known number."""
    publisher = node.add_publisher("keys", "racer")
    codes: list[int] = []

    def send() -> None:
        for _ in range(60):
            codes.append(count(node, publisher))

    sender = threading.Thread(target=send)
    put(node, path, b"count", bytes(4))
    sender.start()
    resets = 0
    while sender.is_alive() and resets < 200:
        resets += 1
        put(node, path, b"count", (resets * 1_000).to_bytes(4, "little"))
    sender.join()
    for before, after in pairwise(codes):
        assert after == before + 1 or after % 1_000 <= 60
        assert after > before


def test_the_command_line_writes_lists_and_deletes_keys(
    node: RunningNode, path: str, tmp_path: Path
) -> None:
    shell = Shell(tmp_path / "home", node)
    file = tmp_path / "value"
    file.write_bytes(b"from a file")
    assert shell.text("kv", "set", "keys", "cli/one", "1") == "created cli/one: 1 byte\n"
    shell.text("kv", "set", "keys", "cli/two", f"@{file}")
    assert shell.json("kv", "list", "keys", "--prefix", "cli/", "--values") == [
        {"key": "cli/one", "size": 1, "value": "1"},
        {"key": "cli/two", "size": 11, "value": "from a file"},
    ]
    assert shell.json("kv", "list", "keys", "--prefix", "cli/", "--limit", "1") == [
        {"key": "cli/one"}
    ]
    shell.text("kv", "delete", "keys", "cli/one", "--yes")
    assert shell.json("kv", "list", "keys", "--prefix", "cli/") == [{"key": "cli/two"}]


def test_a_deleted_key_is_in_the_audit_log(node: RunningNode, path: str) -> None:
    put(node, path, b"audited", b"1")
    node.call("DELETE", f"{path}&key=audited")

    def rows() -> list[dict[str, Any]]:
        found = node.call("GET", "/audit?operation=RemoveKeyValue").json["data"]
        return [row for row in found if "key=audited" in row["path"]]

    until(rows, "the change is in the audit log")
    assert rows()[0]["status"] == 204


# ---------------------------------------------------------------- without a node


def test_a_command_finds_and_leaves_the_keys_of_the_events_around_it_in_one_batch(
    tmp_path: Path,
) -> None:
    (tmp_path / "modules").mkdir()
    made = Project(tmp_path, tmp_path / "modules", 0)

    def command(value: bytes | None) -> WireEvent:
        return WRITE_KEY, NODE_COMMAND, "", pack([made.applet_id, b"k", value]), 1, 0, ""

    def count(number: int) -> WireEvent:
        return "DEFAULT", 1, f"e{number}", b"ck", 1, 0, ""

    try:
        codes = made.round(
            [count(1), command(None), command(None), count(2), command(b"x"), command(b"y")]
        )
        assert [each[0][1] for each in codes[1:3] + codes[4:]] == [1, 0, 1, 1]
        assert codes[0][0][1] == codes[3][0][1], "the count began anew"
        assert made.store.read(kv.stored_key(kv.scope(made.applet_id), b"k")) == b"y"
    finally:
        made.close()


def test_many_commands_in_a_frame_are_no_events_for_handlers_that_share_an_instance(
    tmp_path: Path,
) -> None:
    (tmp_path / "modules").mkdir()
    made = Project(tmp_path, tmp_path / "modules", 0, isolation=PER_BATCH)
    try:
        commands: list[WireEvent] = [
            (WRITE_KEY, NODE_COMMAND, "", pack([made.applet_id, b"k%d" % n, b"v"]), 1, 0, "")
            for n in range(12)
        ]
        # An earlier event of the same type is not one of them, either.
        event: WireEvent = (WRITE_KEY, 1, "e", b"cn", 1, 0, "")
        results = made.round([event, *commands])
        assert [each[0][1] for each in results] == [1] + [0] * 12
        assert sorted(made.kept()[0]) == sorted([b"n", *[b"k%d" % n for n in range(12)]])
    finally:
        made.close()


def test_an_account_over_its_storage_quota_may_delete_keys_but_write_none(tmp_path: Path) -> None:
    (tmp_path / "modules").mkdir()
    made = Project(tmp_path, tmp_path / "modules", 0)

    def command(value: bytes | None) -> WireEvent:
        return WRITE_KEY, NODE_COMMAND, "", pack([made.applet_id, b"k", value]), 1, 0, ""

    def closed_by(reason: NodeError) -> None:
        made.executor._commands.configure(replace(made.executor._configuration, closed=reason))

    try:
        assert made.round([command(b"1")])[0][0][1] == 0
        closed_by(StorageQuotaError(account="ada"))
        refused, deleted = made.round([command(b"2"), command(None)])
        assert refused[0] == "StorageQuotaError"
        assert deleted[0][1] == 1
        closed_by(DisabledAccountError(account=made.account_id))
        assert made.round([command(None)])[0][0] == "DisabledAccountError"
    finally:
        made.close()


def test_who_may_not_read_or_write_the_keys_of_a_project(ada: User, bob: User) -> None:
    ada.project()
    applet_id = ada.applet()["appletID"]
    path = f"/kv/NftMinter?appletID={applet_id}&key=a"
    assert bob("PUT", path, {"value": "1"}).key == "ProjectNotFound"
    assert bob("DELETE", path).key == "ProjectNotFound"
    reader = holder(ada, "reader", 0, **{"Wasm Log": "READONLY"})
    assert reader("GET", path).status == 404
    for method, body in (("PUT", {"value": "1"}), ("DELETE", None)):
        assert reader(method, path, body).status == 403
    assert json.loads(ada("GET", f"{path}&values=true").body)["key"] == "NotFound"
