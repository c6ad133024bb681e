"""Projects, publishers and strategies over the routes of early clients."""

from __future__ import annotations

from typing import Any

import pytest

from fieldbrook.security import tokens
from tests.support.management import (
    KEY,
    Reply,
    User,
)


def test_a_project_is_created_found_listed_and_removed(ada: User) -> None:
    body = {
        "name": "NftMinter",
        "version": "1",
        "description": "d",
        "envs": [["KEY", "value"]],
    }
    created = ada("POST", "/project", body)
    assert created.status == 201
    assert created.json["accountID"] == str(ada.account.account_id)
    assert created.json["envs"] == {"env": [["KEY", "value"]]}
    assert created.json.items() > ada("GET", "/project/NftMinter").json.items()
    assert created.json["project"]["projectID"] == created.json["projectID"]
    listed = ada("GET", "/project").json
    assert listed["total"] == 1
    assert listed["data"][0]["projectID"] == created.json["projectID"]
    assert listed["data"][0]["projectName"] == "NftMinter"
    removed = ada("DELETE", "/project/NftMinter")
    assert (removed.status, removed.body) == (204, b"")
    gone = ada("GET", "/project/NftMinter")
    assert (gone.status, gone.key) == (404, "ProjectNotFound")
    assert ada("DELETE", "/project/NftMinter").key == "ProjectNotFound"


def test_a_project_name_is_taken_by_anybody(ada: User, bob: User) -> None:
    ada.project()
    reply = bob("POST", "/project", {"name": "NftMinter"})
    assert (reply.status, reply.key) == (409, "ProjectNameConflict")


@pytest.mark.parametrize(
    "name",
    [
        *("a" * 33, "a-b", "a/b", "a b", "é", "a\n", "+", "#"),
        *("x", "data", "datalist", "detail_list", "aid_5_p", "eth_0x_p"),
    ],
)
def test_a_project_name_that_is_not_allowed_is_refused(ada: User, name: str) -> None:
    assert list(ada("POST", "/project", {"name": name}).fields) == ["name"]


def test_projects_are_filtered(ada: User) -> None:
    ids = [ada.project(name)["projectID"] for name in ("alpha", "beta", "alphabet")]

    def names(query: str) -> set[str]:
        return {row["projectName"] for row in ada("GET", f"/project?{query}").json["data"]}

    assert names("name=alpha") == {"alpha", "alphabet"}
    assert names("names=alpha&names=beta") == {"alpha", "beta"}
    assert names(f"ids={ids[1]}") == names(f"projectIDs={ids[1]}") == {"beta"}
    assert list(ada("GET", "/project?ids=x").fields) == ["ids[0]"]


def test_a_publisher_is_created_listed_changed_and_removed(ada: User) -> None:
    ada.project()
    created = ada("POST", "/publisher/NftMinter", {"name": "device", "key": "mn01"})
    assert created.status == 201
    publisher_id = created.json["publisherID"]
    owner = tokens.read_any_token(KEY, created.json["token"])
    assert owner == tokens.TokenOwner(int(publisher_id), is_account=False)
    listed = ada("GET", "/publisher/NftMinter").json
    assert listed == {"data": [{**created.json, "ProjectName": "NftMinter"}], "total": 1}
    changed = ada("PUT", f"/publisher/NftMinter/{publisher_id}", {"name": "d", "key": "mn02"})
    assert changed.status == 204
    (row,) = ada("GET", "/publisher/NftMinter").json["data"]
    assert (row["name"], row["key"], row["token"]) == ("d", "mn02", created.json["token"])
    assert ada("DELETE", f"/publisher/NftMinter?publisherID={publisher_id}").status == 204
    assert ada("GET", "/publisher/NftMinter").json == {"data": [], "total": 0}


def test_several_publishers_are_removed_at_once_and_never_all_by_accident(ada: User) -> None:
    ada.project()
    ids = [
        ada("POST", "/publisher/NftMinter", {"name": "n", "key": key}).json["publisherID"]
        for key in "abcde"
    ]
    assert ada("GET", "/publisher/NftMinter").json["total"] == 5
    refused = ada("DELETE", "/publisher/NftMinter")
    assert refused.fields == {"publisherID": "missing required field"}
    query = "&".join(f"publisherID={n}" for n in [*ids[:2], "5"])
    assert ada("DELETE", f"/publisher/NftMinter?{query}").status == 204
    assert ada("GET", "/publisher/NftMinter").json["total"] == 3


def test_a_strategy_is_created_found_listed_changed_and_removed(ada: User) -> None:
    ada.project()
    applet_id = ada.applet()["appletID"]
    rule = {"appletID": applet_id, "eventType": "MINT", "handler": "mint"}
    created = ada("POST", "/strategy/NftMinter", {"strategies": [rule]})
    assert (created.status, created.body) == (204, b"")
    listed = ada("GET", "/strategy/NftMinter").json
    assert listed["total"] == 2
    (group,) = listed["data"]
    assert {s["eventType"] for s in group["strategies"]} == {"DEFAULT", "MINT"}
    assert {s["appletName"] for s in group["strategies"]} == {"log"}
    (row,) = ada("GET", "/strategy/NftMinter?eventType=MINT").json["data"][0]["strategies"]
    path = f"/strategy/NftMinter/{row['strategyID']}"
    found = ada("GET", path).json
    assert {key: found[key] for key in rule} == rule
    assert ada("PUT", path, {**rule, "eventType": "BURN"}).status == 204
    assert ada("GET", path).json["eventType"] == "BURN"
    assert ada("DELETE", f"/strategy/NftMinter?strategyID={row['strategyID']}").status == 204
    gone = ada("GET", path)
    assert (gone.status, gone.key) == (404, "StrategyNotFound")


def test_an_invalid_strategy_is_refused(ada: User) -> None:
    ada.project()
    applet_id = ada.applet()["appletID"]
    rule: dict[str, Any] = {"appletID": applet_id, "eventType": "MINT", "handler": "mint"}

    def create(*rules: dict[str, Any]) -> Reply:
        return ada("POST", "/strategy/NftMinter", {"strategies": list(rules)})

    assert list(create().fields) == ["strategies"]
    assert set(create({}).fields) == {
        "strategies[0].appletID",
        "strategies[0].eventType",
        "strategies[0].handler",
    }
    assert list(create(rule, {**rule, "appletID": int(applet_id)}).fields) == [
        "strategies[1].appletID"
    ]
    assert create({**rule, "appletID": "0"}).fields == {
        "strategies[0].appletID": "missing required field"
    }
    assert create({**rule, "appletID": "5"}).key == "AppletNotFound"
    assert create(rule, rule).key == "StrategyConflict"
    assert ada("GET", "/strategy/NftMinter").json["total"] == 1
    assert create(rule).status == 204
    conflict = create(rule)
    assert (conflict.status, conflict.key) == (409, "StrategyConflict")
    assert conflict.json["desc"] == "[prj: NftMinter] [app: log] [type: MINT] [hdl: mint]"
    missing = ada("DELETE", "/strategy/NftMinter")
    assert missing.fields == {"strategyID": "missing required field"}
    assert ada("PUT", "/strategy/NftMinter/5", rule).key == "StrategyNotFound"
