"""The audit log over real HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.test_accounts import register
from tests.support.management import CODE, PASSWORD, V0, Server, User, holder, login
from tests.support.management import register as register_with
from tests.support.nodes import until


def rows(user: User, query: str = "") -> list[dict[str, Any]]:
    reply = user("GET", f"/audit{query}")
    assert reply.status == 200, reply.body
    found: list[dict[str, Any]] = reply.json["data"]
    return found


def waited_for(user: User, query: str, count: int = 1) -> list[dict[str, Any]]:
    """Wait for rows that are written a little after the answer."""
    until(lambda: len(rows(user, query)) >= count, f"{count} rows of {query}")
    return rows(user, query)


def test_a_change_is_in_the_log_with_its_answer(root: User, ada: User) -> None:
    ada.project("room")
    (row,) = rows(root)
    assert row["time"].endswith("Z")
    del row["time"], row["sequence"]
    assert row == {
        "accountID": str(ada.account.account_id),
        "account": "ada",
        "from": "127.0.0.1",
        "operation": "CreateProject",
        "method": "POST",
        "path": "/project",
        "status": 201,
    }


def test_a_change_by_an_access_key_names_the_key(root: User, ada: User) -> None:
    key = holder(ada, "ci", Project="READ_WRITE")
    key("POST", "/project", {"name": "room"})
    (row,) = rows(root, "?operation=createproject")
    assert (row["account"], row["accessKey"]) == ("ada", "ci")


def test_a_refused_change_is_in_the_log_with_the_reason(root: User, ada: User) -> None:
    ada.project("room")
    ada("POST", "/project", {"name": "room"})
    ada("POST", "/project", {"name": ""})
    key = holder(ada, "weak", Project="READONLY")
    key("DELETE", "/project/room")
    ada("PUT", f"/account/{root.account.account_id}/disable")
    found = waited_for(root, "?outcome=refused", 4)
    assert {(row["status"], row["error"]) for row in found} == {
        (409, "ProjectNameConflict"),
        (400, "badRequest"),
        (403, "AccessKeyPermissionDenied"),
        (401, "NoAdminPermission"),
    }
    (denied,) = [row for row in found if row["status"] == 403]
    assert (denied["accessKey"], denied["path"]) == ("weak", "/project/room")


def test_reading_and_strangers_leave_no_row(server: Server, root: User, ada: User) -> None:
    ada("GET", "/project")
    ada("GET", "/project/none")
    server.send("POST", f"{V0}/project", "{}", {"Authorization": "nonsense"})
    login(server, "nobody")
    ada("POST", "/project", {"name": ""})
    found = waited_for(root, "")
    assert [row["error"] for row in found] == ["badRequest"]


def test_logins_are_in_the_log(root: User) -> None:
    register(root, username="eve", password=PASSWORD)
    assert login(root.server, "eve").status == 200
    assert login(root.server, "eve", "wrong").status == 401
    found = waited_for(root, "?account=eve", 2)
    assert [(row["operation"], row["status"]) for row in found] == [
        ("LoginByUsername", 401),
        ("LoginByUsername", 200),
    ]


def test_the_first_administrator_is_in_the_log(server: Server) -> None:
    body = {"username": "admin", "password": PASSWORD}
    register_with(server, body, X_Setup_Code=CODE)
    token = login(server, "admin").json["token"]
    reply = server.send("GET", f"{V0}/audit?operation=CreateAccountByUsernameAndPassword", None)
    assert reply.status == 401
    headers = {"Authorization": token}
    reply = server.send("GET", f"{V0}/audit?path=/register", headers=headers)
    (row,) = reply.json["data"]
    assert row["account"] == "admin"


def test_nothing_secret_is_in_the_log(server: Server, root: User) -> None:
    secret = "11" * 32
    made = register(root, username="eve").json
    eve = login(server, "eve", made["password"]).json["token"]
    body = json.dumps({"name": "signer", "privateKey": secret})
    path = f"{V0}/operator?authorization={eve}&Authorization={eve}&x=1"
    assert server.send("POST", path, body).status == 201
    headers = {"Authorization": eve}
    body = json.dumps({"oldPassword": "wrong-secret", "password": "another-secret"})
    server.send("PUT", f"{V0}/account", body, headers)
    key = server.send("POST", f"{V0}/account_access_key", '{"name":"k"}', headers).json["accessKey"]
    found = waited_for(root, "?account=eve&limit=1000", 4)
    assert {row["path"] for row in found} >= {"/operator?x=1", "/account", "/account_access_key"}
    text = json.dumps(found)
    for hidden in (secret, made["password"], eve, "wrong-secret", "another-secret", key):
        assert hidden not in text
    stored = b"".join(file.read_bytes() for file in (server.folder / "registry").iterdir())
    for hidden in (made["password"], "wrong-secret", "another-secret", eve):
        assert hidden.encode() not in stored


def test_the_log_is_filtered_and_paged(root: User, ada: User, bob: User) -> None:
    for n in range(5):
        ada.project(f"a{n}")
    bob.project("b")
    bob("DELETE", "/project/b")
    assert len(rows(root)) == 7
    assert len(rows(root, "?account=bob")) == 2
    assert len(rows(root, f"?accountID={ada.account.account_id}")) == 5
    assert [row["path"] for row in rows(root, "?operation=RemoveProject")] == ["/project/b"]
    assert [row["path"] for row in rows(root, "?path=project/b")] == ["/project/b"]
    assert rows(root, "?outcome=refused") == []
    assert rows(root, "?begin=2100-01-01T00:00:00Z") == rows(root, "?end=2001-01-01T00:00:00Z")
    assert len(rows(root, "?begin=2001-01-01T00:00:00Z&end=2100-01-01T00:00:00Z")) == 7
    first = root("GET", "/audit?limit=3").json
    second = root("GET", f"/audit?limit=3&before={first['next']}").json
    third = root("GET", f"/audit?limit=3&before={second['next']}").json
    assert "next" not in third
    sequences = [int(row["sequence"]) for part in (first, second, third) for row in part["data"]]
    assert sequences == sorted(set(sequences), reverse=True)
    assert len(sequences) == 7


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=1001", "limit=-1", "before=-1", "accountID=x", "begin=now", "outcome=maybe"],
)
def test_an_invalid_filter_is_refused(root: User, query: str) -> None:
    assert list(root("GET", f"/audit?{query}").fields) == [query.partition("=")[0]]


def test_the_log_is_the_administrators(ada: User) -> None:
    refused = ada("GET", "/audit")
    assert (refused.status, refused.key) == (401, "NoAdminPermission")


def test_a_request_that_changes_several_things_is_one_row(root: User, ada: User) -> None:
    ada.project("one")
    ada.project("two")
    root("DELETE", f"/account/{ada.account.account_id}?force=true")
    (row,) = rows(root, "?operation=RemoveAccount")
    assert row["path"] == f"/account/{ada.account.account_id}?force=true"
    assert rows(root, "?operation=RemoveProject") == []
