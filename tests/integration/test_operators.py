"""Operators (keys that sign transactions) over real HTTP."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from fieldbrook.gateway.management.routes.accounts.operators import draft_operator
from fieldbrook.security.operator_keys import ECDSA, ED25519, Vault
from tests.support.management import KEY, V0, Reply, Server, User
from tests.support.management import register as register_with
from tests.unit.security.test_operator_keys import PAIR

SECRET = "11" * 32
ADDRESS = "0x19E7E376E7C213B7E7e7e46cc70A5dD086DAff2A"


def create(user: User, name: str = "signer", **fields: Any) -> Reply:
    return user("POST", "/operator", {"name": name, "privateKey": SECRET, **fields})


def rows(user: User, query: str = "") -> list[dict[str, Any]]:
    reply = user("GET", f"/operator/datalist{query}")
    assert reply.status == 200, reply.body
    listed: list[dict[str, Any]] = reply.json["data"]
    return listed


def test_an_operator_is_created_listed_and_removed_and_its_key_never_comes_out(
    server: Server, ada: User, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    made = create(ada, paymasterKey="paymaster-secret", unknown=1)
    assert (made.status, made.json["address"], made.json["type"]) == (201, ADDRESS, ECDSA)
    listed = ada("GET", "/operator/datalist")
    assert {row["name"] for row in listed.json["data"]} == {"signer", "default"}
    assert listed.json["total"] == 2
    operator = server.writer.reader().operator(int(made.json["operatorID"]))
    assert operator is not None
    vault = Vault(KEY)
    assert vault.open(operator.sealed_key, ADDRESS) == bytes.fromhex(SECRET)
    assert vault.open(operator.sealed_paymaster, ADDRESS) == b"paymaster-secret"
    for text in (made.body.decode(), listed.body.decode(), repr(operator), caplog.text):
        assert SECRET not in text
        assert "paymaster-secret" not in text
    server.writer._environment.sync(True)
    stored = b"".join(file.read_bytes() for file in (server.folder / "registry").iterdir())
    assert bytes.fromhex(SECRET) not in stored
    assert SECRET.encode() not in stored
    assert b"paymaster-secret" not in stored
    path = f"/operator/data/{made.json['operatorID']}"
    assert ada("DELETE", path).status == 204
    assert ada("DELETE", path).key == "OperatorNotFound"
    assert [row["name"] for row in rows(ada)] == ["default"]


def test_an_ed25519_operator_has_a_base58_address(ada: User) -> None:
    made = create(ada, privateKey=PAIR.hex(), type=ED25519)
    assert (made.status, made.json["type"]) == (201, ED25519)
    assert not made.json["address"].startswith("0x")
    assert create(ada, "none", type=0).json["type"] == ECDSA


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"privateKey": SECRET}, "name"),
        ({"name": "a"}, "privateKey"),
        ({"name": "", "privateKey": SECRET}, "name"),
        ({"name": "x" * 257, "privateKey": SECRET}, "name"),
        ({"name": "a", "privateKey": 17}, "privateKey"),
        ({"name": "a", "privateKey": "1" * 257}, "privateKey"),
        ({"name": "a", "privateKey": SECRET, "paymasterKey": "1" * 257}, "paymasterKey"),
        ({"name": "a", "privateKey": SECRET, "type": 3}, "type"),
        ({"name": "a", "privateKey": SECRET, "type": "ECDSA"}, "type"),
    ],
)
def test_an_invalid_operator_is_refused(ada: User, body: Any, field: str) -> None:
    refused = ada("POST", "/operator", body)
    assert list(refused.fields) == [field]
    assert SECRET not in refused.body.decode()


@pytest.mark.parametrize("key", ["x", SECRET[:-2], "00" * 32, "ff" * 32])
def test_an_invalid_private_key_is_refused_and_not_repeated(ada: User, key: str) -> None:
    refused = create(ada, privateKey=key)
    assert (refused.status, refused.key) == (400, "InvalidPrivateKey")
    assert len(key) < 3 or key not in refused.body.decode()
    assert create(ada, privateKey=SECRET, type=2).key == "InvalidPrivateKey"


def test_a_name_is_taken_once_in_an_account(ada: User, bob: User) -> None:
    assert create(ada).status == create(bob).status == 201
    again = create(ada)
    assert (again.status, again.key) == (409, "OperatorConflict")


def test_an_account_has_a_default_operator_from_the_start_or_from_first_need(
    server: Server, ada: User, root: User
) -> None:
    assert server.writer.reader().operators(ada.account.account_id) == []
    given = ada("GET", "/account/operatoraddr")
    assert given.status == 200
    assert given.headers["Content-Type"].startswith("text/plain")
    (operator,) = server.writer.reader().operators(ada.account.account_id)
    assert given.body.decode() == operator.address
    assert ada("GET", "/account/operatoraddr").body == given.body
    made = register_with(server, {"username": "dev"}, Authorization=root.token).json
    (own,) = server.writer.reader().operators(int(made["accountID"]))
    assert own.name == "default"
    assert own.address != operator.address


def test_the_address_of_a_named_operator_is_plain_text(ada: User) -> None:
    create(ada)
    path = "/account/operatoraddr?accountOperatorName="
    assert ada("GET", path + "signer").body.decode() == ADDRESS
    missing = ada("GET", path + "nobody")
    assert (missing.status, missing.key) == (404, "OperatorNotFound")
    assert ada("GET", path + "x" * 300).fields


def test_the_default_operator_and_one_in_use_are_not_removed(ada: User) -> None:
    (default,) = rows(ada)
    refused = ada("DELETE", f"/operator/data/{default['operatorID']}")
    assert (refused.status, refused.key) == (403, "OccupiedOperator")
    operator = create(ada).json["operatorID"]
    project = ada.project("room")["projectID"]
    assert ada("POST", f"/project_operator/{project}/{operator}").status == 201
    assert ada("DELETE", f"/operator/data/{operator}").key == "OccupiedOperator"
    assert ada("DELETE", "/project/room").status == 204
    assert ada("DELETE", f"/operator/data/{operator}").status == 204


def test_a_project_uses_the_default_until_it_is_bound(ada: User) -> None:
    operator = create(ada).json
    project = ada.project("room")["projectID"]
    data = f"/project_operator/data/{project}"
    assert ada("GET", data).json["name"] == "default"
    bound = ada("POST", f"/project_operator/{project}/{operator['operatorID']}")
    assert bound.status == 201
    assert bound.json["projectID"] == project
    assert ada("GET", data).json == operator
    again = ada("POST", f"/project_operator/{project}/{operator['operatorID']}")
    assert (again.status, again.key) == (409, "ProjectOperatorConflict")
    other = ada("POST", "/operator/generate", {"name": "other"}).json
    for used in (other, operator, operator):
        assert ada("PUT", f"/project_operator/{project}/{used['operatorID']}").status == 200
        assert ada("GET", data).json == used
    assert ada("DELETE", f"/operator/data/{other['operatorID']}").status == 204, "it is free again"
    assert ada("DELETE", f"/project_operator/{project}").status == 204
    assert ada("DELETE", f"/project_operator/{project}").status == 204, "it is so already"
    assert ada("GET", data).json["name"] == "default"
    assert ada("PUT", f"/project_operator/{project}/{operator['operatorID']}").status == 200
    assert ada("GET", data).json == operator


def test_somebody_elses_project_or_operator_is_one_that_does_not_exist(
    ada: User, bob: User, root: User
) -> None:
    operator = create(ada).json["operatorID"]
    own = create(bob).json["operatorID"]
    project = ada.project("room")["projectID"]
    assert bob("DELETE", f"/operator/data/{operator}").key == "OperatorNotFound"
    assert bob("GET", f"/project_operator/data/{project}").key == "ProjectNotFound"
    assert bob("DELETE", f"/project_operator/{project}").key == "ProjectNotFound"
    assert bob("POST", f"/project_operator/{project}/{own}").key == "ProjectNotFound"
    assert ada("POST", f"/project_operator/{project}/{own}").key == "OperatorNotFound"
    assert bob("PUT", f"/project_operator/{project}/{own}").key == "ProjectNotFound"
    assert ada("PUT", f"/project_operator/{project}/{own}").key == "OperatorNotFound"
    # An administrator may change the project, but not give it an operator of another account.
    lent = create(root).json["operatorID"]
    refused = root("POST", f"/project_operator/{project}/{lent}")
    assert (refused.status, refused.key) == (401, "NoOperatorPermission")
    assert root("GET", f"/project_operator/data/{project}").json["accountID"] == str(
        ada.account.account_id
    )


@pytest.mark.parametrize(
    "call",
    [
        ("DELETE", "/operator/data/{}"),
        ("POST", "/project_operator/{}/5"),
        ("GET", "/project_operator/data/{}"),
        ("DELETE", "/project_operator/{}"),
    ],
)
def test_an_unknown_id_is_not_found_and_a_malformed_id_is_refused(
    ada: User, call: tuple[str, str]
) -> None:
    method, path = call
    for number in ("0", "5", str((1 << 63) - 1)):
        assert ada(method, path.format(number)).status == 404
    for text in ("abc", "-1", str(1 << 63), "9" * 50):
        assert ada(method, path.format(text)).status == 400


def test_operators_are_paged(ada: User) -> None:
    for n in range(3):
        create(ada, f"op{n}")
    assert len(rows(ada, "?size=2")) == 2
    assert len(rows(ada, "?size=-1")) == len(rows(ada, "?size=99999999")) == 4
    assert list(ada("GET", "/operator/datalist?size=-2").fields) == ["size"]


def test_two_simultaneous_first_uses_create_one_default_operator(server: Server, ada: User) -> None:
    drafts = [draft_operator(Vault(KEY), "default", ECDSA, bytes([n]) * 32) for n in (1, 2)]
    made = [
        server.writer.create_operator(ada.account.account_id, draft, unless_exists=True)
        for draft in drafts
    ]
    assert made[0] == made[1]
    assert ada("GET", "/account/operatoraddr").body.decode() == drafts[0].address


def test_both_prefixes_serve_operators(server: Server, ada: User) -> None:
    path = "/api/w3bapp/account/operatoraddr"
    reply = server.send("GET", path, headers={"Authorization": ada.token})
    assert (
        reply.body == server.send("GET", V0 + path[11:], headers={"Authorization": ada.token}).body
    )
