"""Traffic limits over the routes of the later generation."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.management import User

X = "/traffic/x/NftMinter"
LIMIT = {"threshold": 2, "duration": "10m", "apiType": "EVENT"}


def test_a_limit_is_created_found_listed_changed_and_removed(ada: User, root: User) -> None:
    project = ada.project()
    made = root("POST", X, {**LIMIT, "apiType": "event", "unknown": 1})
    assert made.status == 201
    row = made.json
    assert row["projectID"] == project["projectID"]
    assert (row["threshold"], row["duration"], row["apiType"]) == (2, "10m", "EVENT")
    assert row["publisherThreshold"] == 0
    assert row["startAt"].endswith(":00.000Z")
    for caller in (root, ada):
        assert caller("GET", f"/traffic/data/{row['trafficLimitID']}").json == row
        assert caller("GET", f"{X}/datalist").json == {"data": [row], "total": 1}
    change = {"threshold": 3, "duration": "1h30m", "publisherThreshold": 1}
    changed = root("PUT", f"{X}/{row['trafficLimitID']}", change)
    assert (changed.status, changed.json["threshold"]) == (200, 3)
    assert (changed.json["duration"], changed.json["publisherThreshold"]) == ("1h30m", 1)
    kept = root("PUT", f"{X}/{row['trafficLimitID']}", {"threshold": 4, "duration": "1h30m"}).json
    assert (kept["publisherThreshold"], kept["startAt"]) == (1, changed.json["startAt"])
    assert root("DELETE", f"{X}/data/{row['trafficLimitID']}").status == 204
    assert ada("GET", f"/traffic/data/{row['trafficLimitID']}").key == "TrafficLimitNotFound"
    again = root("DELETE", f"{X}/data/{row['trafficLimitID']}")
    assert (again.status, again.key) == (404, "TrafficLimitNotFound")


def test_one_limit_for_each_kind_of_call(ada: User, root: User) -> None:
    ada.project()
    assert root("POST", X, LIMIT).status == 201
    taken = root("POST", X, {**LIMIT, "threshold": 9})
    assert (taken.status, taken.key) == (409, "TrafficLimitConflict")
    assert root("POST", X, {**LIMIT, "apiType": "BLOCKCHAIN"}).status == 201
    assert ada("GET", f"{X}/datalist").json["total"] == 2
    assert ada("GET", f"{X}/datalist?apiType=event").json["total"] == 1
    assert len(ada("GET", f"{X}/datalist?size=1&offset=1").json["data"]) == 1
    assert root("DELETE", f"{X}?apiType=EVENT").status == 204
    (left,) = ada("GET", f"{X}/datalist").json["data"]
    assert left["apiType"] == "BLOCKCHAIN"
    assert root("DELETE", X).status == 204
    assert ada("GET", f"{X}/datalist").json == {"data": [], "total": 0}


def test_only_administrators_set_limits(ada: User, root: User) -> None:
    ada.project()
    limit_id = root("POST", X, LIMIT).json["trafficLimitID"]
    change = {"threshold": 3, "duration": "3m"}
    for method, path, body in (
        ("POST", X, LIMIT),
        ("PUT", f"{X}/{limit_id}", change),
        ("DELETE", f"{X}/data/{limit_id}", None),
        ("DELETE", X, None),
    ):
        refused = ada(method, path, body)
        assert (refused.status, refused.key) == (401, "NoAdminPermission")


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"threshold": 0}, ["threshold"]),
        ({"threshold": -1}, ["threshold"]),
        ({"threshold": "2"}, ["threshold"]),
        ({"threshold": 1 << 60}, ["threshold"]),
        ({"duration": ""}, ["duration"]),
        ({"duration": "0"}, ["duration"]),
        ({"duration": 600}, ["duration"]),
        ({"duration": "10"}, ["duration"]),
        ({"duration": "999ms"}, ["duration"]),
        ({"duration": "9000h"}, ["duration"]),
        ({"duration": "9" * 500 + "h"}, ["duration"]),
        ({"apiType": "MQTT"}, ["apiType"]),
        ({"apiType": 1}, ["apiType"]),
        ({"apiType": ""}, ["apiType"]),
        ({"publisherThreshold": -1}, ["publisherThreshold"]),
        ({"threshold": None, "duration": None}, ["threshold", "duration"]),
    ],
)
def test_an_invalid_field_of_a_limit_is_named(
    ada: User, root: User, change: dict[str, Any], fields: list[str]
) -> None:
    ada.project()
    assert list(root("POST", X, {**LIMIT, **change}).fields) == fields
    if "apiType" not in change:
        limit_id = root("POST", X, LIMIT).json["trafficLimitID"]
        assert list(root("PUT", f"{X}/{limit_id}", {**LIMIT, **change}).fields) == fields


def test_a_limit_that_is_not_there_or_not_in_the_project_is_not_found(
    ada: User, bob: User, root: User
) -> None:
    ada.project()
    bob.project("other")
    limit_id = root("POST", X, LIMIT).json["trafficLimitID"]
    change = {"threshold": 3, "duration": "3m"}
    assert root("PUT", f"/traffic/x/other/{limit_id}", change).key == "TrafficLimitNotFound"
    assert root("DELETE", f"/traffic/x/other/data/{limit_id}").key == "TrafficLimitNotFound"
    assert root("PUT", f"{X}/5", change).key == "TrafficLimitNotFound"
    assert root("POST", "/traffic/x/none", LIMIT).key == "ProjectNotFound"
    assert list(root("PUT", f"{X}/abc", change).fields) == ["trafficLimitID"]
    assert list(root("GET", "/traffic/data/abc").fields) == ["trafficLimitID"]
    for query, field in (("size=-2", "size"), ("apiType=MQTT", "apiType[0]")):
        assert list(root("GET", f"{X}/datalist?{query}").fields) == [field]
    assert bob("GET", f"/traffic/data/{limit_id}").key == "TrafficLimitNotFound"
    assert bob("GET", f"{X}/datalist").key == "ProjectNotFound"
    ada("DELETE", "/project/NftMinter")
    assert root("GET", f"/traffic/data/{limit_id}").key == "TrafficLimitNotFound"
    assert root("POST", X, LIMIT).key == "ProjectNotFound"
