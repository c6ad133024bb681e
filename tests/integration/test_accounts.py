"""Accounts over real HTTP: registering, signing in, passwords."""

from __future__ import annotations

import json

import pytest

from fieldbrook.gateway.throttle import PER_NAME
from tests.integration.test_management import CODE, V0, Node, Reply, User, ada, bob, node, root
from tests.integration.test_management import register as register_with

__all__ = ["ada", "bob", "node", "root"]

PASSWORD = "correct horse"


def register(root: User, **body: str) -> Reply:
    return register_with(root.node, body, Authorization=root.token)


def login(node: Node, username: str, password: str = PASSWORD) -> Reply:
    body = json.dumps({"username": username, "password": password})
    return node.send("PUT", f"{V0}/login", body)


def test_an_account_keeps_its_avatar(root: User) -> None:
    url = "https://example.org/ada.png"
    made = register(root, username="ada", avatarURL=url, password=PASSWORD)
    assert (made.status, made.json["avatar"]) == (201, url)


def test_without_a_role_an_administrator_is_made(root: User) -> None:
    made = register(root, username="ada")
    assert made.json["role"] == "ADMIN"
    assert len(made.json["password"]) == 16
    assert login(root.node, "ada", made.json["password"]).status == 200


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
def test_a_registration_that_does_not_fit_is_refused(root: User, field: str, value: str) -> None:
    assert list(register(root, **{"username": "ada", field: value}).fields) == [field]


def test_a_password_is_changed_by_the_id_of_the_caller_only(root: User, bob: User) -> None:
    made = register(root, username="ada", password=PASSWORD).json
    token = {"Authorization": login(root.node, "ada").json["token"]}

    def change(account_id: str, new: str) -> Reply:
        body = json.dumps({"oldPassword": PASSWORD, "password": new})
        return root.node.send("PUT", f"{V0}/account/{account_id}", body, token)

    for other in (str(bob.account.account_id), "0", "7"):
        refused = change(other, "battery staple")
        assert (refused.status, refused.key) == (404, "AccountNotFound")
    assert change("abc", "battery staple").fields
    same = change(made["accountID"], PASSWORD)
    assert (same.status, same.key) == (401, "InvalidNewPassword")
    assert change(made["accountID"], "battery staple").status == 204
    assert login(root.node, "ada", "battery staple").status == 200


def test_who_guesses_is_told_to_come_back_later(node: Node) -> None:
    register_with(node, {"username": "admin", "password": PASSWORD}, X_Setup_Code=CODE)
    for _ in range(PER_NAME.burst):
        assert login(node, "admin", "wrong horse").key == "InvalidPassword"
    refused = login(node, "admin")
    assert (refused.status, refused.key) == (429, "TooManyAttempts")
    assert 1 <= int(refused.headers["Retry-After"]) <= PER_NAME.seconds_each
    assert login(node, "nobody").key == "AccountIdentityNotFound"


def test_guessing_the_old_password_is_slowed_down_too(root: User) -> None:
    register(root, username="ada", password=PASSWORD)
    token = {"Authorization": login(root.node, "ada").json["token"]}
    body = json.dumps({"oldPassword": "wrong", "password": "battery staple"})
    keys = [
        root.node.send("PUT", f"{V0}/account", body, token).key for _ in range(PER_NAME.burst + 1)
    ]
    assert keys == ["InvalidOldPassword"] * PER_NAME.burst + ["TooManyAttempts"]


@pytest.mark.parametrize("field", ["username", "password"])
def test_a_login_with_an_over_long_value_is_refused(node: Node, field: str) -> None:
    body = {"username": "ada", "password": PASSWORD, field: "x" * 2_000}
    reply = node.send("PUT", f"{V0}/login", json.dumps(body))
    assert list(reply.fields) == [field]
