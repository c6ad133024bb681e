"""The original's own integration scenarios for projects, applets, instances and resources.

Source: interface document, 12.2 (scenarios 1 to 7 and 12), 2, 2b and 11. The scenarios run
over both generations' routes where both have them.
"""

from __future__ import annotations

import json
import re
import socket
from typing import Any

import pytest

from tests.support.management import LOG_WAT, Server, User, wasm

PROJECT = "test_project"
LATER, SEED = f"x/{PROJECT}", PROJECT
LOG = wasm(LOG_WAT)
INFO = {"appletName": "test_applet", "wasmName": "log.wasm"}


@pytest.fixture
def admin(root: User) -> User:
    """Upstream's tests are an administrator's."""
    return root


def create(user: User, **more: Any) -> Any:
    made = user("POST", "/project", {"name": PROJECT, **more})
    assert made.status == 201, made.body
    return made.json


def upload(user: User, where: str = LATER) -> Any:
    made = user.upload("POST", f"/applet/{where}", LOG, INFO)
    assert made.status == 201, made.body
    return made.json


# ---------------------------------------------------------------- the scenarios


@pytest.mark.parametrize(
    ("where", "one", "project"),
    [
        (LATER, "/applet/data/{}", f"/project/x/{PROJECT}"),
        (SEED, f"/applet/{SEED}/{{}}", f"/project/{PROJECT}"),
    ],
)
def test_1_an_applet_is_uploaded_found_and_deleted(
    admin: User, where: str, one: str, project: str
) -> None:
    create(admin)
    applet_id = upload(admin, where)["appletID"]
    assert admin("GET", one.format(applet_id)).json["appletID"] == applet_id
    gone = "/applet/data/{}" if where == LATER else "/applet/{}"
    assert admin("DELETE", gone.format(applet_id)).status == 204
    missing = admin("GET", one.format(applet_id))
    assert (missing.status, missing.key) == (404, "AppletNotFound")
    assert admin("DELETE", project).status == 204


def test_2_an_applet_without_a_name_is_a_bad_request(admin: User) -> None:
    create(admin)
    for where in (LATER, SEED):
        refused = admin.upload("POST", f"/applet/{where}", LOG, {"wasmName": "log.wasm"})
        assert refused.fields == {"info.appletName": "missing required field"}


def test_3_an_applet_has_an_instance_until_it_is_deleted(admin: User) -> None:
    create(admin)
    applet = upload(admin)
    instance = admin("GET", f"/deploy/applet/{applet['appletID']}").json
    assert instance["appletID"] == applet["appletID"]
    assert admin("GET", f"/deploy/instance/{instance['instanceID']}").json == instance
    assert admin("DELETE", f"/applet/data/{applet['appletID']}").status == 204
    assert admin("GET", f"/deploy/instance/{instance['instanceID']}").key == "InstanceNotFound"


def test_4_an_instance_is_started_and_hung_up(admin: User) -> None:
    create(admin)
    applet = upload(admin)
    path = f"/deploy/instance/{applet['instance']['instanceID']}"
    assert admin("GET", path).json["state"] == "STARTED"
    assert admin("PUT", f"/deploy/{applet['instance']['instanceID']}/HUNGUP").status == 204
    assert admin("GET", path).json["state"] == "STOPPED"
    assert admin("DELETE", f"/applet/data/{applet['appletID']}").status == 204
    assert admin("GET", path).key == "InstanceNotFound"


def test_5_a_command_that_is_empty_or_unknown_is_a_bad_request(admin: User) -> None:
    create(admin)
    instance_id = upload(admin)["instance"]["instanceID"]
    for command in ("-", "UNKNOWN"):
        assert admin("PUT", f"/deploy/{instance_id}/{command}").fields.keys() == {"cmd"}


def test_6_a_project_has_its_configurations_from_its_creation_to_its_end(admin: User) -> None:
    create(admin)
    kinds = ("PROJECT_DATABASE", "PROJECT_ENV")
    for kind in kinds:
        assert admin("GET", f"/project_config/{LATER}/{kind}").status == 200
    assert admin("DELETE", f"/project/x/{PROJECT}").status == 204
    for kind in kinds:
        gone = admin("GET", f"/project_config/{LATER}/{kind}")
        assert (gone.status, gone.key) == (404, "ConfigNotFound")


