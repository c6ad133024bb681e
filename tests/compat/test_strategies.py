"""Strategies over the routes of both generations."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.management import User

X = "/strategy/x/NftMinter"
HUGE = "9" * 40


@pytest.fixture
def rule(ada: User) -> dict[str, Any]:
    """A strategy that fits, on an applet of the project NftMinter."""
    ada.project()
    return {"appletID": ada.applet()["appletID"], "eventType": "MINT", "handler": "mint"}


def test_a_strategy_is_created_alone_and_found_by_its_id(ada: User, rule: dict[str, Any]) -> None:
    made = ada("POST", X, {**rule, "autoCollectMetric": True, "unknown": [1]})
    assert made.status == 201
    assert made.headers["X-Meta"] == "srv-applet-mgr@0.0.9/CreateStrategy"
    path = f"/strategy/data/{made.json['strategyID']}"
    found = ada("GET", path)
    assert (found.status, found.json) == (200, made.json)
    assert {key: found.json[key] for key in rule} == rule
    assert found.json["autoCollectMetric"] is True
    assert ada("GET", f"/strategy/NftMinter/{made.json['strategyID']}").json == made.json


def test_a_strategy_is_changed_by_its_id_and_keeps_what_is_not_said(
    ada: User, rule: dict[str, Any]
) -> None:
    made = ada("POST", X, {**rule, "autoCollectMetric": True}).json
    changed = ada("PUT", f"/strategy/{made['strategyID']}", {**rule, "eventType": "BURN"})
    assert (changed.status, changed.body) == (204, b"")
    found = ada("GET", f"/strategy/data/{made['strategyID']}").json
    assert (found["eventType"], found["autoCollectMetric"]) == ("BURN", True)
    ada("PUT", f"/strategy/{made['strategyID']}", {**rule, "autoCollectMetric": False})
    found = ada("GET", f"/strategy/data/{made['strategyID']}").json
    assert (found["eventType"], found["autoCollectMetric"]) == ("MINT", False)


def test_a_flag_nobody_has_set_is_false(ada: User, rule: dict[str, Any]) -> None:
    assert ada("POST", X, rule).json["autoCollectMetric"] is False
    rows = ada("GET", f"{X}/datalist").json["data"]
    assert [row["autoCollectMetric"] for row in rows] == [False, False]


def test_strategies_are_listed_one_a_row_by_every_filter(ada: User, rule: dict[str, Any]) -> None:
    ids = {
        event_type: ada("POST", X, {**rule, "eventType": event_type}).json["strategyID"]
        for event_type in ("A", "B", "C")
    }

    def listed(query: str) -> list[str]:
        answer = ada("GET", f"{X}/datalist?{query}").json
        assert answer["total"] >= len(answer["data"])
        return [row["eventType"] for row in answer["data"]]

    assert listed("") == ["C", "B", "A", "DEFAULT"]
    assert listed("size=2&offset=1") == ["B", "A"]
    assert listed("eventType=A&eventType=C") == ["C", "A"]
    assert listed(f"strategyID={ids['B']}") == ["B"]
    assert listed("handler=start") == ["DEFAULT"]
    assert listed(f"appletID={rule['appletID']}&handler=mint&size=-1") == ["C", "B", "A"]
    assert listed("appletID=5") == []
    ada("PUT", f"/strategy/{ids['A']}", {**rule, "eventType": "A2"})
    assert listed("size=1") == ["A2"], "the latest change first"
    seed = ada("GET", "/strategy/NftMinter?size=1").json
    assert [s["eventType"] for s in seed["data"][0]["strategies"]] == ["C"], "latest created first"
    assert seed["total"] == 4
    assert ada("GET", f"/strategy/NftMinter?id={ids['B']}").json["total"] == 1


def test_strategies_are_removed_one_by_one_by_filter_and_all(
    ada: User, rule: dict[str, Any]
) -> None:
    made = [
        ada("POST", X, {**rule, "eventType": event_type}).json["strategyID"]
        for event_type in ("A", "B", "C", "D")
    ]
    assert ada("DELETE", f"/strategy/data/{made[0]}").status == 204
    assert ada("GET", f"/strategy/data/{made[0]}").key == "StrategyNotFound"
    assert ada("DELETE", f"/strategy/data/{made[0]}").key == "StrategyNotFound"
    assert ada("DELETE", f"{X}?eventType=B&strategyID={made[2]}").status == 204
    assert ada("GET", f"{X}/datalist").json["total"] == 4, "filters are combined"
    assert ada("DELETE", f"{X}?eventType=B&eventType=C").status == 204
    assert {s["eventType"] for s in ada("GET", f"{X}/datalist").json["data"]} == {"D", "DEFAULT"}
    assert ada("DELETE", X).status == 204
    assert ada("GET", f"{X}/datalist").json == {"data": [], "total": 0}


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"appletID": "0"}, ["appletID"]),
        ({"appletID": 5}, ["appletID"]),
        ({"appletID": HUGE}, ["appletID"]),
        ({"appletID": None, "eventType": "", "handler": 0}, ["appletID", "eventType", "handler"]),
        ({"eventType": "x" * 257}, ["eventType"]),
        ({"eventType": ["MINT"]}, ["eventType"]),
        ({"handler": "x" * 257}, ["handler"]),
        ({"autoCollectMetric": "yes"}, ["autoCollectMetric"]),
    ],
)
def test_an_invalid_field_of_a_strategy_is_named(
    ada: User, rule: dict[str, Any], change: dict[str, Any], fields: list[str]
) -> None:
    assert list(ada("POST", X, {**rule, **change}).fields) == fields
    made = ada("POST", X, rule).json["strategyID"]
    assert list(ada("PUT", f"/strategy/{made}", {**rule, **change}).fields) == fields


def test_an_impossible_strategy_is_refused_with_the_reason(
    ada: User, bob: User, rule: dict[str, Any]
) -> None:
    made = ada("POST", X, rule).json
    taken = ada("POST", X, rule)
    assert (taken.status, taken.key) == (409, "StrategyConflict")
    assert taken.json["desc"] == "[prj: NftMinter] [app: log] [type: MINT] [hdl: mint]"
    other = ada("POST", X, {**rule, "eventType": "B"}).json
    assert ada("PUT", f"/strategy/{other['strategyID']}", rule).key == "StrategyConflict"
    assert ada("PUT", f"/strategy/{made['strategyID']}", rule).status == 204, "with itself it may"
    ada.project("second")
    theirs = ada.applet("second")["appletID"]
    assert ada("POST", X, {**rule, "appletID": theirs}).key == "AppletNotFound"
    unknown = ada("PUT", f"/strategy/{made['strategyID']}", {**rule, "appletID": theirs})
    assert unknown.key == "AppletNotFound"
    assert ada("POST", "/strategy/x/none", rule).key == "ProjectNotFound"
    assert ada("PUT", "/strategy/5", rule).key == "StrategyNotFound"
    assert list(ada("PUT", "/strategy/abc", rule).fields) == ["strategyID"]
    assert list(ada("GET", f"/strategy/data/{HUGE}").fields) == ["strategyID"]
    for query in ("size=-2", "size=abc", "offset=-1"):
        assert list(ada("GET", f"{X}/datalist?{query}").fields) == [query.partition("=")[0]]
    assert list(ada("GET", f"{X}/datalist?strategyID=x").fields) == ["strategyID[0]"]
    assert len(ada("GET", f"{X}/datalist?size={HUGE}").json["data"]) == 3
    assert ada("GET", f"{X}/datalist?offset={HUGE}").json == {"data": [], "total": 3}
    for method, path, body in (
        ("GET", f"/strategy/data/{made['strategyID']}", None),
        ("PUT", f"/strategy/{made['strategyID']}", rule),
        ("DELETE", f"/strategy/data/{made['strategyID']}", None),
    ):
        assert bob(method, path, body).key == "StrategyNotFound"
    for method, path in (("POST", X), ("GET", f"{X}/datalist"), ("DELETE", X)):
        assert bob(method, path, rule).key == "ProjectNotFound"


def test_with_its_project_a_strategy_is_gone(ada: User, rule: dict[str, Any]) -> None:
    made = ada("POST", X, rule).json
    ada("DELETE", "/project/NftMinter")
    assert ada("GET", f"/strategy/data/{made['strategyID']}").key == "StrategyNotFound"
    assert ada("PUT", f"/strategy/{made['strategyID']}", rule).key == "StrategyNotFound"
    assert ada("POST", X, rule).key == "ProjectNotFound"


def test_where_paths_of_the_generations_meet_the_literal_one_wins(
    ada: User, rule: dict[str, Any]
) -> None:
    # `/strategy/{projectName}/{strategyID}` would match both of these.
    assert ada("DELETE", "/strategy/x/none").key == "ProjectNotFound"
    assert ada("GET", "/strategy/data/5").key == "StrategyNotFound"
    assert ada("GET", "/strategy/x/5").key == "ProjectNotFound", "x is never a project"
