"""Resources: which account owns which module, over the later generation's routes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compat.test_applets import md5, module
from tests.support.management import Server, User


def upload(user: User, name: str, content: bytes, filename: str) -> dict[str, Any]:
    made = user.upload("POST", "/applet/x/p", content, {"appletName": name}, filename)
    assert made.status == 201, made.body
    found: dict[str, Any] = made.json
    return found


@pytest.fixture
def uploads(ada: User) -> list[dict[str, Any]]:
    ada.project("p")
    names = ("one.wasm", "two.wasm", "other.wasm")
    return [upload(ada, name, module(n), name) for n, name in enumerate(names)]


def test_the_list_of_resources_has_the_fields_that_later_clients_read(
    ada: User, uploads: list[dict[str, Any]]
) -> None:
    answer = ada("GET", "/resource").json
    assert answer["total"] == 3
    row = answer["data"][-1]
    assert row["resourceID"] == uploads[0]["resourceID"]
    assert row["md5"] == md5(module(0))
    assert row["filename"] == "one.wasm"
    assert row["uploadedAt"] == row["createdAt"]
    assert (row["expireAt"], row["comment"]) == ("0001-01-01T00:00:00Z", "")
    assert len(row["path"]) == 64


def test_resources_are_filtered_and_paged_when_asked(
    ada: User, uploads: list[dict[str, Any]]
) -> None:
    def names(query: str) -> list[str]:
        rows = ada("GET", f"/resource?{query}").json["data"]
        return [row["filename"] for row in rows]

    first = uploads[0]["resourceID"]
    assert names(f"resourceID={first}&resourceID={uploads[2]['resourceID']}") == [
        "other.wasm",
        "one.wasm",
    ]
    assert names("filename=one.wasm") == ["one.wasm"]
    assert names("filenameLike=o") == ["other.wasm", "two.wasm", "one.wasm"]
    assert names("filenameLike=other") == ["other.wasm"]
    assert names(f"md5={md5(module(1)).upper()}") == ["two.wasm"]
    assert len(names("uploadedAfter=2020-01-01T00:00:00Z")) == 3
    assert names("uploadedBefore=2020-01-01T00:00:00%2B02:00") == []
    assert names("expireBefore=2999-01-01T00:00:00Z") == []
    assert len(names("expireAfter=2999-01-01T00:00:00Z")) == 3
    assert names("size=1&offset=1") == ["two.wasm"]
    assert len(names(f"size={10**15}")) == 3
    for query in (
        "uploadedBefore=yesterday",
        "expireAfter=2020-01-01T00:00:00",
        "size=-2",
    ):
        assert list(ada("GET", f"/resource?{query}").fields) == [query.partition("=")[0]]
    assert list(ada("GET", "/resource?resourceID=x").fields) == ["resourceID[0]"]


def test_an_unknown_resource_and_one_of_another_account_are_refused_alike(
    ada: User, bob: User, uploads: list[dict[str, Any]]
) -> None:
    hers = uploads[0]["resourceID"]
    for user, resource_id in ((bob, hers), (ada, "5")):
        for method, path in (
            ("GET", f"/resource/data/{resource_id}"),
            ("GET", f"/resource/url/{resource_id}"),
            ("DELETE", f"/resource/{resource_id}"),
        ):
            refused = user(method, path)
            assert (refused.status, refused.key) == (404, "ResourcePermNotFound")
            assert refused.json["code"] == 404_999_010
    assert bob("GET", "/resource").json == {"data": [], "total": 0}
    for path in ("/resource/data/x", "/resource/url/x"):
        assert list(ada("GET", path).fields) == ["resourceID"]


def test_there_is_no_address_elsewhere_to_fetch_a_module_from(
    ada: User, uploads: list[dict[str, Any]]
) -> None:
    refused = ada("GET", f"/resource/url/{uploads[0]['resourceID']}")
    assert (refused.status, refused.key) == (403, "UnsupportedFSOperator")
    assert refused.json["code"] == 403_999_009


def test_a_module_whose_file_is_gone_is_not_found(
    ada: User, server: Server, uploads: list[dict[str, Any]]
) -> None:
    for path in server.folder.glob("modules/*"):
        path.unlink()
    refused = ada("GET", f"/resource/data/{uploads[0]['resourceID']}")
    assert (refused.status, refused.key) == (404, "ResourceNotFound")


def test_two_accounts_may_own_the_same_module(
    ada: User, bob: User, uploads: list[dict[str, Any]]
) -> None:
    bob.project("q")
    info = {"appletName": "same"}
    his = bob.upload("POST", "/applet/q", module(0), info, "his.wasm").json
    assert his["resourceID"] != uploads[0]["resourceID"]
    assert his["resource"]["path"] == uploads[0]["resource"]["path"]
    ada("DELETE", "/project/p")
    assert ada("DELETE", f"/resource/{uploads[0]['resourceID']}").status == 204
    assert bob("GET", f"/resource/data/{his['resourceID']}").body == module(0)
