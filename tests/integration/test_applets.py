"""Applets, their instances and their modules over the routes of early clients."""

from __future__ import annotations

import hashlib

import pytest

from tests.support.management import (
    LOG_WAT,
    NO_START_WAT,
    PLAIN_WAT,
    UNLINKABLE_WAT,
    UPLOAD_LIMIT,
    V0,
    Server,
    User,
    wasm,
)


def test_an_uploaded_applet_runs_start_by_default(ada: User, server: Server) -> None:
    ada.project()
    created = ada.applet()
    keys = {"appletID", "projectID", "resourceID", "name", "wasmName", "instance", "strategies"}
    assert keys <= set(created)
    assert (created["name"], created["wasmName"]) == ("log", "log.wasm")
    assert created["instance"]["instanceState"] == "STARTED"
    (strategy,) = created["strategies"]
    assert (strategy["eventType"], strategy["handler"]) == ("DEFAULT", "start")
    digest = hashlib.md5(wasm(LOG_WAT), usedforsecurity=False).hexdigest()
    assert created["resource"]["md5"] == digest
    assert list((server.folder / "uploads").iterdir()) == []


def test_an_upload_may_bring_its_strategies_and_its_md5(ada: User) -> None:
    ada.project()
    info = {
        "appletName": "log",
        "wasmName": "named.wasm",
        "wasmMd5": hashlib.md5(wasm(LOG_WAT), usedforsecurity=False).hexdigest().upper(),
        "strategies": [
            {"eventType": "MINT", "handler": "mint"},
            {"EVENTTYPE": "DEFAULT", "handler": "start"},
        ],
    }
    created = ada.upload("POST", "/applet/NftMinter", wasm(LOG_WAT), info)
    assert created.status == 201
    assert created.json["wasmName"] == "named.wasm"
    rules = [(s["eventType"], s["handler"]) for s in created.json["strategies"]]
    assert rules == [("MINT", "mint"), ("DEFAULT", "start")]
    unmatched = {**info, "appletName": "other", "wasmMd5": "00" * 16}
    refused = ada.upload("POST", "/applet/NftMinter", wasm(LOG_WAT), unmatched)
    assert (refused.status, refused.key) == (403, "UploadFileMd5Unmatched")


def test_an_upload_without_its_parts_says_which_are_missing(ada: User, server: Server) -> None:
    ada.project()
    info = {"appletName": "log"}
    file = wasm(LOG_WAT)
    upload = ada.upload
    assert list(upload("POST", "/applet/NftMinter", None, info).fields) == ["file"]
    assert list(upload("POST", "/applet/NftMinter", file, None).fields) == ["info"]
    assert list(upload("POST", "/applet/NftMinter", None, None).fields) == ["file", "info"]
    assert list(upload("POST", "/applet/NftMinter", file, {}).fields) == ["info.appletName"]
    assert list(upload("POST", "/applet/NftMinter", file, b"nonsense").fields) == ["info"]
    rule = {"appletName": "log", "strategies": [{"eventType": "A"}]}
    refused = upload("POST", "/applet/NftMinter", file, rule)
    assert list(refused.fields) == ["info.strategies[0].handler"]
    assert set(ada("POST", "/applet/NftMinter", info).fields) == {"file", "info"}
    headers = {"Authorization": ada.token, "Content-Type": "multipart/form-data; boundary=B"}
    cut = server.send("POST", f"{V0}/applet/NftMinter", b"--B\r\nno end", headers)
    assert cut.status == 400


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"\0asm\1\0\0\0rest", ""), (b"(module", "expected"), (UNLINKABLE_WAT, "no_such_function")],
)
def test_a_module_that_cannot_run_is_refused_and_leaves_nothing(
    ada: User, server: Server, content: bytes | str, reason: str
) -> None:
    ada.project()
    file = wasm(content) if isinstance(content, str) else content
    reply = ada.upload("POST", "/applet/NftMinter", file, {"appletName": "log"})
    assert (reply.status, reply.key) == (500, "CreateInstanceFailed")
    assert reason in reply.json["desc"]
    assert ada("GET", "/applet/NftMinter").json["total"] == 0
    assert ada("GET", "/resource").json == {"data": [], "total": 0}
    assert list((server.folder / "uploads").iterdir()) == []


def test_a_file_that_is_no_module_is_a_bad_request_which_says_what_it_is(
    ada: User, server: Server
) -> None:
    ada.project()
    for content, found in [
        (b"# fieldbrook\n\nAn event node", "a text that begins with '# fieldbrook\\n\\nAn'"),
        (b"\x7fELF\x02\x01\x01" + bytes(9) + b"\xff", "binary data that begins with '\\x7fELF"),
    ]:
        reply = ada.upload("POST", "/applet/NftMinter", content, {"appletName": "log"})
        assert (reply.status, reply.key) == (400, "badRequest"), reply
        assert found in reply.fields["file"]
    assert not list(server.folder.glob("uploads/*"))
    assert ada("GET", "/resource").json == {"data": [], "total": 0}


