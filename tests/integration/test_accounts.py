"""Accounts over real HTTP: registering, signing in, passwords."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Sequence

import jwt
import pytest

from fieldbrook.core.clock import now_ms
from fieldbrook.core.errors import NodeError, TooManyRequestsError
from fieldbrook.core.model import DEVELOPER, Account
from fieldbrook.gateway.management import base_handler, management_handler
from fieldbrook.gateway.management.framework.workers import Workers
from fieldbrook.gateway.management.sign_in.throttle import PER_NAME
from fieldbrook.security import tokens
from tests.support.management import CODE, KEY, PASSWORD, V0, Reply, Server, User, login
from tests.support.management import register as register_with


def register(root: User, **body: str) -> Reply:
    return register_with(root.server, body, Authorization=root.token)


def test_an_account_keeps_its_avatar(root: User) -> None:
    url = "https://example.org/ada.png"
    made = register(root, username="ada", avatarURL=url, password=PASSWORD)
    assert (made.status, made.json["avatar"]) == (201, url)


def test_without_a_role_an_administrator_is_made(root: User) -> None:
    made = register(root, username="ada")
    assert made.json["role"] == "ADMIN"
    assert len(made.json["password"]) == 16
    assert login(root.server, "ada", made.json["password"]).status == 200


def test_the_first_administrator_needs_the_setup_code_and_can_log_in(
    server: Server,
) -> None:
    body = {"username": "admin", "password": PASSWORD}
    for code in ("", "wrong", "one-time-cod\xe9"):
        refused = register_with(server, body, X_Setup_Code=code)
        assert (refused.status, refused.key) == (401, "NoAdminPermission")
    created = register_with(server, body, X_Setup_Code=CODE)
    assert created.status == 201
    assert created.json["role"] == "ADMIN"
    assert "password" not in created.json
    assert b"argon2" not in created.body
    made = login(server, "admin")
    assert made.status == 200
    assert set(made.json) == {"accountID", "accountRole", "token", "expireAt", "issuer"}
    assert made.json["accountID"] == created.json["accountID"]
    token = {"Authorization": made.json["token"]}
    assert server.send("GET", f"{V0}/project", headers=token).status == 200
    again = register_with(server, {"username": "second"}, X_Setup_Code=CODE)
    assert (again.status, again.key) == (401, "InvalidToken")


def test_an_administrator_registers_others_with_generated_passwords(
    server: Server, root: User, ada: User
) -> None:
    created = register_with(
        server, {"username": "dev", "role": "developer"}, Authorization=root.token
    )
    assert (created.status, created.json["role"]) == (201, "DEVELOPER")
    made = login(server, "dev", created.json["password"])
    assert (made.status, made.json["accountRole"]) == (200, "DEVELOPER")
    refused = register_with(server, {"username": "x"}, Authorization=ada.token)
    assert (refused.status, refused.key) == (401, "NoAdminPermission")
    taken = register(root, username="dev")
    assert (taken.status, taken.key) == (409, "AccountIdentityConflict")


def test_a_login_fails_for_an_unknown_name_and_for_another_password(
    server: Server,
) -> None:
    register_with(server, {"username": "admin", "password": PASSWORD}, X_Setup_Code=CODE)

    def attempt(**body: str) -> Reply:
        return server.send("PUT", f"{V0}/login", json.dumps(body))

    assert attempt(username="nobody", password="x").key == "AccountIdentityNotFound"
    assert attempt(username="admin", password="wrong horse").key == "InvalidPassword"
    assert attempt(username="admin").fields == {"password": "missing required field"}
    assert set(attempt().fields) == {"username", "password"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("username", ""),
        ("username", "x" * 257),
        ("password", "short"),
        ("role", "KING"),
        ("avatarURL", "javascript:alert(1)"),
        ("avatarURL", "/ada.png"),
        ("avatarURL", "http://"),
        ("avatarURL", "http://[::1"),
        ("avatarURL", "http://a/\n"),
        ("avatarURL", "http://a/" + "x" * 1_100),
        ("username", " ada"),
        ("username", "a\nb"),
        ("username", "0x19E7E376E7C213B7E7e7e46cc70A5dD086DAff2A"),
        ("password", "x" * 1_025),
    ],
)
def test_an_invalid_registration_is_refused(root: User, field: str, value: str) -> None:
    assert list(register(root, **{"username": "ada", field: value}).fields) == [field]


def test_a_password_is_changed_by_the_id_of_the_caller_only(root: User, bob: User) -> None:
    made = register(root, username="ada", password=PASSWORD).json
    token = {"Authorization": login(root.server, "ada").json["token"]}

    def change(account_id: str, new: str) -> Reply:
        body = json.dumps({"oldPassword": PASSWORD, "password": new})
        return root.server.send("PUT", f"{V0}/account/{account_id}", body, token)

    for other in (str(bob.account.account_id), "0", "7"):
        refused = change(other, "battery staple")
        assert (refused.status, refused.key) == (404, "AccountNotFound")
    assert change("abc", "battery staple").fields
    same = change(made["accountID"], PASSWORD)
    assert (same.status, same.key) == (401, "InvalidNewPassword")
    assert change(made["accountID"], "battery staple").status == 200
    assert login(root.server, "ada", "battery staple").status == 200


def projects(server: Server, token: str) -> Reply:
    return server.send("GET", f"{V0}/project", None, {"Authorization": token})


@pytest.mark.parametrize("path", ["/account", "/account/{accountID}"])
def test_a_new_password_ends_the_logins_of_before_and_answers_with_one(
    root: User, path: str
) -> None:
    made = register(root, username="ada", password=PASSWORD).json
    stolen, mine = (login(root.server, "ada").json["token"] for _ in range(2))
    body = json.dumps({"oldPassword": PASSWORD, "password": "battery staple"})
    key = key_of(root.server, mine)
    changed = root.server.send("PUT", V0 + path.format(**made), body, {"Authorization": mine})
    assert (changed.status, changed.json["accountID"]) == (200, made["accountID"])
    for token in (stolen, mine):
        refused = projects(root.server, token)
        assert (refused.status, refused.key) == (401, "InvalidToken")
        assert "log in again" in refused.json["desc"]
    assert projects(root.server, changed.json["token"]).status == 200
    assert (
        projects(root.server, login(root.server, "ada", "battery staple").json["token"]).status
        == 200
    )
    assert projects(root.server, key).status == 200


def test_a_refused_change_of_a_password_ends_no_login(root: User) -> None:
    register(root, username="ada", password=PASSWORD)
    token = login(root.server, "ada").json["token"]
    for old, new, key in (
        (PASSWORD, PASSWORD, "InvalidNewPassword"),
        ("wrong horse", "battery staple", "InvalidOldPassword"),
        (PASSWORD, "short", "badRequest"),
        ("", "battery staple", "badRequest"),
    ):
        body = json.dumps({"oldPassword": old, "password": new})
        refused = root.server.send("PUT", f"{V0}/account", body, {"Authorization": token})
        assert refused.key == key
    assert projects(root.server, token).status == 200


def test_a_reset_password_and_a_disabled_account_end_logins_for_good(root: User) -> None:
    made = register(root, username="ada", password=PASSWORD).json
    before = login(root.server, "ada").json["token"]
    assert root("PUT", f"/account/{made['accountID']}/password", {"password": PASSWORD}).json
    assert projects(root.server, before).key == "InvalidToken"
    before = login(root.server, "ada").json["token"]
    root("PUT", f"/account/{made['accountID']}/disable")
    assert projects(root.server, before).key == "DisabledAccount"
    root("PUT", f"/account/{made['accountID']}/enable")
    assert projects(root.server, before).key == "InvalidToken"
    assert projects(root.server, login(root.server, "ada").json["token"]).status == 200


def test_an_owner_ends_all_their_logins_and_nobody_elses(root: User, bob: User) -> None:
    register(root, username="ada", password=PASSWORD)
    first, second = (login(root.server, "ada").json["token"] for _ in range(2))
    ended = root.server.send("POST", f"{V0}/logout", None, {"Authorization": first})
    assert (ended.status, ended.body) == (204, b"")
    for token in (first, second):
        assert projects(root.server, token).key == "InvalidToken"
    assert bob("GET", "/project").status == 200
    assert root.server.send("POST", f"{V0}/logout", None, {"Authorization": first}).status == 401


def with_token(token: str) -> dict[str, str]:
    return {"Authorization": token}


def test_a_renewed_login_ends_with_the_one_it_came_from_and_no_other_does(root: User) -> None:
    register(root, username="ada", password=PASSWORD)
    first, other = (login(root.server, "ada").json["token"] for _ in range(2))
    renewed = root.server.send("PUT", f"{V0}/login/renew", None, with_token(first))
    assert renewed.status == 200
    token = renewed.json["token"]
    assert renewed.json["accountRole"] == "ADMIN"
    assert root.server.send("DELETE", f"{V0}/login", None, with_token(token)).status == 204
    for ended in (first, token):
        refused = projects(root.server, ended)
        assert (refused.status, refused.key) == (401, "InvalidToken")
        assert root.server.send("PUT", f"{V0}/login/renew", None, with_token(ended)).status == 401
    assert projects(root.server, other).status == 200
    assert root.server.send("DELETE", f"{V0}/login?all=true", None, with_token(other)).status == 204
    assert projects(root.server, other).status == 401


@pytest.mark.parametrize(("age_s", "status"), [(86_390, 200), (86_400, 401), (-1, 200)])
def test_a_login_is_renewed_for_a_day_after_the_password(
    root: User, age_s: int, status: int
) -> None:
    now_s = now_ms() // 1000
    old = tokens.Login("x", now_s - age_s)
    token = tokens.issue_account_token(KEY, root.account.account_id, now_s + 60, old)
    renewed = root.server.send("PUT", f"{V0}/login/renew", None, with_token(token))
    assert renewed.status == status
    if status == 200:
        claims = jwt.decode(renewed.json["token"], KEY, [tokens.ALGORITHM])
        assert claims["auth_time"] == old.began_s
        assert claims["exp"] <= old.began_s + 86_400
    else:
        assert "log in again" in renewed.json["desc"]


@pytest.mark.parametrize(("method", "path"), [("PUT", "/login/renew"), ("DELETE", "/login")])
def test_an_access_key_is_no_login(root: User, method: str, path: str) -> None:
    grants = [{"name": "Login", "perm": "READ_WRITE"}]
    key = root("POST", "/account_access_key", {"name": "ci", "privileges": grants}).json[
        "accessKey"
    ]
    refused = root.server.send(method, f"{V0}{path}", None, with_token(key))
    assert (refused.status, refused.key) == (401, "InvalidAuthValue")
    assert "access key" in refused.json["desc"]


@pytest.mark.parametrize("framing", ["Content-Length: {size}", "Transfer-Encoding: chunked"])
@pytest.mark.parametrize("end", ["/logout", "/account/{id}/disable"])
def test_a_request_whose_body_arrives_after_its_login_was_ended_changes_nothing(
    root: User, end: str, framing: str
) -> None:
    made = register(root, username="ada", password=PASSWORD).json
    token = login(root.server, "ada").json["token"]
    body = json.dumps({"name": "late"}).encode()
    sent = body if "Length" in framing else b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    with socket.create_connection(("127.0.0.1", root.server.port), 10) as connection:
        connection.sendall(
            f"POST {V0}/account_access_key HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\n"
            f"{framing.format(size=len(body))}\r\n\r\n".encode()
        )
        # After an answer on another connection, the server has read the head.
        assert projects(root.server, token).status == 200
        if end == "/logout":
            assert root.server.send("POST", V0 + end, None, with_token(token)).status == 204
        else:
            assert root("PUT", end.format(id=made["accountID"])).status == 200
        connection.sendall(sent)
        assert connection.recv(64).split(b" ")[1] in (b"401", b"403")
    reader = root.server.writer.reader()
    assert reader.access_keys(int(made["accountID"])) == []


def test_a_key_that_expires_while_the_body_arrives_changes_nothing(
    root: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(management_handler, "_TRUSTED_MS", 0)
    account_id, rights = root.account.account_id, {"Project": "READ_WRITE"}
    server = root.server
    in_an_hour = now_ms() + 3_600_000
    key = server.writer.create_access_key(account_id, "ci", rights, in_an_hour).text
    body = json.dumps({"name": "late"}).encode()
    with socket.create_connection(("127.0.0.1", server.port), 10) as connection:
        connection.sendall(
            f"POST {V0}/project HTTP/1.1\r\nHost: x\r\nAuthorization: {key}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
        )
        assert projects(server, key).status == 200
        monkeypatch.setattr(base_handler, "now_ms", lambda: in_an_hour)
        connection.sendall(body)
        assert connection.recv(64).split(b" ")[1] == b"403"
    assert server.writer.reader().project_named("late") is None


def key_of(server: Server, token: str) -> str:
    """Make an access key with the right to read projects."""
    grants = [{"name": "Project", "perm": "READONLY"}]
    body = json.dumps({"name": "ci", "privileges": grants})
    made = server.send("POST", f"{V0}/account_access_key", body, {"Authorization": token})
    return str(made.json["accessKey"])


def test_repeated_wrong_passwords_are_answered_429(server: Server) -> None:
    register_with(server, {"username": "admin", "password": PASSWORD}, X_Setup_Code=CODE)
    for _ in range(PER_NAME.burst):
        assert login(server, "admin", "wrong horse").key == "InvalidPassword"
    refused = login(server, "admin")
    assert (refused.status, refused.key) == (429, "TooManyAttempts")
    assert 1 <= int(refused.headers["Retry-After"]) <= PER_NAME.seconds_each
    assert login(server, "nobody").key == "AccountIdentityNotFound"


def test_guessing_the_old_password_is_slowed_down_too(root: User) -> None:
    register(root, username="ada", password=PASSWORD)
    token = {"Authorization": login(root.server, "ada").json["token"]}
    body = json.dumps({"oldPassword": "wrong", "password": "battery staple"})
    keys = [
        root.server.send("PUT", f"{V0}/account", body, token).key for _ in range(PER_NAME.burst + 1)
    ]
    assert keys == ["InvalidOldPassword"] * PER_NAME.burst + ["TooManyAttempts"]


@pytest.mark.parametrize("field", ["username", "password"])
def test_a_login_with_an_over_long_value_is_refused(server: Server, field: str) -> None:
    body = {"username": "ada", "password": PASSWORD, field: "x" * 2_000}
    reply = server.send("PUT", f"{V0}/login", json.dumps(body))
    assert list(reply.fields) == [field]


def test_logins_beyond_the_limit_of_the_queue_are_answered_429() -> None:
    async def crowd() -> list[object]:
        workers = Workers()
        checks = [workers.is_password(_account(number), "x") for number in range(400)]
        return await asyncio.gather(*checks, return_exceptions=True)

    results = asyncio.run(crowd())
    refused = [r for r in results if isinstance(r, NodeError)]
    assert refused
    assert {error.status for error in refused} == {429}
    assert all(r is False for r in results if not isinstance(r, NodeError))


def test_the_logins_of_one_account_leave_places_to_those_of_others() -> None:
    """Correct passwords are not throttled, so a program that logs in all the time must not lock out
    others."""

    async def crowd() -> tuple[Sequence[object], Sequence[object]]:
        workers = Workers()
        many = asyncio.gather(
            *(workers.is_password(_account(1), "x") for _ in range(100)), return_exceptions=True
        )
        await asyncio.sleep(0)
        others = [workers.is_password(_account(number), "x") for number in range(2, 40)]
        return await asyncio.gather(*others, return_exceptions=True), await many

    others, many = asyncio.run(crowd())
    assert others == [False] * 38
    refused = [result for result in many if result is not False]
    assert {type(result) for result in refused} == {TooManyRequestsError}
    assert len(refused) < len(many)


def _account(number: int) -> Account:
    return Account(account_id=number, username="", password_hash="no hash", role=DEVELOPER)
