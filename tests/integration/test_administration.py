"""Operations of administrators on accounts, over real HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from fieldbrook.core.model import ADMIN
from tests.integration.test_accounts import register
from tests.support.management import LOG_WAT, PASSWORD, Server, User, holder, login, wasm


def path(user: User, more: str = "") -> str:
    return f"/account/{user.account.account_id}{more}"


def listed(user: User, query: str = "") -> list[str]:
    reply = user("GET", f"/account{query}")
    assert reply.status == 200, reply.body
    return [row["username"] for row in reply.json["data"]]


def test_accounts_are_listed_filtered_and_paged(root: User, ada: User, bob: User) -> None:
    ada.project()
    reply = root("GET", "/account?username=ad")
    (row,) = reply.json["data"]
    assert (row["username"], row["projects"], reply.json["total"]) == ("ada", 1, 1)
    assert b"argon2" not in reply.body
    assert b"no password" not in reply.body
    assert sorted(listed(root)) == ["ada", "bob", "root"]
    assert sorted(listed(root, "?role=developer&size=-1")) == ["ada", "bob"]
    assert len(listed(root, "?size=1&offset=1")) == 1
    assert len(listed(root, "?size=99999999")) == 3
    assert listed(root, "?state=DISABLED") == []
    assert bob.account.username in listed(root, "?state=enabled")


@pytest.mark.parametrize("query", ["role=KING", "state=OFF", "size=-2", "offset=x"])
def test_an_invalid_filter_is_refused(root: User, query: str) -> None:
    assert list(root("GET", f"/account?{query}").fields) == [query.partition("=")[0]]


def test_others_administer_nothing(ada: User, bob: User) -> None:
    calls: list[tuple[str, str, Any]] = [
        ("GET", "/account", None),
        ("PUT", path(bob, "/disable"), None),
        ("PUT", path(bob, "/enable"), None),
        ("PUT", path(bob, "/password"), {}),
        ("PUT", path(bob, "/role"), {"role": "ADMIN"}),
        ("POST", path(bob, "/logout"), None),
        ("DELETE", path(bob), None),
    ]
    for method, where, body in calls:
        refused = ada(method, where, body)
        assert (refused.status, refused.key) == (401, "NoAdminPermission"), where
    hidden = ada("GET", path(bob))
    assert (hidden.status, hidden.key) == (404, "AccountNotFound")
    assert ada("GET", path(ada)).json["username"] == "ada"
    assert bob("GET", "/project").status == 200


def test_an_administrator_sees_any_account(root: User, ada: User) -> None:
    assert root("GET", path(ada)).json["username"] == "ada"


def test_a_disabled_account_is_shut_out_at_once_until_it_is_enabled(root: User, ada: User) -> None:
    key = holder(ada, Project="READ_WRITE")
    assert key("GET", "/project").status == ada("GET", "/project").status == 200
    off = root("PUT", path(ada, "/disable"))
    assert (off.status, off.json["state"]) == (200, "DISABLED")
    for caller in (ada, key):
        refused = caller("GET", "/project")
        assert (refused.status, refused.key) == (403, "DisabledAccount")
    assert root("PUT", path(ada, "/disable")).status == 200
    assert listed(root, "?state=disabled") == ["ada"]
    assert root("PUT", path(ada, "/enable")).json["state"] == "ENABLED"
    assert key("GET", "/project").status == 200
    assert ada("GET", "/project").key == "InvalidToken", "logins of before have ended"


def test_a_disabled_account_cannot_log_in(root: User) -> None:
    made = register(root, username="eve", password=PASSWORD).json
    root("PUT", f"/account/{made['accountID']}/disable")
    refused = login(root.server, "eve")
    assert (refused.status, refused.key) == (403, "DisabledAccount")
    assert login(root.server, "eve", "wrong").key == "InvalidPassword"


def test_a_role_applies_from_the_next_request_on(root: User, ada: User) -> None:
    assert ada("GET", "/account").key == "NoAdminPermission"
    changed = root("PUT", path(ada, "/role"), {"role": "ADMIN"})
    assert (changed.status, changed.json["role"]) == (200, "ADMIN")
    assert ada("GET", "/account").status == 200
    assert ada("PUT", path(root, "/role"), {"role": "DEVELOPER"}).json["role"] == "DEVELOPER"
    refused = ada("PUT", path(ada, "/role"), {"role": "DEVELOPER"})
    assert (refused.status, refused.key) == (409, "LastAdministrator")
    assert list(ada("PUT", path(root, "/role"), {"role": "KING"}).fields) == ["role"]
    assert ada("PUT", "/account/1/role", {"role": "ADMIN"}).key == "AccountNotFound"


def test_a_key_without_all_rights_makes_no_administrator(root: User, ada: User) -> None:
    key = holder(root, Account="READ_WRITE")
    refused = key("PUT", path(ada, "/role"), {"role": "ADMIN"})
    assert (refused.status, ada.account.role) == (403, "DEVELOPER")
    assert key("PUT", path(ada, "/role"), {"role": "DEVELOPER"}).status == 200


def test_logins_of_another_account_end_and_its_keys_stay(root: User, ada: User) -> None:
    key = holder(ada, Project="READ_WRITE")
    assert root("POST", path(ada, "/logout")).status == 204
    assert ada("GET", "/project").key == "InvalidToken"
    assert key("GET", "/project").status == 200
    assert root("POST", "/account/1/logout").key == "AccountNotFound"


def test_the_last_administrator_stays(server: Server, root: User) -> None:
    for method, more in (("PUT", "/disable"), ("DELETE", ""), ("DELETE", "?force=true")):
        refused = root(method, path(root, more))
        assert (refused.status, refused.key) == (409, "LastAdministrator")
    second = server.account("second", ADMIN)
    assert root("PUT", path(second, "/disable")).status == 200
    assert root("PUT", path(root, "/disable")).key == "LastAdministrator"
    assert root("PUT", path(second, "/enable")).status == 200
    assert root("DELETE", path(root)).status == 204
    assert root("GET", "/project").key == "AccountNotFound"
    second.log_in()
    assert second("DELETE", path(second)).key == "LastAdministrator"


def test_the_last_administrator_keeps_their_projects_too(root: User) -> None:
    root.project("room")
    assert root("DELETE", path(root, "?force=true")).key == "LastAdministrator"
    assert root("GET", "/project/room").status == 200


def test_an_account_is_deleted_with_what_is_its_own(server: Server, root: User, ada: User) -> None:
    key = holder(ada, Project="READONLY")
    ada("GET", "/account/operatoraddr")
    assert root("DELETE", path(ada)).status == 204
    reader = server.writer.reader()
    account_id = ada.account.account_id
    assert not reader.access_keys(account_id)
    assert not reader.operators(account_id)
    assert ada("GET", "/project").key == "AccountNotFound"
    assert key("GET", "/project").key == "AccessKeyNotFound"
    assert root("DELETE", path(ada)).key == "AccountNotFound"


def test_an_account_with_projects_is_deleted_by_force_only(
    server: Server, root: User, ada: User
) -> None:
    ada.project("room")
    ada.applet("room")
    refused = root("DELETE", path(ada))
    assert (refused.status, refused.key) == (409, "AccountInUse")
    assert ada("GET", "/project/room").status == 200
    assert root("DELETE", path(ada, "?force=true")).status == 204
    reader = server.writer.reader()
    assert reader.projects() == []
    assert reader.resources() == []
    assert reader.account(ada.account.account_id) is None


def test_a_resource_that_somebody_elses_applet_runs_outlives_its_account(
    server: Server, root: User, ada: User
) -> None:
    root.project("shared")
    root.upload("POST", "/applet/shared", wasm(LOG_WAT), {"appletName": "log"})
    ada.project("own")
    ada.applet("own")
    assert root("DELETE", path(ada, "?force=true")).status == 204
    assert len(server.writer.reader().resources()) == 1
    assert root("GET", "/applet/shared").json["data"][0]["name"] == "log"


def test_a_password_is_reset_to_a_given_or_a_generated_one(root: User) -> None:
    made = register(root, username="eve", password=PASSWORD).json
    where = f"/account/{made['accountID']}/password"
    given = root("PUT", where, {"password": "battery staple"})
    assert given.status == 200
    assert "password" not in given.json
    assert login(root.server, "eve", "battery staple").status == 200
    generated = root("PUT", where).json["password"]
    assert login(root.server, "eve", generated).status == 200
    assert login(root.server, "eve", "battery staple").key == "InvalidPassword"
    assert list(root("PUT", where, {"password": "short"}).fields) == ["password"]
    assert list(root("PUT", where, {"password": "x" * 1_025}).fields) == ["password"]


def test_ones_own_password_is_not_reset_without_the_old_one(root: User) -> None:
    assert list(root("PUT", path(root, "/password"), {}).fields) == ["accountID"]


@pytest.mark.parametrize(
    "call",
    [("GET", ""), ("PUT", "/enable"), ("PUT", "/disable"), ("PUT", "/password"), ("DELETE", "")],
)
def test_an_unknown_account_is_not_found_and_a_malformed_id_is_refused(
    root: User, call: tuple[str, str]
) -> None:
    method, more = call
    for number in ("0", "5", str((1 << 63) - 1)):
        refused = root(method, f"/account/{number}{more}", {})
        assert (refused.status, refused.key) == (404, "AccountNotFound")
    for text in ("abc", "-1", str(1 << 63)):
        assert root(method, f"/account/{text}{more}", {}).status == 400


def test_force_is_a_truth_value(root: User, ada: User) -> None:
    assert list(root("DELETE", path(ada, "?force=maybe")).fields) == ["force"]
