"""Management over real HTTP: conventions, accounts, and each kind of object."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import http.client
import json
import socket
from typing import Any

import jwt
import pytest

from fieldbrook.core.clock import now_ms
from fieldbrook.core.errors import NodeError
from fieldbrook.core.model import DISABLED, Account
from fieldbrook.gateway.management.framework.route import Auth
from fieldbrook.gateway.management.framework.workers import Workers
from fieldbrook.gateway.management.management_handler import JSON_LIMIT_BYTES
from fieldbrook.gateway.management.route_table import PREFIXES, ROUTES
from fieldbrook.observability.health import NO_BROKER, STORE_FULL, Condition, NodeHealth
from fieldbrook.security import tokens
from fieldbrook.storage.project.rows import LogRow, NumberedRow
from tests.support.management import (
    CODE,
    KEY,
    LOG_WAT,
    NO_START_WAT,
    PLAIN_WAT,
    UNLINKABLE_WAT,
    UPLOAD_LIMIT,
    V0,
    MemoryStore,
    Reply,
    Server,
    User,
    register,
    wasm,
)
from tests.support.tools import LIMIT_S

# ---------------------------------------------------------------- conventions


def test_the_root_says_that_the_node_lives(server: Server) -> None:
    for method in ("GET", "HEAD"):
        reply = server.send(method, "/")
        assert (reply.status, reply.body) == (204, b"")
    assert server.send("POST", "/", "x").status == 405


def test_liveness_is_a_map_of_components(server: Server) -> None:
    condition = Condition("mqtt:0", NO_BROKER, "at broker.example", 1)
    server.health = NodeHealth((condition,), parts={"registry": "up", "http:0": "up"})
    reply = server.send("GET", "/liveness")
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "application/json; charset=utf-8"
    assert json.loads(reply.body) == {
        "Registry": "ok",
        "Broker": "no_broker: there is no connection to the MQTT broker",
        "Disk": "ok",
        "Clock": "ok",
        "Secrets": "ok",
        "Http/0": "ok",
    }


def test_a_node_that_cannot_read_its_registry_is_neither_alive_nor_ready(
    server: Server,
) -> None:
    server.health = NodeHealth(registry="its data file is not a store")
    assert server.send("GET", "/liveness").status == 503
    reply = server.send("GET", "/readiness")
    assert (reply.status, json.loads(reply.body)["ready"]) == (503, False)
    server.health = NodeHealth()
    assert json.loads(server.send("GET", "/readiness").body) == {"ready": True, "reasons": []}


def test_the_details_of_what_is_wrong_are_for_administrators(
    server: Server, root: User, ada: User
) -> None:
    server.health = NodeHealth((Condition("project:7", STORE_FULL, "in /srv/data", 1),))
    assert b"/srv/data" not in server.send("GET", "/liveness").body
    assert ada("GET", "/health").status == 401
    answer = root("GET", "/health").json
    assert answer["healthy"] is False
    assert [(row["part"], row["state"], row["detail"]) for row in answer["data"]] == [
        ("project:7", "store_full", "in /srv/data")
    ]


def test_version_is_plain_text(server: Server) -> None:
    reply = server.send("GET", "/version")
    assert (reply.status, reply.body) == (200, b"fieldbrook@0.0.9")
    assert reply.headers["Content-Type"].startswith("text/plain")
    assert server.send("PUT", "/version").headers["Allow"] == "GET"


@pytest.mark.parametrize("path", ["/nothing", f"{V0}/nothing", f"{V0}/project/a/b/c", V0, "/a%zz"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_unknown_path_is_404_in_plain_text(server: Server, method: str, path: str) -> None:
    reply = server.send(method, path)
    assert (reply.status, reply.body) == (404, b"404 page not found\n")
    assert reply.headers["Content-Type"].startswith("text/plain")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PATCH", "/project", "GET, POST"),
        ("GET", "/login", "DELETE, PUT"),
        ("HEAD", "/resource", "GET"),
        ("DELETE", "/strategy/p/5", "GET, PUT"),
        ("POST", "/deploy/5/START", "PUT"),
    ],
)
def test_a_known_path_with_another_method_says_which_it_has(
    server: Server, method: str, path: str, allowed: str
) -> None:
    reply = server.send(method, V0 + path)
    assert (reply.status, reply.headers["Allow"]) == (405, allowed)
    assert reply.body == (b"" if method == "HEAD" else b"Method Not Allowed\n")


def test_a_method_http_does_not_have_is_405(server: Server) -> None:
    refused = server.send("BREW", f"{V0}/project")
    assert (refused.status, refused.headers["Allow"]) == (405, "GET, POST")
    assert server.send("BREW", "/").headers["Allow"] == "GET, HEAD"
    assert server.send("BREW", f"{V0}/nothing").status == 404


def test_a_query_that_is_not_utf_8_is_a_bad_request_or_no_token(server: Server, ada: User) -> None:
    assert server.send("GET", f"{V0}/project?authorization=%ff").status in (400, 401)
    assert ada("GET", "/project?name=%ff").json["total"] == 0


def test_both_prefixes_serve_the_same(ada: User, server: Server) -> None:
    ada.project()
    headers = {"Authorization": ada.token}
    bodies = {server.send("GET", f"{prefix}/project", headers=headers).body for prefix in PREFIXES}
    assert len(bodies) == 1


def test_a_trailing_slash_redirects_to_the_path_without(server: Server) -> None:
    reply = server.send("GET", f"{V0}/project/?size=1")
    assert (reply.status, reply.headers["Location"]) == (301, f"{V0}/project?size=1")
    assert server.send("POST", f"{V0}/project/", "{}").status == 307


@pytest.mark.parametrize(
    ("method", "sent", "meant"),
    [
        ("GET", "/Project", "/project"),
        ("GET", "//project?size=1", "/project?size=1"),
        ("GET", "/PROJECT/x//Demo/Data/", "/project/x/Demo/data"),
        ("POST", "/Strategy/X/Demo", "/strategy/x/Demo"),
        ("POST", "/Event/Demo?eventType=A", "/event/Demo?eventType=A"),
        ("POST", "/event/Demo/", "/event/Demo"),
    ],
)
def test_a_path_in_another_case_or_with_other_slashes_redirects_to_the_one_meant(
    server: Server, method: str, sent: str, meant: str
) -> None:
    reply = server.send(method, V0 + sent)
    # Of doubled slashes the running original says 307 whatever the method.
    assert reply.status == (301 if method == "GET" and "//" not in sent else 307)
    assert reply.headers["Location"] == V0 + meant


@pytest.mark.parametrize("path", ["/projects", "/project/../project", "/Event/a/b", "/"])
def test_an_unknown_path_is_not_redirected(server: Server, path: str) -> None:
    reply = server.send("POST", V0 + path)
    assert (reply.status, reply.body) == (404, b"404 page not found\n")


def test_cors_headers_are_there_only_for_a_request_with_an_origin(
    server: Server, ada: User
) -> None:
    with_origin = {"Origin": "http://page.example", "Authorization": ada.token}
    reply = server.send("GET", f"{V0}/project", headers=with_origin)
    assert reply.headers["Access-Control-Allow-Origin"] == "*"
    assert "X-Meta" in reply.headers["Access-Control-Expose-Headers"]
    refused = server.send("GET", f"{V0}/project", headers={"Origin": "http://page.example"})
    assert (refused.status, refused.headers["Access-Control-Allow-Origin"]) == (401, "*")
    without = server.send("GET", f"{V0}/project", headers={"Authorization": ada.token})
    assert "Access-Control-Allow-Origin" not in without.headers


def test_a_preflight_is_204_and_needs_no_token(server: Server) -> None:
    for path in (f"{V0}/project", "/", "/nothing"):
        reply = server.send("OPTIONS", path, headers={"Origin": "http://page.example"})
        assert (reply.status, reply.body) == (204, b"")
        assert "DELETE" in reply.headers["Access-Control-Allow-Methods"]
        assert "Authorization" in reply.headers["Access-Control-Allow-Headers"]
        bare = server.send("OPTIONS", path)
        assert (bare.status, bare.body) == (200, b"")


def test_every_answer_of_a_route_names_its_operation(ada: User) -> None:
    assert ada("GET", "/project").headers["X-Meta"] == "srv-applet-mgr@0.0.9/ListProject"
    assert ada("GET", "/project/none").headers["X-Meta"] == "srv-applet-mgr@0.0.9/GetProject"


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_is_json_whatever_its_content_type_says(
    server: Server, ada: User, content_type: str
) -> None:
    headers = {"Authorization": ada.token, "Content-Type": content_type}
    reply = server.send("POST", f"{V0}/project", '{"NAME":"minter","unknown":[1]}', headers)
    assert (reply.status, reply.json["name"]) == (201, "minter")


def test_go_escapes_and_a_newline_end_every_body(ada: User) -> None:
    reply = ada("POST", "/project", {"name": "p", "description": "<a>&\u2028"})
    assert b'"description":"\\u003ca\\u003e\\u0026\\u2028"' in reply.body
    assert reply.body.endswith(b"}\n")
    assert reply.headers["Content-Type"] == "application/json; charset=utf-8"


@pytest.mark.parametrize(
    ("body", "field_"),
    [
        ("", "name"),
        ("{}", "name"),
        ('{"name":null}', "name"),
        ('{"name":""}', "name"),
        ('{"name":5}', "name"),
        ('{"name":["x"]}', "name"),
        ('{"name":"ok","envs":"x"}', "envs"),
        ('{"name":"ok","envs":[["k"]]}', "envs[0]"),
        ('{"name":"ok","description":5}', "description"),
        ("[]", "body"),
        ("5", "body"),
        ("not json", "body"),
        ('{"name":"x"', "body"),
        ('{"name":"\\ud800"}', "body"),
        ("[" * 200_000, "body"),
        (b"\xff\xfe", "body"),
    ],
)
def test_the_answer_to_an_invalid_body_names_the_field(
    server: Server, ada: User, body: str | bytes, field_: str
) -> None:
    reply = server.send("POST", f"{V0}/project", body, {"Authorization": ada.token})
    assert list(reply.fields) == [field_]
    assert reply.json["msg"] == "invalid parameters"
    assert reply.json["fields"][0]["in"] == "body"


def test_a_json_body_beyond_the_limit_is_refused(server: Server, ada: User) -> None:
    body = b'{"name":"' + b"x" * JSON_LIMIT_BYTES + b'"}'
    reply = server.send("POST", f"{V0}/project", body, {"Authorization": ada.token})
    assert (reply.status, reply.key) == (413, "RequestEntityTooLarge")


def test_a_chunked_body_beyond_the_limit_is_refused_too(server: Server, ada: User) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LIMIT_S)
    chunks = (b"x" * 65_536 for _ in range(2 * JSON_LIMIT_BYTES // 65_536))
    headers = {"Authorization": ada.token, "Transfer-Encoding": "chunked"}
    connection.request("POST", f"{V0}/project", chunks, headers, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()


@pytest.mark.parametrize("query", ["size=-2", "size=x", "offset=-1", "offset=1.5", "size=1e99"])
def test_bad_paging_is_refused(ada: User, query: str) -> None:
    reply = ada("GET", f"/project?{query}")
    assert reply.json["canBeTalk"] is False
    assert list(reply.fields) == [query.partition("=")[0]]
    assert reply.json["fields"][0]["in"] == "query"


def test_paging_gives_the_asked_for_part_of_a_list(ada: User) -> None:
    for number in range(12):
        ada.project(f"p{number}")
    assert len(ada("GET", "/project").json["data"]) == 10
    assert len(ada("GET", "/project?size=-1").json["data"]) == 12
    assert len(ada("GET", f"/project?size={10**15}").json["data"]) == 12
    assert ada("GET", "/project?size=0").json == ada("GET", "/project").json, "the default"
    part = ada("GET", "/project?size=5&offset=10").json
    assert (len(part["data"]), part["total"]) == (2, 12)
    assert ada("GET", f"/project?offset={10**15}").json == {"data": [], "total": 12}


def test_a_refusal_reaches_a_client_that_is_still_sending(server: Server, ada: User) -> None:
    body = b"x" * (3 << 20)
    for path in ("/applet/none", "/project", "/nothing", "/liveness"):
        for token in (ada.token, "none"):
            reply = server.send("PUT", V0 + path, body, {"Authorization": token})
            assert reply.status in (401, 403, 404, 405, 413)


def test_a_client_that_asks_before_sending_is_refused_at_once(server: Server) -> None:
    for length in (10, 1 << 40):
        with socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT_S) as connection:
            head = f"POST {V0}/applet/p HTTP/1.1\r\nHost: n\r\nContent-Length: {length}\r\n"
            connection.sendall(head.encode() + b"Expect: 100-continue\r\n\r\n")
            answer = b"".join(iter(lambda: connection.recv(65_536), b""))
        assert answer.startswith(b"HTTP/1.1 401 ")
        assert answer.count(b"HTTP/1.1") == 1


def test_connections_are_kept_for_the_next_request(server: Server, ada: User) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=LIMIT_S)
    for token, status in [("none", 401), (ada.token, 400), (ada.token, 400)]:
        connection.request("POST", f"{V0}/project", "{}", {"Authorization": token})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == status
        assert not answer.will_close
    connection.close()


# ---------------------------------------------------------------- tokens


def _token(key: bytes = KEY, algorithm: str = "HS256", **claims: Any) -> str:
    base = {"Payload": "5", "iss": tokens.ISSUER, "exp": now_ms() // 1000 + 60}
    return jwt.encode({**base, **claims}, key or "", algorithm)


BAD_TOKENS = {
    "none": "",
    "garbage": "abc",
    "not ascii": "\xff\xfe",
    "expired": _token(exp=5),
    "algorithm none": _token(b"", "none"),
    "another algorithm": _token(b"k" * 64, "HS512"),
    "another key": _token(b"x" * 32),
    "another issuer": _token(iss="other"),
    "a publisher's": tokens.issue_publisher_token(KEY, 5),
    "an id that is text": _token(Payload="abc"),
    "an id that is a number": _token(Payload=5),
}


@pytest.mark.parametrize("name", BAD_TOKENS)
def test_a_token_that_is_not_an_accounts_is_refused(server: Server, name: str) -> None:
    token = BAD_TOKENS[name]
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    reply = server.send("GET", f"{V0}/project", headers=headers)
    assert (reply.status, reply.key) == (401, "InvalidToken")
    assert not token or token not in reply.body.decode()


def test_every_route_but_few_refuses_a_call_without_a_token_before_anything_else(
    server: Server,
) -> None:
    open_routes = []
    for route in ROUTES:
        path = V0 + route.pattern.replace("{", "").replace("}", "")
        if route.auth in (Auth.ACCOUNT, Auth.ADMIN):
            reply = server.send(route.method, path, "not json")
            assert (reply.status, reply.key) == (401, "InvalidToken"), route
        else:
            open_routes.append(route.pattern)
    wallet = ["/login/wallet/nonce", "/login/wallet", "/login/eth"]
    chains = ["/configuration/eth_client", "/configuration/chain_config"]
    assert open_routes == ["/register/admin", "/login", *wallet, *chains]


def test_the_token_of_an_account_that_is_gone_is_refused(server: Server) -> None:
    reply = server.send("GET", f"{V0}/project", headers={"Authorization": _token(Payload="999")})
    assert (reply.status, reply.key) == (404, "AccountNotFound")


def test_a_disabled_account_is_refused(server: Server, ada: User) -> None:
    tables = server.writer.reader()._tables
    off = Account(
        **{
            **{name: getattr(ada.account, name) for name in ada.account.__struct_fields__},
            "state": DISABLED,
        }
    )
    with server.writer._environment.begin(write=True) as txn:
        tables.accounts.put(txn, off)
    assert ada("GET", "/project").key == "DisabledAccount"


@pytest.mark.parametrize("form", ["Bearer {}", "Bearer{}", "{}", "  Bearer   {}  "])
def test_a_token_may_come_with_or_without_the_word_bearer(
    server: Server, ada: User, form: str
) -> None:
    headers = {"Authorization": form.format(ada.token)}
    assert server.send("GET", f"{V0}/project", headers=headers).status == 200


def test_a_token_in_the_query_wins_over_the_header(server: Server, ada: User) -> None:
    path = f"{V0}/project?authorization="
    good, bad = ada.token, {"Authorization": "nonsense"}
    assert server.send("GET", path + good, headers=bad).status == 200
    headers = {"Authorization": ada.token}
    assert server.send("GET", f"{path}nonsense", headers=headers).status == 401


# ---------------------------------------------------------------- accounts


def test_the_first_administrator_needs_the_setup_code_and_can_log_in(
    server: Server,
) -> None:
    body = {"username": "admin", "password": "correct horse"}
    for code in ("", "wrong", "one-time-cod\xe9"):
        refused = register(server, body, X_Setup_Code=code)
        assert (refused.status, refused.key) == (401, "NoAdminPermission")
    created = register(server, body, X_Setup_Code=CODE)
    assert created.status == 201
    assert created.json["role"] == "ADMIN"
    assert "password" not in created.json
    assert b"argon2" not in created.body
    login = server.send("PUT", f"{V0}/login", json.dumps(body), {"Content-Type": "text/plain"})
    assert login.status == 200
    assert set(login.json) == {"accountID", "accountRole", "token", "expireAt", "issuer"}
    assert login.json["accountID"] == created.json["accountID"]
    token = {"Authorization": login.json["token"]}
    assert server.send("GET", f"{V0}/project", headers=token).status == 200
    again = register(server, {"username": "second"}, X_Setup_Code=CODE)
    assert (again.status, again.key) == (401, "InvalidToken")


def test_an_administrator_registers_others_with_generated_passwords(
    server: Server, root: User, ada: User
) -> None:
    created = register(server, {"username": "dev", "role": "developer"}, Authorization=root.token)
    assert (created.status, created.json["role"]) == (201, "DEVELOPER")
    credentials = {"username": "dev", "password": created.json["password"]}
    login = server.send("PUT", f"{V0}/login", json.dumps(credentials))
    assert (login.status, login.json["accountRole"]) == (200, "DEVELOPER")
    refused = register(server, {"username": "x"}, Authorization=ada.token)
    assert (refused.status, refused.key) == (401, "NoAdminPermission")
    taken = register(server, {"username": "dev"}, Authorization=root.token)
    assert (taken.status, taken.key) == (409, "AccountIdentityConflict")


@pytest.mark.parametrize(
    ("body", "field_"),
    [
        ({}, "username"),
        ({"username": ""}, "username"),
        ({"username": "x" * 257}, "username"),
        ({"username": "a", "password": "short"}, "password"),
        ({"username": "a", "role": "KING"}, "role"),
        ({"username": "a", "role": 1}, "role"),
    ],
)
def test_an_invalid_registration_is_refused(
    server: Server, root: User, body: Any, field_: str
) -> None:
    assert list(register(server, body, Authorization=root.token).fields) == [field_]


def test_a_login_fails_for_an_unknown_name_and_for_another_password(
    server: Server,
) -> None:
    register(server, {"username": "admin", "password": "correct horse"}, X_Setup_Code=CODE)

    def login(**body: str) -> Reply:
        return server.send("PUT", f"{V0}/login", json.dumps(body))

    assert login(username="nobody", password="x").key == "AccountIdentityNotFound"
    assert login(username="admin", password="wrong horse").key == "InvalidPassword"
    assert login(username="admin").fields == {"password": "missing required field"}
    assert set(login().fields) == {"username", "password"}


def test_a_password_is_changed_by_who_knows_the_old_one(server: Server) -> None:
    old = {"username": "admin", "password": "correct horse"}
    register(server, old, X_Setup_Code=CODE)
    token = server.send("PUT", f"{V0}/login", json.dumps(old)).json["token"]

    def change(old_password: str, password: str) -> Reply:
        body = json.dumps({"oldPassword": old_password, "password": password})
        return server.send("PUT", f"{V0}/account", body, {"Authorization": token})

    assert change("wrong", "battery staple").key == "InvalidOldPassword"
    assert change("correct horse", "correct horse").key == "InvalidNewPassword"
    assert list(change("correct horse", "short").fields) == ["password"]
    assert list(change("", "battery staple").fields) == ["oldPassword"]
    changed = change("correct horse", "battery staple")
    assert changed.status == 200
    assert set(changed.json) == {"accountID", "accountRole", "token", "expireAt", "issuer"}
    assert server.send("PUT", f"{V0}/login", json.dumps(old)).key == "InvalidPassword"
    new = {**old, "password": "battery staple"}
    assert server.send("PUT", f"{V0}/login", json.dumps(new)).status == 200


# ---------------------------------------------------------------- projects


def test_a_project_is_created_found_listed_and_removed(ada: User) -> None:
    body = {
        "name": "NftMinter",
        "version": "1",
        "description": "d",
        "envs": [["KEY", "value"]],
    }
    created = ada("POST", "/project", body)
    assert created.status == 201
    assert created.json["accountID"] == str(ada.account.account_id)
    assert created.json["envs"] == {"env": [["KEY", "value"]]}
    assert created.json.items() > ada("GET", "/project/NftMinter").json.items()
    assert created.json["project"]["projectID"] == created.json["projectID"]
    listed = ada("GET", "/project").json
    assert listed["total"] == 1
    assert listed["data"][0]["projectID"] == created.json["projectID"]
    assert listed["data"][0]["projectName"] == "NftMinter"
    removed = ada("DELETE", "/project/NftMinter")
    assert (removed.status, removed.body) == (204, b"")
    gone = ada("GET", "/project/NftMinter")
    assert (gone.status, gone.key) == (404, "ProjectNotFound")
    assert ada("DELETE", "/project/NftMinter").key == "ProjectNotFound"


def test_environment_variables_come_in_either_generations_form(ada: User) -> None:
    reply = ada("POST", "/project", {"name": "p", "envs": {"env": [["A", "b"]]}})
    assert reply.json["envs"] == {"env": [["A", "b"]]}


@pytest.mark.parametrize(
    "name",
    [
        *("a" * 33, "a-b", "a/b", "a b", "é", "a\n", "+", "#"),
        *("x", "data", "datalist", "detail_list", "aid_5_p", "eth_0x_p"),
    ],
)
def test_a_project_name_that_is_not_allowed_is_refused(ada: User, name: str) -> None:
    assert list(ada("POST", "/project", {"name": name}).fields) == ["name"]


def test_a_project_name_is_taken_by_anybody(ada: User, bob: User) -> None:
    ada.project()
    reply = bob("POST", "/project", {"name": "NftMinter"})
    assert (reply.status, reply.key) == (409, "ProjectNameConflict")


def test_projects_are_filtered(ada: User) -> None:
    ids = [ada.project(name)["projectID"] for name in ("alpha", "beta", "alphabet")]

    def names(query: str) -> set[str]:
        return {row["projectName"] for row in ada("GET", f"/project?{query}").json["data"]}

    assert names("name=alpha") == {"alpha", "alphabet"}
    assert names("names=alpha&names=beta") == {"alpha", "beta"}
    assert names(f"ids={ids[1]}") == names(f"projectIDs={ids[1]}") == {"beta"}
    assert list(ada("GET", "/project?ids=x").fields) == ["ids[0]"]


# ---------------------------------------------------------------- applets


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


def test_an_applet_is_found_listed_and_removed(ada: User) -> None:
    ada.project()
    created = ada.applet()
    applet_id = created["appletID"]
    found = ada("GET", f"/applet/NftMinter/{applet_id}").json
    assert found["instances"][0]["instanceID"] == created["instance"]["instanceID"]
    assert found["strategies"] == created["strategies"]
    listed = ada("GET", "/applet/NftMinter").json
    assert (listed["total"], listed["hints"]) == (1, 1)
    assert listed["data"][0]["appletID"] == applet_id
    assert ada("GET", "/applet/NftMinter?name=none").json["total"] == 0
    assert ada("GET", f"/applet/NftMinter?appletID={applet_id}").json["total"] == 1
    row = ada("GET", "/project").json["data"][0]["applets"][0]
    assert (row["appletName"], row["instanceState"]) == ("log", "STARTED")
    assert ada("DELETE", f"/applet/{applet_id}").status == 204
    assert ada("GET", f"/applet/NftMinter/{applet_id}").key == "AppletNotFound"
    instance_id = created["instance"]["instanceID"]
    assert ada("GET", f"/deploy/instance/{instance_id}").key == "InstanceNotFound"


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
    [(b"\0asm\1\0\0\0rest", ""), (b"text", ""), (UNLINKABLE_WAT, "no_such_function")],
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
    assert refused.key == "CreateInstanceFailed"


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


def test_an_unknown_command_is_refused(ada: User) -> None:
    ada.project()
    instance_id = ada.applet()["instance"]["instanceID"]
    assert list(ada("PUT", f"/deploy/{instance_id}/FLY").fields) == ["cmd"]
    assert list(ada("PUT", f"/deploy/{instance_id}/-").fields) == ["cmd"]
    assert ada("PUT", "/deploy/5/START").key == "InstanceNotFound"
    bad = ada("PUT", "/deploy/abc/START").fields
    assert bad == {"instanceID": 'strconv.ParseUint: parsing "abc": invalid syntax'}


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


# ---------------------------------------------------------------- resources


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


# ---------------------------------------------------------------- publishers


def test_a_publisher_is_created_listed_changed_and_removed(ada: User) -> None:
    ada.project()
    created = ada("POST", "/publisher/NftMinter", {"name": "device", "key": "mn01"})
    assert created.status == 201
    publisher_id = created.json["publisherID"]
    owner = tokens.read_any_token(KEY, created.json["token"])
    assert owner == tokens.TokenOwner(int(publisher_id), is_account=False)
    listed = ada("GET", "/publisher/NftMinter").json
    assert listed == {"data": [{**created.json, "ProjectName": "NftMinter"}], "total": 1}
    changed = ada("PUT", f"/publisher/NftMinter/{publisher_id}", {"name": "d", "key": "mn02"})
    assert changed.status == 204
    (row,) = ada("GET", "/publisher/NftMinter").json["data"]
    assert (row["name"], row["key"], row["token"]) == ("d", "mn02", created.json["token"])
    assert ada("DELETE", f"/publisher/NftMinter?publisherID={publisher_id}").status == 204
    assert ada("GET", "/publisher/NftMinter").json == {"data": [], "total": 0}


def test_several_publishers_are_removed_at_once_and_never_all_by_accident(ada: User) -> None:
    ada.project()
    ids = [
        ada("POST", "/publisher/NftMinter", {"name": "n", "key": key}).json["publisherID"]
        for key in "abcde"
    ]
    assert ada("GET", "/publisher/NftMinter").json["total"] == 5
    refused = ada("DELETE", "/publisher/NftMinter")
    assert refused.fields == {"publisherID": "missing required field"}
    query = "&".join(f"publisherID={n}" for n in [*ids[:2], "5"])
    assert ada("DELETE", f"/publisher/NftMinter?{query}").status == 204
    assert ada("GET", "/publisher/NftMinter").json["total"] == 3


def test_an_invalid_publisher_is_refused(ada: User) -> None:
    ada.project()
    assert set(ada("POST", "/publisher/NftMinter", {}).fields) == {"name", "key"}
    assert list(ada("POST", "/publisher/NftMinter", {"name": "n", "key": 5}).fields) == ["key"]
    one = ada("POST", "/publisher/NftMinter", {"name": "n", "key": "one"}).json
    taken = ada("POST", "/publisher/NftMinter", {"name": "n", "key": "one"})
    assert (taken.status, taken.key) == (409, "PublisherConflict")
    ada("POST", "/publisher/NftMinter", {"name": "n", "key": "two"})
    path = f"/publisher/NftMinter/{one['publisherID']}"
    assert ada("PUT", path, {"name": "n", "key": "two"}).key == "PublisherConflict"
    missing = ada("PUT", "/publisher/NftMinter/5", {"name": "n", "key": "three"})
    assert (missing.status, missing.key) == (404, "PublisherNotFound")
    assert ada("POST", "/publisher/none", {"name": "n", "key": "k"}).key == "ProjectNotFound"


# ---------------------------------------------------------------- strategies


def test_a_strategy_is_created_found_listed_changed_and_removed(ada: User) -> None:
    ada.project()
    applet_id = ada.applet()["appletID"]
    rule = {"appletID": applet_id, "eventType": "MINT", "handler": "mint"}
    created = ada("POST", "/strategy/NftMinter", {"strategies": [rule]})
    assert (created.status, created.body) == (204, b"")
    listed = ada("GET", "/strategy/NftMinter").json
    assert listed["total"] == 2
    (group,) = listed["data"]
    assert {s["eventType"] for s in group["strategies"]} == {"DEFAULT", "MINT"}
    assert {s["appletName"] for s in group["strategies"]} == {"log"}
    (row,) = ada("GET", "/strategy/NftMinter?eventType=MINT").json["data"][0]["strategies"]
    path = f"/strategy/NftMinter/{row['strategyID']}"
    found = ada("GET", path).json
    assert {key: found[key] for key in rule} == rule
    assert ada("PUT", path, {**rule, "eventType": "BURN"}).status == 204
    assert ada("GET", path).json["eventType"] == "BURN"
    assert ada("DELETE", f"/strategy/NftMinter?strategyID={row['strategyID']}").status == 204
    gone = ada("GET", path)
    assert (gone.status, gone.key) == (404, "StrategyNotFound")


def test_an_invalid_strategy_is_refused(ada: User) -> None:
    ada.project()
    applet_id = ada.applet()["appletID"]
    rule: dict[str, Any] = {"appletID": applet_id, "eventType": "MINT", "handler": "mint"}

    def create(*rules: dict[str, Any]) -> Reply:
        return ada("POST", "/strategy/NftMinter", {"strategies": list(rules)})

    assert list(create().fields) == ["strategies"]
    assert set(create({}).fields) == {
        "strategies[0].appletID",
        "strategies[0].eventType",
        "strategies[0].handler",
    }
    assert list(create(rule, {**rule, "appletID": int(applet_id)}).fields) == [
        "strategies[1].appletID"
    ]
    assert create({**rule, "appletID": "0"}).fields == {
        "strategies[0].appletID": "missing required field"
    }
    assert create({**rule, "appletID": "5"}).key == "AppletNotFound"
    assert create(rule, rule).key == "StrategyConflict"
    assert ada("GET", "/strategy/NftMinter").json["total"] == 1
    assert create(rule).status == 204
    conflict = create(rule)
    assert (conflict.status, conflict.key) == (409, "StrategyConflict")
    assert conflict.json["desc"] == "[prj: NftMinter] [app: log] [type: MINT] [hdl: mint]"
    missing = ada("DELETE", "/strategy/NftMinter")
    assert missing.fields == {"strategyID": "missing required field"}
    assert ada("PUT", "/strategy/NftMinter/5", rule).key == "StrategyNotFound"


# ---------------------------------------------------------------- logs and pairs


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


# ---------------------------------------------------------------- whose it is


def test_somebody_elses_object_is_one_that_does_not_exist(ada: User, bob: User) -> None:
    ada.project()
    applet = ada.applet()
    publisher = ada("POST", "/publisher/NftMinter", {"name": "n", "key": "k"}).json
    bob.project("other")
    own = bob.applet("other")
    applet_id, instance_id = applet["appletID"], applet["instance"]["instanceID"]
    strategy_id, resource_id = applet["strategies"][0]["strategyID"], applet["resourceID"]
    rule = {"appletID": own["appletID"], "eventType": "A", "handler": "start"}
    body = {"name": "m", "key": "m"}
    named = [
        ("GET", "/project/NftMinter", None),
        ("DELETE", "/project/NftMinter", None),
        ("GET", "/applet/NftMinter", None),
        ("GET", f"/applet/NftMinter/{applet_id}", None),
        ("POST", "/publisher/NftMinter", body),
        ("GET", "/publisher/NftMinter", None),
        ("PUT", f"/publisher/NftMinter/{publisher['publisherID']}", body),
        ("DELETE", f"/publisher/NftMinter?publisherID={publisher['publisherID']}", None),
        ("POST", "/strategy/NftMinter", {"strategies": [rule]}),
        ("GET", "/strategy/NftMinter", None),
        ("GET", f"/strategy/NftMinter/{strategy_id}", None),
        ("PUT", f"/strategy/NftMinter/{strategy_id}", rule),
        ("DELETE", f"/strategy/NftMinter?strategyID={strategy_id}", None),
        ("GET", "/applet_log/NftMinter", None),
        ("GET", f"/kv/NftMinter?appletID={applet_id}", None),
    ]
    for method, path, sent in named:
        assert bob(method, path, sent).key == "ProjectNotFound", path
    info = {"appletName": "x"}
    upload = bob.upload("POST", "/applet/NftMinter", wasm(LOG_WAT), info)
    assert upload.key == "ProjectNotFound"
    assert bob.upload("PUT", f"/applet/{applet_id}", None, info).key == "AppletNotFound"
    assert bob("DELETE", f"/applet/{applet_id}").key == "AppletNotFound"
    assert bob("GET", f"/deploy/applet/{applet_id}").key == "AppletNotFound"
    assert bob("GET", f"/deploy/instance/{instance_id}").key == "InstanceNotFound"
    assert bob("PUT", f"/deploy/{instance_id}/STOP").key == "InstanceNotFound"
    assert bob("GET", f"/resource/data/{resource_id}").key == "ResourcePermNotFound"
    assert bob("DELETE", f"/resource/{resource_id}").key == "ResourcePermNotFound"
    assert [row["resourceID"] for row in bob("GET", "/resource").json["data"]] == [
        own["resourceID"]
    ]
    assert [row["projectName"] for row in bob("GET", "/project").json["data"]] == ["other"]
    # Through his own project he does not reach hers either.
    for method, path, sent, key in [
        ("GET", f"/applet/other/{applet_id}", None, "AppletNotFound"),
        ("GET", f"/strategy/other/{strategy_id}", None, "StrategyNotFound"),
        ("PUT", f"/strategy/other/{strategy_id}", rule, "StrategyNotFound"),
        ("PUT", f"/publisher/other/{publisher['publisherID']}", body, "PublisherNotFound"),
        ("GET", f"/kv/other?appletID={applet_id}", None, "AppletNotFound"),
        (
            "POST",
            "/strategy/other",
            {"strategies": [{**rule, "appletID": applet_id}]},
            "AppletNotFound",
        ),
    ]:
        assert bob(method, path, sent).key == key, path
    bob("DELETE", f"/strategy/other?strategyID={strategy_id}")
    bob("DELETE", f"/publisher/other?publisherID={publisher['publisherID']}")
    assert ada("GET", f"/strategy/NftMinter/{strategy_id}").status == 200
    assert ada("GET", "/publisher/NftMinter").json["total"] == 1


def test_an_administrator_may_manage_what_is_somebody_elses(ada: User, root: User) -> None:
    ada.project()
    applet = ada.applet()
    assert root("GET", "/project/NftMinter").status == 200
    assert root("GET", f"/applet/NftMinter/{applet['appletID']}").status == 200
    assert root("PUT", f"/deploy/{applet['instance']['instanceID']}/STOP").status == 204
    assert root("GET", f"/resource/data/{applet['resourceID']}").status == 200
    theirs = root.upload("POST", "/applet/NftMinter", wasm(PLAIN_WAT), {"appletName": "b"}).json
    owned = {row["resourceID"] for row in ada("GET", "/resource").json["data"]}
    assert theirs["resourceID"] in owned
    assert root("GET", "/project").json["total"] == 0
    assert root("DELETE", "/project/NftMinter").status == 204


def test_removing_a_project_ends_everything_in_it_but_its_resources(ada: User) -> None:
    ada.project()
    applet = ada.applet()
    ada("DELETE", "/project/NftMinter")
    instance_id = applet["instance"]["instanceID"]
    assert ada("GET", f"/deploy/instance/{instance_id}").key == "InstanceNotFound"
    assert len(ada("GET", "/resource").json["data"]) == 1
    ada.project()
    assert ada("GET", "/applet/NftMinter").json["total"] == 0


# ---------------------------------------------------------------- failures of ours


def test_an_unexpected_error_is_answered_500_without_its_details(
    ada: User, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    project = ada.project()

    class Broken(MemoryStore):
        def logs(self, after: int, limit: int) -> list[NumberedRow]:
            raise RuntimeError("internal detail")

    server.stores[int(project["projectID"])] = Broken()
    reply = ada("GET", "/applet_log/NftMinter")
    assert (reply.status, reply.key, reply.json["code"]) == (500, "UnknownError", 500_000_000)
    assert b"internal detail" not in reply.body
    assert "internal detail" in caplog.text
    caplog.clear()


def test_an_error_of_the_store_is_answered_and_logged(
    ada: User, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.writer.close()
    reply = ada("GET", "/project")
    assert (reply.status, reply.key) == (500, "DatabaseError")
    assert "DatabaseError" not in caplog.text
    assert "GET /srv-applet-mgr/v0/project" in caplog.text
    caplog.clear()


def test_logins_beyond_the_limit_of_the_queue_are_answered_429() -> None:
    async def crowd() -> list[object]:
        workers = Workers()
        checks = [workers.is_password("no hash", "x") for _ in range(400)]
        return await asyncio.gather(*checks, return_exceptions=True)

    results = asyncio.run(crowd())
    refused = [r for r in results if isinstance(r, NodeError)]
    assert refused
    assert {error.status for error in refused} == {429}
    assert all(r is False for r in results if not isinstance(r, NodeError))
