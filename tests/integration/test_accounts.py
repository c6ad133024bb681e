"""Accounts over real HTTP: registering, signing in, passwords."""

from __future__ import annotations

import json

import pytest

from fieldbrook.gateway.management.sign_in.throttle import PER_NAME
from tests.support.management import CODE, PASSWORD, V0, Reply, Server, User, login
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


@pytest.mark.parametrize(
    ("field", "value"),
    [
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
    for old, new in ((PASSWORD, PASSWORD), ("wrong horse", "battery staple"), (PASSWORD, "short")):
        body = json.dumps({"oldPassword": old, "password": new})
        assert (
            root.server.send("PUT", f"{V0}/account", body, {"Authorization": token}).status >= 400
        )
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


def key_of(server: Server, token: str) -> str:
    """An access key that may see projects."""
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
