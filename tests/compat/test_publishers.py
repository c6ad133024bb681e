"""Publishers and their tokens over the routes of both generations."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest

from fieldbrook.core.clock import now_ms, rfc3339
from fieldbrook.security.access_keys import DESCRIPTIONS, Group
from fieldbrook.security.tokens import PUBLISHER_TOKEN_LIMIT
from tests.support.management import Server, User

X = "/publisher/x/NftMinter"
HUGE = "9" * 40
DEVICE = {"name": "device", "key": "mn01"}
IN_AN_HOUR = 3_600_000


@pytest.fixture(autouse=True)
def project(ada: User) -> dict[str, Any]:
    return ada.project()


def test_a_later_client_gets_an_access_key_and_a_seed_era_one_a_signed_token(ada: User) -> None:
    made = ada("POST", X, DEVICE)
    assert made.status == 201
    assert made.headers["X-Meta"] == "srv-applet-mgr@0.0.9/CreatePublisher"
    token = made.json["token"]
    assert token.startswith("w3b_MV8")
    assert len(token) <= PUBLISHER_TOKEN_LIMIT
    text = base64.urlsafe_b64decode(token[4:] + "==").decode()
    assert re.fullmatch(r"1_\d{10}_[!-^`-~]{12}", text)
    seed = ada("POST", "/publisher/NftMinter", {**DEVICE, "key": "mn02"}).json["token"]
    assert seed.count(".") == 2


def test_a_publisher_is_found_by_its_id_changed_and_removed(ada: User) -> None:
    made = ada("POST", X, {**DEVICE, "unknown": 1}).json
    path = f"/publisher/data/{made['publisherID']}"
    assert ada("GET", path).json == made
    changed = ada("PUT", f"{X}/{made['publisherID']}", {"name": "d", "key": "mn02"})
    assert (changed.status, changed.body) == (204, b"")
    found = ada("GET", path).json
    assert (found["name"], found["key"], found["token"]) == ("d", "mn02", made["token"])
    assert ada("DELETE", path).status == 204
    assert ada("GET", path).key == ada("DELETE", path).key == "PublisherNotFound"


def test_an_upsert_gives_the_publisher_that_is_there_as_it_is(ada: User) -> None:
    made = ada("POST", f"{X}/upsert", DEVICE)
    assert made.status == 201
    again = ada("POST", f"{X}/upsert", {**DEVICE, "name": "another", "eventTypes": ["A"]})
    assert (again.status, again.json) == (201, made.json)
    assert ada("GET", X).json["total"] == 1


def test_an_anonymous_publisher_makes_its_project_public_and_each_has_its_own(
    ada: User, bob: User, server: Server, project: dict[str, Any]
) -> None:
    made = ada("POST", f"{X}/anonymous")
    assert (made.status, made.json["name"], made.json["key"]) == (201, "anonymous", "anonymous")
    assert ada("POST", f"{X}/anonymous").json == made.json

    def public() -> bool:
        stored = server.writer.reader().project(int(project["projectID"]))
        assert stored is not None
        return stored.public

    assert public()
    bob.project("other")
    theirs = bob("POST", "/publisher/x/other/anonymous").json
    assert theirs["publisherID"] != made.json["publisherID"]
    assert ada("DELETE", f"/publisher/data/{made.json['publisherID']}").status == 204
    assert not public()


def test_publishers_are_listed_by_every_filter(ada: User) -> None:
    ids = {
        name: ada("POST", X, {"name": name, "key": f"k-{name}"}).json["publisherID"]
        for name in ("hall-1", "hall-2", "roof-1")
    }

    def listed(query: str) -> list[str]:
        return [row["name"] for row in ada("GET", f"{X}?{query}").json["data"]]

    assert listed("") == ["roof-1", "hall-2", "hall-1"]
    assert listed("size=1&offset=1") == ["hall-2"]
    assert listed(f"size={HUGE}&offset=2") == ["hall-1"]
    assert listed(f"publisherIDs={ids['hall-1']}&publisherIDs={ids['roof-1']}") == [
        "roof-1",
        "hall-1",
    ]
    assert listed("key=k-hall-1&key=k-roof-1") == ["roof-1", "hall-1"]
    assert listed("name=all") == ["hall-2", "hall-1"]
    assert listed("rname=hall") == ["hall-2", "hall-1"]
    assert listed("lname=-1") == ["roof-1", "hall-1"]
    assert listed("rname=hall&lname=-1") == ["hall-1"]
    assert listed("rname=1") == []
    assert listed("find=HALL") == ["hall-2", "hall-1"]
    assert listed("find=k-r") == ["roof-1"]
    assert listed("find=k-r&name=all") == []
    assert ada("GET", "/publisher/NftMinter?key=k-roof-1").json["total"] == 1
    assert list(ada("GET", f"{X}?publisherIDs=x&size=-2").fields) == ["size", "publisherIDs[0]"]


def test_publishers_are_removed_by_filter_and_all(ada: User) -> None:
    for n in range(5):
        ada("POST", X, {"name": f"d{n}", "key": f"k{n}"})
    assert ada("DELETE", f"{X}?key=k0&key=k1&name=d1").status == 204
    assert ada("GET", X).json["total"] == 4
    assert ada("DELETE", X).status == 204
    assert ada("GET", X).json == {"data": [], "total": 0}


def test_a_token_is_replaced_and_told_about_without_itself(ada: User) -> None:
    made = ada("POST", "/publisher/NftMinter", DEVICE).json
    path = f"/publisher/data/{made['publisherID']}/token"
    assert ada("GET", path).json["form"] == "jwt"
    rotated = ada("POST", path)
    assert rotated.status == 201
    assert rotated.json["token"].startswith("w3b_")
    assert ada("GET", f"/publisher/data/{made['publisherID']}").json == rotated.json
    told = ada("GET", path)
    assert told.json == {
        "name": f"pub_{made['publisherID']}",
        "identityType": "PUBLISHER",
        "identityID": made["publisherID"],
        "form": "w3b",
        "privileges": [
            {
                "name": str(group),
                "desc": DESCRIPTIONS[group],
                "perm": "READ_WRITE" if group is Group.EVENT else "NO_ACCESS",
            }
            for group in sorted(Group)
        ],
        "createdAt": rotated.json["updatedAt"],
        "updatedAt": rotated.json["updatedAt"],
    }
    assert rotated.json["token"].encode() not in told.body
    assert ada("POST", path).json["token"] != rotated.json["token"]


def test_a_token_may_end_after_days_or_at_a_time(ada: User) -> None:
    moment = rfc3339(now_ms() + IN_AN_HOUR)
    made = ada("POST", X, {**DEVICE, "expiresAt": moment}).json
    assert made["expiredAt"] == moment
    path = f"/publisher/data/{made['publisherID']}/token"
    assert ada("GET", path).json["expiredAt"] == moment
    rotated = ada("POST", path, {"expirationDays": 30}).json
    day = 86_400_000
    assert rfc3339(now_ms() + 29 * day) < rotated["expiredAt"] < rfc3339(now_ms() + 31 * day)
    assert "expiredAt" not in ada("POST", path, {"expirationDays": 0}).json
    seed = {"name": "s", "key": "s", "expirationDays": 1}
    assert "expiredAt" in ada("POST", "/publisher/NftMinter", seed).json


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"expirationDays": -1}, ["expirationDays"]),
        ({"expirationDays": "1"}, ["expirationDays"]),
        ({"expirationDays": 36_501}, ["expirationDays"]),
        ({"expiresAt": "tomorrow"}, ["expiresAt"]),
        ({"expiresAt": "2999-01-01T00:00:00"}, ["expiresAt"]),
        ({"expiresAt": "2020-01-01T00:00:00Z"}, ["expiresAt"]),
        ({"expiresAt": "2999-01-01T00:00:00Z", "expirationDays": 1}, ["expiresAt"]),
    ],
)
def test_an_invalid_expiry_is_named(ada: User, change: dict[str, Any], fields: list[str]) -> None:
    assert list(ada("POST", X, {**DEVICE, **change}).fields) == fields
    made = ada("POST", X, DEVICE).json
    path = f"/publisher/data/{made['publisherID']}/token"
    assert list(ada("POST", path, change).fields) == fields
    assert ada("GET", f"/publisher/data/{made['publisherID']}").json == made


def test_event_types_are_stated_changed_kept_and_lifted(ada: User) -> None:
    made = ada("POST", X, {**DEVICE, "eventTypes": ["A", "B", "A"]}).json
    assert made["eventTypes"] == ["A", "B"]
    path = f"/publisher/data/{made['publisherID']}"
    assert ada("GET", f"{path}/token").json["eventTypes"] == ["A", "B"]
    ada("PUT", f"{X}/{made['publisherID']}", {**DEVICE, "name": "renamed"})
    assert ada("GET", path).json["eventTypes"] == ["A", "B"]
    ada("PUT", f"/publisher/NftMinter/{made['publisherID']}", {**DEVICE, "eventTypes": ["C"]})
    assert ada("GET", path).json["eventTypes"] == ["C"]
    ada("PUT", f"{X}/{made['publisherID']}", {**DEVICE, "eventTypes": []})
    assert "eventTypes" not in ada("GET", path).json


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"name": ""}, ["name"]),
        ({"name": "x" * 257}, ["name"]),
        ({"key": None, "name": 5}, ["name", "key"]),
        ({"key": "x" * 257}, ["key"]),
        ({"eventTypes": "A"}, ["eventTypes"]),
        ({"eventTypes": ["A", 5]}, ["eventTypes[1]"]),
        ({"eventTypes": ["\U0001f600" * 256] * 17}, ["eventTypes"]),
        ({"eventTypes": ["A", ""]}, ["eventTypes[1]"]),
        ({"eventTypes": ["x" * 257]}, ["eventTypes[0]"]),
        ({"eventTypes": [str(n) for n in range(101)]}, ["eventTypes"]),
    ],
)
def test_an_invalid_field_of_a_publisher_is_named(
    ada: User, change: dict[str, Any], fields: list[str]
) -> None:
    made = ada("POST", X, {**DEVICE, "key": "first"}).json["publisherID"]
    body = {**DEVICE, **change}
    for method, path in (
        ("POST", X),
        ("POST", "/publisher/NftMinter"),
        ("POST", f"{X}/upsert"),
        ("PUT", f"{X}/{made}"),
    ):
        assert list(ada(method, path, body).fields) == fields, path


def test_a_key_is_taken_within_its_project_only(ada: User) -> None:
    made = ada("POST", X, DEVICE).json
    taken = ada("POST", X, DEVICE)
    assert (taken.status, taken.key) == (409, "PublisherConflict")
    assert ada("POST", "/publisher/NftMinter", DEVICE).key == "PublisherConflict"
    other = ada("POST", X, {**DEVICE, "key": "other"}).json["publisherID"]
    assert ada("PUT", f"{X}/{other}", DEVICE).key == "PublisherConflict"
    assert ada("PUT", f"{X}/{made['publisherID']}", DEVICE).status == 204
    ada.project("second")
    assert ada("POST", "/publisher/x/second", DEVICE).status == 201


def test_somebody_elses_publishers_do_not_exist(ada: User, bob: User) -> None:
    made = ada("POST", X, DEVICE).json["publisherID"]
    bob.project("other")
    for method, path in (
        ("GET", f"/publisher/data/{made}"),
        ("DELETE", f"/publisher/data/{made}"),
        ("GET", f"/publisher/data/{made}/token"),
        ("POST", f"/publisher/data/{made}/token"),
    ):
        assert bob(method, path).key == "PublisherNotFound", path
    assert bob("PUT", f"/publisher/x/other/{made}", DEVICE).key == "PublisherNotFound"
    for method, path in (
        ("POST", X),
        ("POST", f"{X}/upsert"),
        ("POST", f"{X}/anonymous"),
        ("GET", X),
        ("DELETE", X),
        ("PUT", f"{X}/{made}"),
    ):
        assert bob(method, path, DEVICE).key == "ProjectNotFound", path
    assert bob("DELETE", f"/publisher/x/other?publisherIDs={made}").status == 204
    assert ada("GET", X).json["total"] == 1


def test_an_unknown_publisher_is_not_found(ada: User) -> None:
    made = ada("POST", X, DEVICE).json["publisherID"]
    for text in ("abc", HUGE, "-5"):
        assert list(ada("GET", f"/publisher/data/{text}").fields) == ["publisherID"]
        assert list(ada("PUT", f"{X}/{text}", DEVICE).fields) == ["publisherID"]
    assert ada("POST", "/publisher/data/5/token").key == "PublisherNotFound"
    assert ada("PUT", f"{X}/5", DEVICE).key == "PublisherNotFound"
    assert ada("POST", "/publisher/x/none", DEVICE).key == "ProjectNotFound"
    ada("DELETE", "/project/NftMinter")
    assert ada("GET", f"/publisher/data/{made}").key == "PublisherNotFound"
    assert ada("POST", f"/publisher/data/{made}/token").key == "PublisherNotFound"
    assert ada("POST", f"{X}/upsert", DEVICE).key == "ProjectNotFound"