def test_7_a_project_name_has_1_to_32_characters(admin: User) -> None:
    for name in ("", "a" * 33):
        assert list(admin("POST", "/project", {"name": name}).fields) == ["name"]
    for name in ("a", "a" * 32):
        assert admin("POST", "/project", {"name": name}).status == 201


def test_12_an_uploaded_module_is_downloaded_listed_and_deleted(admin: User) -> None:
    create(admin)
    applet = upload(admin)
    resource_id = applet["resourceID"]
    downloaded = admin("GET", f"/resource/data/{resource_id}")
    assert (downloaded.status, downloaded.body) == (200, LOG)
    listed = admin("GET", "/resource").json
    assert [row["resourceID"] for row in listed["data"]] == [resource_id]
    assert admin("DELETE", f"/applet/data/{applet['appletID']}").status == 204
    assert admin("DELETE", f"/resource/{resource_id}").status == 204
    assert admin("GET", "/resource").json == {"data": [], "total": 0}


# ---------------------------------------------------------------- what upstream got wrong


def test_the_name_of_an_applet_is_the_one_it_was_given(admin: User) -> None:
    create(admin)
    assert upload(admin)["name"] == "test_applet"


def test_deploying_an_applet_by_its_id_finds_it(admin: User) -> None:
    create(admin)
    applet_id = upload(admin)["appletID"]
    assert admin("POST", f"/deploy/applet/{applet_id}").status == 201


def test_an_applet_without_an_instance_is_deleted_too(admin: User) -> None:
    create(admin)
    applet = upload(admin)
    assert admin("DELETE", f"/deploy/data/{applet['instance']['instanceID']}").status == 204
    assert admin("DELETE", f"/applet/data/{applet['appletID']}").status == 204


def test_a_projects_end_leaves_nothing_of_it_behind(admin: User, server: Server) -> None:
    project_id = int(create(admin, public=True)["projectID"])
    applet_id = int(upload(admin)["appletID"])
    admin("POST", f"/cronjob/{project_id}", {"cronExpressions": "* * * * *"})
    admin("DELETE", f"/project/x/{PROJECT}")
    reader = server.writer.reader()
    for rows in (
        reader.applets(project_id),
        reader.applet_versions(applet_id),
        reader.strategies(project_id),
        reader.publishers(project_id),
        reader.configs(project_id),
        reader.cron_jobs(project_id),
        reader.access_keys(admin.account.account_id),
    ):
        assert rows == []


def test_a_seed_era_client_lists_the_applets_of_its_project_alone(admin: User) -> None:
    create(admin)
    upload(admin)
    admin.project("other")
    assert admin("GET", "/applet/other").json["hints"] == 0
    assert admin("GET", f"/applet/{PROJECT}").json["hints"] == 1


# ---------------------------------------------------------------- byte for byte


