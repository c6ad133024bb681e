"""Access keys over real HTTP: making, changing and using them."""

from __future__ import annotations

import base64
import time
from typing import Any

import pytest

from fieldbrook.core.clock import now_ms
from fieldbrook.core.model import IDENTITY_PUBLISHER
from fieldbrook.gateway.management.framework.route import Auth
from fieldbrook.gateway.management.route_table import ROUTES
from fieldbrook.security import access_keys
from fieldbrook.security.access_keys import Group
from fieldbrook.storage.registry.commands.accounts.access_keys import add_access_key
from tests.support.management import KeyHolder, Server, User, holder
from tests.support.nodes import until


def test_a_key_is_shown_once_and_works(server: Server, ada: User) -> None:
    body = {
        "name": "ci",
        "expirationDays": 30,
        "desc": "builds",
        "privileges": [
            {"name": "Project", "perm": "readonly"},
            {"name": "No Such Group", "perm": "READ_WRITE"},
        ],
        "unknown": 1,
    }
    made = ada("POST", "/account_access_key", body)
    assert made.status == 201
    assert made.headers["X-Meta"] == "srv-applet-mgr@0.0.9/CreateAccountAccessKey"
    shown = made.json
    assert shown["accessKey"].startswith("w3b_MV8")
    assert shown["identityType"] == "ACCOUNT"
    assert shown["identityID"] == str(ada.account.account_id)
    permissions = {item["name"]: item["perm"] for item in shown["privileges"]}
    assert permissions == {**dict.fromkeys(map(str, Group), "NO_ACCESS"), "Project": "READONLY"}
    assert list(permissions) == sorted(permissions)
    assert all(item["desc"] for item in shown["privileges"])
    got = ada("GET", "/account_access_key/data/ci")
    assert got.status == 200
    assert got.json == {key: value for key, value in shown.items() if key != "accessKey"}
    listed = ada("GET", "/account_access_key/datalist")
    assert listed.json == {"data": [got.json], "total": 1}
    for reply in (got, listed):
        assert shown["accessKey"] not in reply.body.decode()
    assert KeyHolder(server, shown["accessKey"])("GET", "/project").status == 200


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": 0}, "name"),
        ({"name": "x" * 257}, "name"),
        ({"name": "a", "expirationDays": -1}, "expirationDays"),
        ({"name": "a", "expirationDays": 36_501}, "expirationDays"),
        ({"name": "a", "expirationDays": "30"}, "expirationDays"),
        ({"name": "a", "desc": "x" * 1_025}, "desc"),
        ({"name": "a", "privileges": {}}, "privileges"),
        ({"name": "a", "privileges": [{"name": "Project"}]}, "privileges[0].perm"),
        ({"name": "a", "privileges": [{"perm": "READONLY"}]}, "privileges[0].name"),
        (
            {"name": "a", "privileges": [{"name": "Project", "perm": "ALL"}]},
            "privileges[0].perm",
        ),
    ],
)
def test_an_invalid_key_is_refused(ada: User, body: Any, field: str) -> None:
    assert list(ada("POST", "/account_access_key", body).fields) == [field]


def test_a_name_is_taken_once_in_an_account(ada: User, bob: User) -> None:
    holder(ada)
    holder(bob)
    again = ada("POST", "/account_access_key", {"name": "ci"})
    assert (again.status, again.key) == (409, "AccessKeyNameConflict")


def test_somebody_elses_key_is_one_that_does_not_exist(ada: User, bob: User, root: User) -> None:
    holder(ada)
    for stranger in (bob, root):
        assert stranger("GET", "/account_access_key/data/ci").key == "AccessKeyNotFound"
        assert stranger("PUT", "/account_access_key/ci", {"desc": "x"}).key == "AccessKeyNotFound"
        assert stranger("DELETE", "/account_access_key/ci").status == 204
        assert stranger("GET", "/account_access_key/datalist").json["total"] == 0
    assert ada("GET", "/account_access_key/data/ci").status == 200


def test_a_key_is_changed_and_stays_the_same_key(ada: User) -> None:
    key = holder(ada, Project="READONLY")
    changed = ada("PUT", "/account_access_key/ci", {"desc": "new", "expirationDays": 1})
    assert (changed.status, changed.json["desc"]) == (200, "new")
    assert "accessKey" not in changed.json
    assert changed.json["expiredAt"]
    assert key("GET", "/project").status == 200
    ada("PUT", "/account_access_key/ci", {"privileges": [], "expirationDays": 0})
    got = ada("GET", "/account_access_key/data/ci").json
    assert {item["perm"] for item in got["privileges"]} == {"NO_ACCESS"}
    assert (got["desc"], "expiredAt" in got) == ("new", False)
    given_back = ada("PUT", "/account_access_key/ci", {"privileges": got["privileges"]})
    assert given_back.json["privileges"] == got["privileges"]
    assert key("GET", "/project").key == "AccessKeyPermissionDenied"


