"""Reading the applet log and the key-value pairs of a project over HTTP."""

from __future__ import annotations

import base64

from fieldbrook.storage.project.rows import LogRow, NumberedRow
from tests.support.management import MemoryStore, Server, User


def test_the_applet_log_is_read_on_from_where_one_stopped(ada: User, server: Server) -> None:
    project = ada.project()
    empty = {"data": [], "next": "0"}
    assert ada("GET", "/applet_log/NftMinter").json == empty
    store = server.stores[int(project["projectID"])] = MemoryStore()
    for sequence in range(1, 6):
        event_id = "e1" if sequence == 1 else ""
        row = LogRow(1_666_211_451_123, 4, "wasmCode", 7, "log", event_id, f"line {sequence}")
        store.rows.append(NumberedRow(sequence, row))
    first = ada("GET", "/applet_log/NftMinter?limit=2").json
    assert first["next"] == "2"
    assert first["data"][0] == {
        "sequence": "1",
        "logTime": "2022-10-19T20:30:51.123Z",
        "level": "info",
        "src": "wasmCode",
        "appletName": "log",
        "instanceID": "7",
        "eventID": "e1",
        "msg": "line 1",
    }
    assert "eventID" not in first["data"][1]
    following = ada("GET", "/applet_log/NftMinter?after=2").json
    assert [row["sequence"] for row in following["data"]] == ["3", "4", "5"]
    assert ada("GET", "/applet_log/NftMinter?after=5").json == {"data": [], "next": "5"}
    assert len(ada("GET", "/applet_log/NftMinter?after=-2").json["data"]) == 2
    for query, name in [("limit=0", "limit"), ("limit=1001", "limit"), ("after=x", "after")]:
        assert list(ada("GET", f"/applet_log/NftMinter?{query}").fields) == [name]


def test_a_warning_has_one_name_and_is_found_by_its_older_one_too(
    ada: User, server: Server
) -> None:
    project = ada.project()
    store = server.stores[int(project["projectID"])] = MemoryStore()
    for level in range(9):
        row = LogRow(1_666_211_451_123, level, "wasmCode", 7, "log", "", f"level {level}")
        store.rows.append(NumberedRow(level + 1, row))
    rows = ada("GET", "/applet_log/NftMinter").json["data"]
    assert [row["level"] for row in rows] == [
        *("panic", "fatal", "error", "warning", "info", "debug", "trace", "unknown", "unknown")
    ]
    for name in ("warning", "warn"):
        severe = ada("GET", f"/applet_log/NftMinter?level={name}").json["data"]
        assert [row["msg"] for row in severe] == [f"level {level}" for level in range(4)]
    assert list(ada("GET", "/applet_log/NftMinter?level=loud").fields) == ["level"]


def test_the_pairs_an_applet_stored_are_read(ada: User, server: Server) -> None:
    project = ada.project()
    applet_id = ada.applet()["appletID"]
    path = f"/kv/NftMinter?appletID={applet_id}"
    assert ada("GET", path).json["data"] == []
    assert ada("GET", f"{path}&key=a").key == "NotFound"
    store = server.stores[int(project["projectID"])] = MemoryStore()
    for key, value in [(b"a", b"4"), (b"ab", b"<2>"), (b"b", b"\xff\x00")]:
        store.pairs[int(applet_id), key] = value
    assert ada("GET", path).json["data"] == ["a", "ab", "b"]
    assert ada("GET", f"{path}&prefix=a&limit=1").json["data"] == ["a"]
    assert ada("GET", f"{path}&key=ab").json["value"] == "<2>"
    assert list(ada("GET", f"{path}&key=b").fields) == ["encoding"]
    encoded = ada("GET", f"{path}&key=Yg==&encoding=BASE64").json
    assert base64.b64decode(encoded["value"]) == b"\xff\x00"
    assert list(ada("GET", f"{path}&key=!&encoding=base64").fields) == ["key"]
    assert list(ada("GET", f"{path}&encoding=hex").fields) == ["encoding"]
    assert ada("GET", "/kv/NftMinter").fields == {"appletID": "missing required field"}
    assert ada("GET", "/kv/NftMinter?appletID=5").key == "AppletNotFound"