def exchange(server: Server, request: bytes) -> tuple[str, bytes]:
    """Send these bytes; the head and the body of the answer."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(request)
        answer = b""
        while True:
            head, blank, body = answer.partition(b"\r\n\r\n")
            length = re.search(rb"Content-Length: (\d+)", head)
            if blank and len(body) >= (int(length[1]) if length else 0):
                return head.decode(), body
            data = connection.recv(65_536)
            assert data, answer
            answer += data


def test_a_project_as_curl_creates_it(server: Server, ada: User) -> None:
    body = b'{"name":"NftMinter","envs":[["KEY","value"]]}'
    head, answer = exchange(
        server,
        b"POST /srv-applet-mgr/v0/project HTTP/1.1\r\n"
        b"Host: 127.0.0.1:8888\r\n"
        b"User-Agent: curl/7.88.1\r\n"
        b"Accept: */*\r\n"
        b"Authorization: Bearer " + ada.token.encode() + b"\r\n"
        b"Content-Type: application/x-www-form-urlencoded\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body),
    )
    assert head.startswith("HTTP/1.1 201 Created\r\n")
    assert "X-Meta: srv-applet-mgr@0.0.9/CreateProject" in head
    made = json.loads(answer)
    assert (made["name"], made["envs"]) == ("NftMinter", {"env": [["KEY", "value"]]})
    assert answer.endswith(b"}\n")


def test_an_applet_as_curl_uploads_it(server: Server, ada: User) -> None:
    ada.project("NftMinter")
    mark = b"------------------------d74496d66958873e"
    body = (
        b"--" + mark + b'\r\nContent-Disposition: form-data; name="file"; filename="log.wasm"\r\n'
        b"Content-Type: application/octet-stream\r\n\r\n" + LOG + b"\r\n--" + mark + b"\r\n"
        b'Content-Disposition: form-data; name="info"\r\n\r\n'
        b'{"projectID":"0","appletName":"log","wasmName":"log.wasm"}\r\n--' + mark + b"--\r\n"
    )
    head, answer = exchange(
        server,
        b"POST /srv-applet-mgr/v0/applet/NftMinter HTTP/1.1\r\n"
        b"Host: 127.0.0.1:8888\r\n"
        b"Authorization: " + ada.token.encode() + b"\r\n"
        b"User-Agent: curl/7.88.1\r\n"
        b"Accept: */*\r\n"
        b"Content-Length: %d\r\n"
        b"Content-Type: multipart/form-data; boundary=%b\r\n\r\n%b" % (len(body), mark, body),
    )
    assert head.startswith("HTTP/1.1 201 Created\r\n")
    assert json.loads(answer)["name"] == "log"


def test_an_applet_as_a_page_of_studio_uploads_it(server: Server, ada: User) -> None:
    """Browsers send `info` as a file named `blob`, and the bare token."""
    ada.project("NftMinter")
    mark = b"----WebKitFormBoundary7MA4YWxkTrZu0gW"
    body = (
        b"--" + mark + b'\r\nContent-Disposition: form-data; name="info"; filename="blob"\r\n'
        b'Content-Type: application/json\r\n\r\n{"appletName":"log","wasmName":"log.wasm",'
        b'"wasmCache":{"mode":"MEMORY"},"strategies":[{"eventType":"MINT","handler":"mint"}]}'
        b"\r\n--" + mark + b'\r\nContent-Disposition: form-data; name="file"; '
        b'filename="log.wasm"\r\nContent-Type: application/wasm\r\n\r\n' + LOG + b"\r\n"
        b"--" + mark + b"--\r\n"
    )
    head, answer = exchange(
        server,
        b"POST /api/w3bapp/applet/x/NftMinter HTTP/1.1\r\n"
        b"Host: localhost:3000\r\n"
        b"Origin: http://localhost:3000\r\n"
        b"Authorization: " + ada.token.encode() + b"\r\n"
        b"Content-Length: %d\r\n"
        b"Content-Type: multipart/form-data; boundary=%b\r\n\r\n%b" % (len(body), mark, body),
    )
    assert head.startswith("HTTP/1.1 201 Created\r\n")
    assert "Access-Control-Allow-Origin: *" in head
    assert [s["eventType"] for s in json.loads(answer)["strategies"]] == ["MINT"]


def test_variables_as_a_page_of_studio_sets_them(server: Server, ada: User) -> None:
    """Its client names the body text, and the project with its owner's prefix."""
    ada.project("NftMinter")
    account_id = ada.account.account_id
    body = b'{"env":[["A","1"]]}'
    head, answer = exchange(
        server,
        b"POST /api/w3bapp/project_config/x/aid_%d_NftMinter/PROJECT_ENV HTTP/1.1\r\n"
        b"Host: localhost:3000\r\n"
        b"Authorization: Bearer %b\r\n"
        b"Content-Type: text/plain;charset=UTF-8\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (account_id, ada.token.encode(), len(body), body),
    )
    assert head.startswith("HTTP/1.1 201 Created\r\n")
    assert json.loads(answer)["type"] == "PROJECT_ENV"
    assert ada("GET", "/project/NftMinter").json["envs"] == {"env": [["A", "1"]]}


def test_an_instance_as_curl_stops_it(server: Server, ada: User) -> None:
    ada.project("NftMinter")
    instance_id = ada.applet()["instance"]["instanceID"]
    head, answer = exchange(
        server,
        b"PUT /srv-applet-mgr/v0/deploy/%b/stop HTTP/1.1\r\nHost: x\r\n"
        b"Authorization: Bearer %b\r\n\r\n" % (instance_id.encode(), ada.token.encode()),
    )
    assert head.startswith("HTTP/1.1 204 No Content\r\n")
    assert answer == b""
    assert ada("GET", f"/deploy/instance/{instance_id}").json["state"] == "STOPPED"