def test_an_upload_beyond_the_limit_is_refused(ada: User, server: Server) -> None:
    ada.project()
    info = {"appletName": "log"}
    for size in (UPLOAD_LIMIT + 1, UPLOAD_LIMIT + 200_000, 3 * UPLOAD_LIMIT):
        reply = ada.upload("POST", "/applet/NftMinter", b"x" * size, info)
        assert (reply.status, reply.key) == (403, "UploadFileSizeLimit")
    assert not list(server.folder.glob("uploads/*"))


def test_an_applet_gets_another_module_and_another_name(ada: User) -> None:
    ada.project()
    applet_id = ada.applet()["appletID"]
    renamed = ada.upload("PUT", f"/applet/{applet_id}", None, {"appletName": "other"})
    assert (renamed.status, renamed.json["name"]) == (200, "other")
    swapped = ada.upload("PUT", f"/applet/{applet_id}", wasm(PLAIN_WAT), None)
    assert swapped.json["name"] == "other"
    assert swapped.json["resourceID"] != renamed.json["resourceID"]
    assert len(ada("GET", "/resource").json["data"]) == 2
    rules = {"strategies": [{"eventType": "DEFAULT", "handler": "mint"}]}
    replaced = ada.upload("PUT", f"/applet/{applet_id}", wasm(NO_START_WAT), rules)
    assert [s["handler"] for s in replaced.json["strategies"]] == ["mint"]
    assert list(ada.upload("PUT", f"/applet/{applet_id}", None, None).fields) == ["info"]
    assert ada.upload("PUT", "/applet/5", None, {"appletName": "x"}).key == "AppletNotFound"
    refused = ada.upload("PUT", f"/applet/{applet_id}", b"nonsense", None)
    assert refused.fields.keys() == {"file"}


@pytest.mark.parametrize(
    ("command", "state"), [("stop", "STOPPED"), ("HUNGUP", "STOPPED"), ("ReStart", "STARTED")]
)
def test_an_instance_is_controlled(ada: User, command: str, state: str) -> None:
    ada.project()
    created = ada.applet()
    instance_id, applet_id = created["instance"]["instanceID"], created["appletID"]
    done = ada("PUT", f"/deploy/{instance_id}/{command}")
    assert (done.status, done.body) == (204, b"")
    instance = ada("GET", f"/deploy/instance/{instance_id}").json
    assert (instance["instanceState"], instance["appletID"]) == (state, applet_id)
    assert ada("GET", f"/deploy/applet/{applet_id}").json == instance
    assert ada("PUT", f"/deploy/{instance_id}/START").status == 204
    assert ada("GET", f"/deploy/instance/{instance_id}").json["state"] == "STARTED"


@pytest.mark.parametrize("text", ["abc", "-1", "1.0", "0x5", "99999999999999999999", "%D9%A3"])
def test_a_malformed_id_is_refused_in_every_place(ada: User, text: str) -> None:
    ada.project()
    for method, path, name in [
        ("DELETE", f"/applet/{text}", "appletID"),
        ("GET", f"/deploy/applet/{text}", "appletID"),
        ("GET", f"/resource/data/{text}", "resourceID"),
        ("GET", f"/strategy/NftMinter/{text}", "strategyID"),
        ("DELETE", f"/strategy/NftMinter?strategyID={text}", "strategyID[0]"),
    ]:
        assert list(ada(method, path).fields) == [name]


def test_a_resource_is_listed_downloaded_and_removed(ada: User) -> None:
    ada.project()
    created = ada.applet()
    (listed,) = ada("GET", "/resource").json["data"]
    resource_id = created["resourceID"]
    assert listed["resourceID"] == resource_id
    file = ada("GET", f"/resource/data/{resource_id}")
    assert (file.status, file.body) == (200, wasm(LOG_WAT))
    assert file.headers["Content-Disposition"] == "attachment; filename=log.wasm"
    ada("DELETE", f"/applet/{created['appletID']}")
    assert ada("DELETE", f"/resource/{resource_id}").status == 204
    assert ada("GET", f"/resource/data/{resource_id}").key == "ResourcePermNotFound"
    assert ada("DELETE", f"/resource/{resource_id}").key == "ResourcePermNotFound"


def test_a_file_name_cannot_forge_headers(ada: User) -> None:
    ada.project()
    name = "a; b=é\t/../x.wasm"
    info = {"appletName": "log"}
    created = ada.upload("POST", "/applet/NftMinter", wasm(LOG_WAT), info, name).json
    file = ada("GET", f"/resource/data/{created['resourceID']}")
    disposition = file.headers["Content-Disposition"]
    assert disposition.startswith("attachment; filename=")
    assert disposition.count(";") == 1
    assert "/" not in disposition
