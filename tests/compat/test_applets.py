"""Applets, their versions and instances, over the routes of both generations."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from fieldbrook.storage.registry.service import RegistryReader
from tests.support.management import LOG_WAT, PLAIN_WAT, V0, Reply, Server, User, wasm

P = "NftMinter"


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def module(number: int) -> bytes:
    """Return a small module that differs for each number."""
    return wasm(PLAIN_WAT.replace("i32.const 1)", f"i32.const {number})"))


def form(**parts: bytes) -> tuple[bytes, dict[str, str]]:
    """Return a multipart body of named parts, with `file` as a file."""
    body = b""
    for name, content in parts.items():
        filename = b'; filename="f.wasm"' if name == "file" else b""
        head = b'--B\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n'
        body += head % (name.encode(), filename) + content + b"\r\n"
    return body + b"--B--\r\n", {"Content-Type": "multipart/form-data; boundary=B"}


@pytest.fixture
def applet(ada: User) -> dict[str, Any]:
    ada.project(P)
    return ada.applet(P)


# ---------------------------------------------------------------- uploads


@pytest.mark.parametrize(
    "content_type",
    [
        'Multipart/Form-Data; charset=utf-8; boundary="B"',
        "multipart/form-data; Boundary=B",
    ],
)
def test_an_upload_may_have_words_around_its_parts_and_name_them_in_any_case(
    ada: User, content_type: str
) -> None:
    ada.project(P)
    for number, order in enumerate((("file", "info"), ("info", "file"))):
        parts = {"file": module(number), "info": b'{"appletName":"a%d"}' % number}
        body, _ = form(**{name: parts[name] for name in order})
        body = b"for old readers\r\n" + body + b"the end\r\n"
        headers = {"Authorization": ada.token, "Content-Type": content_type}
        reply = ada.server.send("POST", f"{V0}/applet/x/{P}", body, headers)
        assert reply.status == 201, reply.body
        assert reply.json["resource"]["md5"] == md5(parts["file"])


def test_an_upload_of_an_empty_file_is_a_bad_request_and_names_its_size(ada: User) -> None:
    ada.project(P)
    applet = ada.applet(P)
    for method, path, info in (
        ("POST", f"/applet/x/{P}", {"appletName": "log"}),
        ("POST", f"/applet/{P}", {"appletName": "log"}),
        ("PUT", f"/applet/{applet['appletID']}", {}),
        ("POST", "/project/import", {}),
    ):
        refused = ada.upload(method, path, b"", info)
        assert (refused.status, refused.json["key"]) == (400, "badRequest"), path
        (field,) = refused.json["fields"]
        assert (field["field"], field["msg"]) == ("file.Size", "missing required field"), path
    assert ada("GET", f"/applet/x/{P}/datalist").json["total"] == 1


def test_an_upload_whose_file_name_is_not_utf_8_is_a_bad_request(ada: User) -> None:
    ada.project(P)
    body, headers = form(file=module(1), info=b'{"appletName":"a"}')
    body = body.replace(b"f.wasm", b"caf\xe9.wasm")
    headers["Authorization"] = ada.token
    reply = ada.server.send("POST", f"{V0}/applet/x/{P}", body, headers)
    assert (reply.status, reply.json["key"]) == (400, "badRequest")


def test_a_later_client_uploads_behind_x(ada: User) -> None:
    ada.project(P)
    file = wasm(LOG_WAT)
    info = {
        "appletName": "log",
        "wasmName": "log.wasm",
        "wasmMd5": md5(file),
        "wasmCache": {"mode": "redis", "prefix": "shared"},
        "unknown": {"key": 1},
    }
    created = ada.upload("POST", f"/applet/x/{P}", file, info)
    assert created.status == 201, created.body
    made = created.json
    assert (made["name"], made["version"]) == ("log", 1)
    assert made["wasmCache"] == {"mode": "REDIS", "prefix": "shared"}
    assert made["instance"]["state"] == "STARTED"
    assert made["resource"]["md5"] == md5(file)
    assert ada("GET", f"/applet/data/{made['appletID']}").json["name"] == "log"
    (row,) = ada("GET", f"/applet/x/{P}/datalist").json["data"]
    assert (row["appletID"], row["resource"]) == (made["appletID"], made["resource"])


def test_a_file_that_was_damaged_on_its_way_is_not_even_compiled(ada: User, server: Server) -> None:
    ada.project(P)
    file = wasm(LOG_WAT)
    info = {"appletName": "log", "wasmMd5": md5(file)}
    for path in (f"/applet/x/{P}", f"/applet/{P}"):
        damaged = ada.upload("POST", path, file[:-1], info)
        assert (damaged.status, damaged.key) == (403, "UploadFileMd5Unmatched")
        odd = ada.upload("POST", path, file, {**info, "wasmMd5": "é"})
        assert odd.key == "UploadFileMd5Unmatched"
    assert not list(server.folder.glob("modules/*"))
    assert ada.upload("POST", f"/applet/x/{P}", file, info).status == 201


@pytest.mark.parametrize(
    ("info", "field"),
    [
        ({}, "appletName"),
        ({"appletName": ""}, "appletName"),
        ({"appletName": "a" * 257}, "appletName"),
        ({"appletName": 5}, "appletName"),
        ({"appletName": "a", "wasmCache": 5}, "wasmCache"),
        ({"appletName": "a", "wasmCache": {"mode": "DISK"}}, "wasmCache.mode"),
        ({"appletName": "a", "wasmCache": {"prefix": "p" * 257}}, "wasmCache.prefix"),
        ({"appletName": "a", "strategies": [{"handler": "start"}]}, "strategies[0].eventType"),
        ({"appletName": "a", "isolation": "NONE"}, "isolation"),
    ],
)
def test_the_answer_to_an_invalid_upload_names_the_field(ada: User, info: Any, field: str) -> None:
    ada.project(P)
    for path in (f"/applet/x/{P}", f"/applet/{P}"):
        refused = ada.upload("POST", path, wasm(LOG_WAT), info)
        assert list(refused.fields) == [f"info.{field}"]
    assert ada("GET", f"/applet/{P}").json == {"data": [], "total": 0, "hints": 0}


def test_an_applet_is_updated_and_deployed_in_one(
    ada: User, server: Server, applet: dict[str, Any]
) -> None:
    applet_id, instance_id = applet["appletID"], applet["instance"]["instanceID"]
    assert ada("PUT", f"/deploy/{instance_id}/STOP").status == 204
    body, headers = form(
        file=wasm(PLAIN_WAT), info=b'{"appletName":"b"}', cache=b'{"prefix":"shared"}'
    )
    headers["Authorization"] = ada.token
    done = server.send("PUT", f"{V0}/applet/{applet_id}/{instance_id}", body, headers)
    assert (done.status, done.body) == (204, b"")
    changed = ada("GET", f"/applet/data/{applet_id}").json
    assert (changed["name"], changed["version"]) == ("b", 2)
    assert changed["wasmCache"] == {"mode": "MEMORY", "prefix": "shared"}
    assert changed["instances"][0]["state"] == "STARTED"
    for info in ({"appletName": "c"}, {"appletName": "b"}):
        ada("PUT", f"/deploy/{instance_id}/STOP")
        assert ada.upload("PUT", f"/applet/{applet_id}/{instance_id}", None, info).status == 204
        assert ada("GET", f"/deploy/applet/{applet_id}").json["state"] == "STARTED"
    other = ada.upload("PUT", f"/applet/{applet_id}/5", None, {"appletName": "d"})
    assert other.key == "InstanceNotFound"
    body, headers = form(info=b'{"appletName":"b"}', cache=b'{"mode":"DISK"}')
    headers["Authorization"] = ada.token
    refused = server.send("PUT", f"{V0}/applet/{applet_id}/{instance_id}", body, headers)
    assert list(refused.fields) == ["cache.mode"]


# ---------------------------------------------------------------- lists


def test_applets_are_filtered_in_both_lists_and_when_they_are_removed(ada: User) -> None:
    ada.project(P)
    ids = {name: ada.applet(P, name)["appletID"] for name in ("tally", "log", "prolog")}

    def names(query: str) -> list[str]:
        seed = ada("GET", f"/applet/{P}?{query}").json
        later = ada("GET", f"/applet/x/{P}/datalist?{query}").json
        assert [row["name"] for row in seed["data"]] == [row["name"] for row in later["data"]]
        assert seed["hints"] == later["total"]
        return [row["name"] for row in later["data"]]

    assert names("") == ["prolog", "log", "tally"]
    assert names(f"appletID={ids['log']}&appletID={ids['tally']}") == ["log", "tally"]
    assert names("names=log&names=none") == ["log"]
    assert names("name=lo") == ["prolog", "log"]
    assert names("lName=log") == ["prolog", "log"]
    assert names("size=1&offset=1") == ["log"]
    assert names(f"size={10**15}") == ["prolog", "log", "tally"]
    assert names(f"offset={10**15}") == []
    for path in (f"/applet/x/{P}/datalist", f"/applet/{P}"):
        assert list(ada("GET", f"{path}?appletID=x&size=-2").fields) == ["size", "appletID[0]"]
    assert list(ada("DELETE", f"/applet/x/{P}?appletID=x").fields) == ["appletID[0]"]
    assert ada("DELETE", f"/applet/x/{P}?name=lo").status == 204
    assert names("") == ["tally"]
    assert ada("DELETE", f"/applet/x/{P}?name=none").status == 204
    assert ada("DELETE", f"/applet/x/{P}").status == 204
    assert names("") == []
    assert ada("DELETE", f"/applet/x/{P}").status == 204


def test_removing_applets_by_their_ids_ends_no_other_projects(ada: User) -> None:
    ada.project(P)
    ada.project("other")
    ada.applet(P)
    kept = ada.applet("other")["appletID"]
    assert ada("DELETE", f"/applet/x/{P}?appletID={kept}").status == 204
    assert ada("GET", f"/applet/data/{kept}").status == 200
    assert ada("GET", f"/applet/{P}").json["total"] == 1


def test_an_applet_is_removed_by_its_id_alone(ada: User, applet: dict[str, Any]) -> None:
    path = f"/applet/data/{applet['appletID']}"
    assert (ada("DELETE", path).status, ada("DELETE", path).key) == (204, "AppletNotFound")
    assert ada("GET", path).key == "AppletNotFound"
    assert ada("GET", "/applet/data/abc").fields
    assert ada("GET", f"/strategy/x/{P}/datalist").json["total"] == 0


# ---------------------------------------------------------------- versions


def versions(user: User, applet_id: str) -> list[tuple[int, bool]]:
    rows = user("GET", f"/applet/data/{applet_id}/versions").json
    assert rows["total"] == len(rows["data"])
    return [(row["version"], row["current"]) for row in rows["data"]]


def deploy(user: User, applet_id: str, content: bytes) -> Reply:
    done = user.upload("PUT", f"/applet/{applet_id}", content, None)
    assert done.status == 200, done.body
    return done


def test_every_uploaded_module_is_a_version_one_can_go_back_to(
    ada: User, applet: dict[str, Any]
) -> None:
    applet_id = applet["appletID"]
    assert versions(ada, applet_id) == [(1, True)]
    assert deploy(ada, applet_id, module(2)).json["version"] == 2
    assert deploy(ada, applet_id, module(3)).json["version"] == 3
    assert versions(ada, applet_id) == [(3, True), (2, False), (1, False)]
    back = ada("PUT", f"/applet/data/{applet_id}/versions/1")
    assert (back.status, back.json["version"]) == (200, 1)
    assert back.json["resourceID"] == applet["resourceID"]
    assert back.json["wasmName"] == applet["wasmName"]
    assert back.json["strategies"] == applet["strategies"]
    assert versions(ada, applet_id) == [(3, False), (2, False), (1, True)]
    first = ada("GET", f"/applet/data/{applet_id}/versions").json["data"][-1]
    assert first["md5"] == md5(wasm(LOG_WAT))
    assert first["sha256"] == hashlib.sha256(wasm(LOG_WAT)).hexdigest()
    assert sorted(first["handlers"]) == ["mint", "start"]
    assert deploy(ada, applet_id, module(4)).json["version"] == 4
    assert versions(ada, applet_id)[0] == (4, True)


def test_a_version_names_the_account_that_uploaded_it(
    ada: User, root: User, applet: dict[str, Any]
) -> None:
    applet_id = applet["appletID"]
    deploy(root, applet_id, module(2))
    rows = ada("GET", f"/applet/data/{applet_id}/versions").json["data"]
    authors = [row["author"] for row in rows]
    assert authors == [root.account.username, ada.account.username]


def test_the_module_that_runs_already_is_no_new_version(ada: User, applet: dict[str, Any]) -> None:
    applet_id = applet["appletID"]
    deploy(ada, applet_id, module(2))
    deploy(ada, applet_id, module(2))
    assert ada.upload("PUT", f"/applet/{applet_id}", None, {"appletName": "b"}).status == 200
    assert versions(ada, applet_id) == [(2, True), (1, False)]
    deploy(ada, applet_id, wasm(LOG_WAT))
    assert versions(ada, applet_id) == [(3, True), (2, False), (1, False)]
    assert len(ada("GET", "/resource").json["data"]) == 2


def test_only_so_many_versions_are_kept_and_the_one_that_runs(
    ada: User, applet: dict[str, Any]
) -> None:
    applet_id = applet["appletID"]  # the test's node keeps three
    for number in range(2, 6):
        deploy(ada, applet_id, module(number))
    assert versions(ada, applet_id) == [(5, True), (4, False), (3, False)]
    gone = ada("PUT", f"/applet/data/{applet_id}/versions/1")
    assert (gone.status, gone.key) == (404, "AppletVersionNotFound")
    ada("PUT", f"/applet/data/{applet_id}/versions/3")
    assert versions(ada, applet_id) == [(5, False), (4, False), (3, True)]
    deploy(ada, applet_id, module(6))
    assert versions(ada, applet_id) == [(6, True), (5, False), (4, False)]


def test_an_instance_that_was_removed_or_stopped_starts_with_an_earlier_version(
    ada: User, applet: dict[str, Any]
) -> None:
    applet_id, instance_id = applet["appletID"], applet["instance"]["instanceID"]
    deploy(ada, applet_id, module(2))
    ada("PUT", f"/deploy/{instance_id}/STOP")
    back = ada("PUT", f"/applet/data/{applet_id}/versions/1").json
    assert back["instance"] == ada("GET", f"/deploy/instance/{instance_id}").json
    assert back["instance"]["state"] == "STARTED"
    ada("DELETE", f"/deploy/data/{instance_id}")
    again = ada("PUT", f"/applet/data/{applet_id}/versions/2").json
    assert again["instance"]["state"] == "STARTED"
    assert again["instance"]["instanceID"] != instance_id


def test_unknown_versions_are_refused(ada: User, bob: User, applet: dict[str, Any]) -> None:
    path = f"/applet/data/{applet['appletID']}/versions"
    assert list(ada("PUT", f"{path}/latest").fields) == ["version"]
    for number in ("0", "2", str(2**63 - 1)):
        assert ada("PUT", f"{path}/{number}").key == "AppletVersionNotFound"
    assert list(ada("GET", "/applet/data/abc/versions").fields) == ["appletID"]
    for user, method, where in (
        (bob, "GET", path),
        (bob, "PUT", f"{path}/1"),
        (ada, "GET", "/applet/data/5/versions"),
        (ada, "PUT", "/applet/data/5/versions/1"),
    ):
        assert user(method, where).key == "AppletNotFound"
    ada("DELETE", f"/project/{P}")
    assert ada("GET", path).key == "AppletNotFound"


def test_what_is_removed_leaves_no_versions_behind(
    ada: User, server: Server, applet: dict[str, Any]
) -> None:
    reader: RegistryReader = server.writer.reader()
    deploy(ada, applet["appletID"], module(2))
    other = ada.applet(P, "other")["appletID"]
    ada("DELETE", f"/applet/{applet['appletID']}")
    assert reader.applet_versions(int(applet["appletID"])) == []
    assert len(reader.applet_versions(int(other))) == 1
    ada("DELETE", f"/project/{P}")
    assert reader.applet_versions(int(other)) == []


def test_a_deleted_resource_is_in_no_list_and_its_applet_goes_on(
    ada: User, server: Server, applet: dict[str, Any]
) -> None:
    applet_id, first = applet["appletID"], applet["resourceID"]
    second = deploy(ada, applet_id, module(2)).json["resourceID"]
    for resource_id in (first, second):
        assert ada("DELETE", f"/resource/{resource_id}").status == 204
        for method, path in (("DELETE", "/resource/"), ("GET", "/resource/data/")):
            assert ada(method, f"{path}{resource_id}").key == "ResourcePermNotFound"
    assert ada("GET", "/resource").json == {"data": [], "total": 0}
    shown = ada("GET", f"/applet/x/{P}/datalist").json["data"][0]
    assert shown["resource"]["resourceID"] == second
    assert versions(ada, applet_id) == [(2, True), (1, False)]
    assert ada("PUT", f"/applet/data/{applet_id}/versions/1").json["resourceID"] == first
    again = ada.upload("POST", f"/applet/{P}", wasm(LOG_WAT), {"appletName": "again"}).json
    assert again["resourceID"] == first
    assert [row["resourceID"] for row in ada("GET", "/resource").json["data"]] == [first]
    ada("DELETE", f"/applet/{applet_id}")
    reader: RegistryReader = server.writer.reader()
    assert [str(row.resource_id) for row in reader.resources()] == [first]


# ---------------------------------------------------------------- instances


def test_the_seed_eras_way_to_run_an_applet_ends_with_one_that_runs(
    ada: User, applet: dict[str, Any]
) -> None:
    made = ada("POST", f"/deploy/applet/{applet['appletID']}")
    assert (made.status, made.json["instanceID"]) == (201, applet["instance"]["instanceID"])
    instance_id = made.json["instanceID"]
    assert ada("PUT", f"/deploy/{instance_id}/START").status == 204
    again = ada("POST", f"/deploy/applet/{applet['appletID']}/{instance_id}", {"cache": None})
    assert (again.status, again.json["instanceID"]) == (201, instance_id)
    assert ada("GET", f"/deploy/applet/{applet['appletID']}").json["state"] == "STARTED"


def test_deploying_sets_the_cache_and_starts_what_was_stopped(
    ada: User, applet: dict[str, Any]
) -> None:
    applet_id, instance_id = applet["appletID"], applet["instance"]["instanceID"]
    ada("PUT", f"/deploy/{instance_id}/HUNGUP")
    cache = {"mode": "redis", "prefix": "p"}
    made = ada("POST", f"/deploy/applet/{applet_id}", {"cache": cache})
    assert made.json["state"] == "STARTED"
    assert ada("GET", f"/applet/data/{applet_id}").json["wasmCache"]["prefix"] == "p"
    ada("POST", f"/deploy/applet/{applet_id}/{instance_id}", {"cache": {"mode": "MEMORY"}})
    assert ada("GET", f"/applet/data/{applet_id}").json["wasmCache"] == {"mode": "MEMORY"}


def test_an_instance_that_was_removed_is_not_deployed_to(ada: User, applet: dict[str, Any]) -> None:
    path = f"/applet/{applet['appletID']}/{applet['instance']['instanceID']}"
    ada("DELETE", f"/deploy/data/{applet['instance']['instanceID']}")
    refused = ada.upload("PUT", path, wasm(PLAIN_WAT), {"appletName": "b"})
    assert (refused.status, refused.key) == (404, "InstanceNotFound")
    assert ada("GET", f"/applet/data/{applet['appletID']}").json["version"] == 1
    again = ada.upload("PUT", f"/applet/{applet['appletID']}", wasm(PLAIN_WAT), None).json
    assert (again["version"], again["instance"]["state"]) == (2, "STARTED")


def test_an_instance_is_removed_and_made_anew(ada: User, applet: dict[str, Any]) -> None:
    applet_id, instance_id = applet["appletID"], applet["instance"]["instanceID"]
    for method, path in (
        ("DELETE", "/deploy/data/{}"),
        ("PUT", "/deploy/{}/REMOVE"),
        ("DELETE", f"/deploy/x/{P}?instanceID={{}}"),
    ):
        assert ada(method, path.format(instance_id)).status == 204
        assert ada("GET", f"/deploy/instance/{instance_id}").key == "InstanceNotFound"
        assert ada("GET", f"/deploy/applet/{applet_id}").key == "InstanceNotFound"
        assert ada("PUT", f"/deploy/{instance_id}/START").key == "InstanceNotFound"
        assert ada("DELETE", f"/deploy/data/{instance_id}").key == "InstanceNotFound"
        assert ada("GET", f"/applet/data/{applet_id}").json["instances"] == []
        assert ada("GET", f"/applet/x/{P}/datalist").json["data"][0]["instance"] is None
        row = ada("GET", "/project").json["data"][0]["applets"][0]
        assert (row["appletName"], "instanceID" in row) == ("log", False)
        made = ada("POST", f"/deploy/applet/{applet_id}").json
        assert (made["state"], made["instanceID"] != instance_id) == ("STARTED", True)
        instance_id = made["instanceID"]
    assert ada("DELETE", f"/applet/data/{applet_id}").status == 204


def test_instances_of_a_project_are_removed_by_filter(ada: User) -> None:
    ada.project(P)
    first, second, third = (ada.applet(P, name) for name in "abc")
    ada("PUT", f"/deploy/{second['instance']['instanceID']}/STOP")

    def running() -> list[str]:
        rows = ada("GET", f"/applet/{P}?size=-1").json["data"]
        return sorted(row["name"] for row in rows if row["instances"])

    assert ada("DELETE", f"/deploy/x/{P}?state=stopped").status == 204
    assert running() == ["a", "c"]
    assert ada("DELETE", f"/deploy/x/{P}?appletID={first['appletID']}").status == 204
    assert running() == ["c"]
    assert ada("DELETE", f"/deploy/x/{P}?instanceID=5").status == 204
    assert list(ada("DELETE", f"/deploy/x/{P}?state=FLYING").fields) == ["state[0]"]
    assert ada("DELETE", "/deploy/x/none").key == "ProjectNotFound"
    assert ada("DELETE", f"/deploy/x/{P}").status == 204
    assert running() == []
    assert ada("GET", f"/applet/{P}").json["total"] == 3
    assert third["instance"]["state"] == "STARTED"


def test_unknown_instances_and_those_of_others_are_not_found(
    ada: User, bob: User, applet: dict[str, Any]
) -> None:
    applet_id, instance_id = applet["appletID"], applet["instance"]["instanceID"]
    bob.project("other")
    own = bob.applet("other")
    for user, method, path, key in (
        (bob, "POST", f"/deploy/applet/{applet_id}", "AppletNotFound"),
        (ada, "POST", "/deploy/applet/5", "AppletNotFound"),
        (bob, "POST", f"/deploy/applet/{applet_id}/{instance_id}", "InstanceNotFound"),
        (ada, "POST", f"/deploy/applet/{applet_id}/5", "InstanceNotFound"),
        (bob, "POST", f"/deploy/applet/{applet_id}/{own['instance']['instanceID']}", None),
        (bob, "DELETE", f"/deploy/data/{instance_id}", "InstanceNotFound"),
        (bob, "DELETE", f"/deploy/x/{P}", "ProjectNotFound"),
        (bob, "PUT", f"/deploy/{instance_id}/REMOVE", "InstanceNotFound"),
        (bob, "DELETE", f"/wasmlog/{instance_id}", "InstanceNotFound"),
        (ada, "DELETE", "/wasmlog/5", "InstanceNotFound"),
        (bob, "GET", f"/applet/data/{applet_id}", "AppletNotFound"),
        (bob, "DELETE", f"/applet/data/{applet_id}", "AppletNotFound"),
        (bob, "GET", f"/applet/x/{P}/datalist", "ProjectNotFound"),
        (bob, "DELETE", f"/applet/x/{P}", "ProjectNotFound"),
    ):
        assert user(method, path).key == (key or "InstanceNotFound"), path
    info = {"appletName": "b"}
    refused = bob.upload("PUT", f"/applet/{applet_id}/{instance_id}", None, info)
    assert refused.key == "AppletNotFound"
    assert bob.upload("POST", f"/applet/x/{P}", wasm(LOG_WAT), info).key == "ProjectNotFound"
    bad = {"instanceID": 'strconv.ParseUint: parsing "abc": invalid syntax'}
    assert ada("DELETE", "/deploy/data/abc").fields == bad
    assert ada("DELETE", "/wasmlog/abc").fields == bad
    for body in ({"cache": 5}, {"cache": {"mode": "DISK"}}):
        assert len(ada("POST", f"/deploy/applet/{applet_id}", body).fields) == 1
    assert ada("GET", f"/deploy/instance/{instance_id}").json["state"] == "STARTED"


def test_commands_that_are_empty_or_unknown_are_bad_requests(
    ada: User, applet: dict[str, Any]
) -> None:
    instance_id = applet["instance"]["instanceID"]
    for word in ("-", "FLY", "STARTED", "CREATE", "create", "%20", "a" * 300):
        refused = ada("PUT", f"/deploy/{instance_id}/{word}")
        assert list(refused.fields) == ["cmd"]
        assert refused.json["fields"][0]["in"] == "path"