def test_a_removed_key_is_not_found_from_the_next_request_on(ada: User) -> None:
    key = holder(ada, Project="READONLY")
    assert key("GET", "/project").status == 200
    for _ in range(2):
        assert ada("DELETE", "/account_access_key/ci").status == 204
    refused = key("GET", "/project")
    assert (refused.status, refused.key) == (404, "AccessKeyNotFound")


def test_an_expired_key_is_refused(server: Server, ada: User) -> None:
    made = server.writer.create_access_key(
        ada.account.account_id, "old", {"Project": "READONLY"}, expires_at=now_ms() - 1
    )
    refused = KeyHolder(server, made.text)("GET", "/project")
    assert (refused.status, refused.key) == (403, "AccessKeyExpired")


@pytest.mark.parametrize("text", ["w3b_", "w3b_xxxx", "w3b_" + "M" * 5_000, "w3b_MV8"])
def test_a_malformed_key_is_refused_and_is_no_failure_of_the_node(
    server: Server, text: str
) -> None:
    refused = KeyHolder(server, text)("GET", "/project")
    assert (refused.status, refused.key) == (401, "InvalidAccessKey")
    assert text not in refused.body.decode() or len(text) < 5


def test_a_key_of_another_node_and_a_forged_time_are_refused(server: Server, ada: User) -> None:
    stranger = access_keys.issue(now_ms()).text
    assert KeyHolder(server, stranger)("GET", "/project").key == "AccessKeyNotFound"
    text = holder(ada, Project="READONLY").text
    content = base64.urlsafe_b64decode(text[4:] + "==").decode()
    version, seconds, random = content.split("_")
    # A minute later: the second of the minute is the same.
    forged = f"{version}_{int(seconds) + 60}_{random}".encode()
    forged_text = "w3b_" + base64.urlsafe_b64encode(forged).decode().rstrip("=")
    refused = KeyHolder(server, forged_text)("GET", "/project")
    assert (refused.status, refused.key) == (401, "InvalidAccessKey")


def test_reading_needs_readonly_and_the_rest_read_write(ada: User) -> None:
    reader = holder(ada, "reader", Project="READONLY")
    writer = holder(ada, "writer", Project="READ_WRITE")
    nobody = holder(ada, "nobody", Project="NO_ACCESS")
    refused = reader("POST", "/project", {"name": "room"})
    assert (refused.status, refused.key) == (403, "AccessKeyPermissionDenied")
    for word in ("CreateProject", "Project", "READ_WRITE"):
        assert word in refused.json["desc"]
    assert writer("POST", "/project", {"name": "room"}).status == 201
    assert reader("GET", "/project").json["total"] == 1
    assert writer("GET", "/project/room").status == 200
    assert nobody("GET", "/project").key == "AccessKeyPermissionDenied"
    assert writer("GET", "/publisher/room").key == "AccessKeyPermissionDenied"


def test_every_route_belongs_to_a_group_and_is_closed_to_a_key_without_it(ada: User) -> None:
    key = holder(ada)
    for route in ROUTES:
        assert route.group is not None, route.pattern
        if route.auth is Auth.ANYBODY:
            continue
        path = route.pattern.replace("{", "").replace("}", "")
        if route.auth is Auth.SETUP:
            continue
        refused = key(route.method, path)
        assert (refused.status, refused.key) == (403, "AccessKeyPermissionDenied"), path


def test_a_publishers_key_manages_nothing(server: Server, ada: User) -> None:
    with server.writer.change() as change:
        made = add_access_key(
            change,
            account_id=ada.account.account_id,
            identity_id=77,
            identity_type=IDENTITY_PUBLISHER,
            name="pub_77",
            privileges={"Event": "READ_WRITE", "Project": "READONLY"},
        )
    key = KeyHolder(server, made.text)
    assert (key("GET", "/project").status, key("GET", "/project").key) == (401, "InvalidAuthValue")
    assert key("GET", "/resource").key == "AccessKeyPermissionDenied"
    listed = ada("GET", "/account_access_key/datalist?identityType=publisher").json
    assert [row["identityID"] for row in listed["data"]] == ["77"]


def test_a_key_hands_on_no_more_than_it_holds(ada: User) -> None:
    grants = {"Account_Access_Key": "READ_WRITE", "Project": "READONLY"}
    key = holder(ada, "maker", days=10, **grants)

    def make(name: str, permission: str, days: int) -> str:
        body = {
            "name": name,
            "expirationDays": days,
            "privileges": [{"name": "Project", "perm": permission}],
        }
        reply = key("POST", "/account_access_key", body)
        return "made" if reply.status == 201 else reply.key

    assert make("more", "READ_WRITE", 5) == "AccessKeyPermissionDenied"
    assert make("longer", "READONLY", 11) == "AccessKeyPermissionDenied"
    assert make("forever", "READONLY", 0) == "AccessKeyPermissionDenied"
    assert make("less", "READONLY", 5) == "made"
    itself = {"privileges": [{"name": "Applet", "perm": "READ_WRITE"}]}
    assert key("PUT", "/account_access_key/maker", itself).key == "AccessKeyPermissionDenied"
    assert key("PUT", "/account_access_key/maker", {"expirationDays": 0}).status == 403
    holder(ada, "stronger", Applet="READ_WRITE")
    assert key("PUT", "/account_access_key/stronger", {"desc": "x"}).status == 403
    assert key("PUT", "/account_access_key/less", {"desc": "x"}).status == 200


def test_a_key_makes_nobody_an_administrator_and_sets_no_password(root: User, ada: User) -> None:
    key = holder(root, "some", Account="READ_WRITE", Account_Register="READ_WRITE")
    person = {"username": "eve", "password": "correct horse"}
    refused = key("POST", "/register/admin", person)
    assert (refused.status, refused.key) == (403, "AccessKeyPermissionDenied")
    assert "creating an administrator" in refused.json["desc"]
    password = f"/account/{ada.account.account_id}/password"
    refused = key("PUT", password, {"password": "correct horse"})
    assert (refused.status, refused.key) == (403, "AccessKeyPermissionDenied")
    assert key("POST", "/register/admin", {**person, "role": "DEVELOPER"}).status == 201
    rights = {group.value.replace(" ", "_"): "READ_WRITE" for group in Group}
    whole = holder(root, "whole", 0, **rights)
    assert whole("PUT", password, {"password": "correct horse"}).status == 200
    assert whole("POST", "/register/admin", {**person, "username": "sue"}).status == 201


def test_a_key_without_all_rights_invites_no_host(root: User) -> None:
    path = "/cluster/invitation"
    refused = holder(root, "cluster", Account="READ_WRITE")("POST", path)
    assert (refused.status, refused.key) == (403, "AccessKeyPermissionDenied")
    assert "inviting a host" in refused.json["desc"]
    rights = {group.value.replace(" ", "_"): "READ_WRITE" for group in Group}
    # The next check fails, because this server is in no cluster.
    assert holder(root, "all", 0, **rights)("POST", path).status == root("POST", path).status == 404


def test_a_key_removes_no_key_that_may_do_more(ada: User) -> None:
    key = holder(ada, "remover", Account_Access_Key="READ_WRITE")
    holder(ada, "stronger", Applet="READ_WRITE")
    holder(ada, "weaker", Account_Access_Key="READONLY")
    assert key("DELETE", "/account_access_key/stronger").key == "AccessKeyPermissionDenied"
    assert key("DELETE", "/account_access_key/weaker").status == 204
    assert key("DELETE", "/account_access_key/nosuch").status == 204
    assert ada("GET", "/account_access_key/data/stronger").status == 200


def test_keys_are_filtered_and_paged(ada: User) -> None:
    holder(ada, "alpha", days=1)
    holder(ada, "beta", days=10)
    holder(ada, "gamma")

    def names(query: str) -> list[str]:
        reply = ada("GET", f"/account_access_key/datalist?{query}")
        assert reply.status == 200, reply.body
        return [row["name"] for row in reply.json["data"]]

    assert names("") == ["gamma", "beta", "alpha"]
    assert names("name=lph") == ["alpha"]
    assert names("size=1&offset=1") == ["beta"]
    assert len(names("size=-1")) == 3
    assert len(names("size=99999999")) == 3
    assert names("identityID=7") == []
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 5 * 86_400))
    assert names(f"expiredAtEnd={soon}") == ["alpha"]
    assert names(f"expiredAtBegin={soon}") == ["beta"]


@pytest.mark.parametrize(
    "query",
    [
        "size=-2",
        "offset=-1",
        "identityType=DEVICE",
        "identityID=abc",
        "expiredAtBegin=tomorrow",
        "expiredAtEnd=2026-01-01T00:00:00",
    ],
)
def test_an_invalid_filter_is_refused(ada: User, query: str) -> None:
    refused = ada("GET", f"/account_access_key/datalist?{query}")
    assert list(refused.fields) == [query.partition("=")[0]]


def test_the_groups_are_listed_by_name(ada: User) -> None:
    groups = ada("GET", "/account_access_key/operator_group_metas").json
    names = [group["name"] for group in groups]
    assert names == sorted(names)
    assert "Account Access Key" in names
    assert all(set(group) == {"name", "desc"} for group in groups)


def test_when_a_key_was_used_is_noted_once_a_minute_without_moving_the_counter(
    server: Server, ada: User
) -> None:
    key = holder(ada, Project="READONLY")
    version = server.writer.reader().version()
    account_id = ada.account.account_id
    for _ in range(3):
        assert key("GET", "/project").status == 200

    def last_used() -> int:
        found = server.writer.reader().access_key_named(account_id, "ci")
        assert found is not None
        return found.last_used

    noted = until(last_used, "it is noted")
    assert key("GET", "/project").status == 200
    assert ada("GET", "/account_access_key/data/ci").json["lastUsed"]
    assert last_used() == noted
    assert server.writer.reader().version() == version
