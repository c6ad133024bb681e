"""Strategies for handlers that the module does not export: accepted like in the original, and
marked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.compat.test_applets import P, form
from tests.support.applets import TALLY
from tests.support.management import LOG_WAT, NO_START_WAT, V0, Reply, User, wasm
from tests.support.nodes import RunningNode, StartNode, message, strategies, until

X = f"/strategy/x/{P}"


def warnings(reply: Reply) -> list[str]:
    """Return the texts of an answer's `Warning` header fields."""
    agent = "299 fieldbrook "
    values = reply.headers.get_all("Warning") or []
    assert all(value.startswith(agent) for value in values)
    return [json.loads(value.removeprefix(agent)) for value in values]


@pytest.fixture
def rule(ada: User) -> dict[str, Any]:
    """Make a strategy for a handler that the applet's module lacks."""
    ada.project(P)
    return {"appletID": ada.applet(P)["appletID"], "eventType": "BURN", "handler": "burn"}


WHY = (
    "strategy BURN is dead: the module exports no handler burn, so its events become dead "
    "letters; it exports start, mint"
)


# ---------------------------------------------------------------- strategies


def test_a_strategy_for_a_handler_that_is_not_exported_is_taken_and_marked_in_every_answer(
    ada: User, rule: dict[str, Any]
) -> None:
    made = ada("POST", X, rule)
    assert (made.status, made.json["dead"], made.json["warnings"]) == (201, True, [WHY])
    strategy_id = made.json["strategyID"]
    for path in (f"/strategy/data/{strategy_id}", f"/strategy/{P}/{strategy_id}"):
        assert ada("GET", path).json == made.json
    later = ada("GET", f"{X}/datalist").json["data"]
    (group,) = ada("GET", f"/strategy/{P}").json["data"]
    for rows in (later, group["strategies"]):
        assert {row["handler"]: row["dead"] for row in rows} == {"burn": True, "start": False}
        assert [row.get("warnings") for row in rows] == [[WHY], None]
    applet = ada("GET", f"/applet/data/{rule['appletID']}").json
    assert {row["handler"]: row["dead"] for row in applet["strategies"]} == {
        "burn": True,
        "start": False,
    }
    (row,) = ada("GET", f"/applet/x/{P}/datalist").json["data"]
    assert row["warnings"] == [WHY]


def test_answers_without_a_body_warn_in_a_header(ada: User, rule: dict[str, Any]) -> None:
    alive = {**rule, "eventType": "MINT", "handler": "mint"}
    made = ada("POST", f"/strategy/{P}", {"strategies": [alive, rule]})
    assert (made.status, made.body, warnings(made)) == (204, b"", [WHY])
    rows = ada("GET", f"{X}/datalist").json["data"]
    ids = {row["handler"]: row["strategyID"] for row in rows}
    for path in (f"/strategy/{ids['mint']}", f"/strategy/{P}/{ids['mint']}"):
        dead = ada("PUT", path, {**alive, "handler": "updatehandle"})
        assert (dead.status, dead.body) == (204, b"")
        assert "exports no handler updatehandle" in warnings(dead)[0]
        assert ada("GET", f"/strategy/data/{ids['mint']}").json["dead"] is True
        revived = ada("PUT", path, alive)
        assert (revived.status, warnings(revived)) == (204, [])
        assert ada("GET", f"/strategy/data/{ids['mint']}").json["dead"] is False


@pytest.mark.parametrize("handler", ['a"b\\c', "a\r\nSet-Cookie: b", "ß☃\u2028", "\x00\x7f"])
def test_a_name_cannot_leave_its_warning(ada: User, rule: dict[str, Any], handler: str) -> None:
    taken = ada("POST", f"/strategy/{P}", {"strategies": [{**rule, "handler": handler}]})
    assert taken.status == 204
    assert "Set-Cookie" not in taken.headers
    (text,) = warnings(taken)
    assert handler in text


def test_of_many_warnings_the_first_are_shown_and_the_others_counted(
    ada: User, rule: dict[str, Any]
) -> None:
    rules = [{**rule, "handler": f"h{n}"} for n in range(50)]
    taken = warnings(ada("POST", f"/strategy/{P}", {"strategies": rules}))
    assert (len(taken), taken[-1]) == (4, "and 47 more warnings")
    rows = ada("GET", f"/applet/x/{P}/datalist").json["data"]
    listed = rows[0]["warnings"]
    assert (len(listed), listed[-1]) == (21, "and 30 more warnings")


def test_warnings_leave_room_in_the_head_of_an_answer(ada: User, rule: dict[str, Any]) -> None:
    rules = [{**rule, "eventType": f"{n}" + "\u2028" * 250, "handler": "h" * 256} for n in range(9)]
    taken = ada("POST", f"/strategy/{P}", {"strategies": rules})
    assert taken.status == 204
    assert sum(len(value) for value in taken.headers.get_all("Warning") or []) < 4096


# ---------------------------------------------------------------- applets


@pytest.mark.parametrize("path", [f"/applet/x/{P}", f"/applet/{P}"])
def test_an_upload_whose_strategies_name_no_handler_is_taken(ada: User, path: str) -> None:
    ada.project(P)
    rules = [{"eventType": "A", "handler": "start"}, {"eventType": "B", "handler": "strat"}]
    made = ada.upload("POST", path, wasm(LOG_WAT), {"appletName": "log", "strategies": rules})
    assert made.status == 201
    assert [row["dead"] for row in made.json["strategies"]] == [False, True]
    (warning,) = made.json["warnings"]
    assert "strategy B is dead: the module exports no handler strat" in warning


@pytest.mark.parametrize("info", [{}, {"strategies": []}, {"strategies": None}])
def test_an_upload_without_strategies_gets_the_default_one_if_the_module_has_its_handler(
    ada: User, info: dict[str, Any]
) -> None:
    ada.project(P)
    made = ada.upload("POST", f"/applet/x/{P}", wasm(LOG_WAT), {"appletName": "log", **info})
    assert made.status == 201
    assert [(s["eventType"], s["handler"]) for s in made.json["strategies"]] == [
        ("DEFAULT", "start")
    ]
    assert "warnings" not in made.json
    bare = ada.upload("POST", f"/applet/{P}", wasm(NO_START_WAT), {"appletName": "bare", **info})
    assert (bare.status, bare.json["strategies"]) == (201, [])
    assert bare.json["instance"]["state"] == "STARTED"
    (warning,) = bare.json["warnings"]
    assert "the applet has no strategy" in warning
    assert "exports no handler start; it exports mint" in warning
    rule = {"appletID": bare.json["appletID"], "eventType": "MINT", "handler": "mint"}
    assert ada("POST", X, rule).json["dead"] is False, "strategies can come later"


def test_a_strategy_dies_with_a_module_that_lacks_its_handler_and_lives_with_one_that_has_it(
    ada: User, rule: dict[str, Any]
) -> None:
    applet_id = rule["appletID"]
    swapped = ada.upload("PUT", f"/applet/{applet_id}", wasm(NO_START_WAT), None)
    assert swapped.status == 200
    assert "strategy DEFAULT is dead" in swapped.json["warnings"][0]
    assert ada("GET", f"{X}/datalist").json["data"][0]["dead"] is True
    back = ada("PUT", f"/applet/data/{applet_id}/versions/1")
    assert "warnings" not in back.json
    assert ada("GET", f"{X}/datalist").json["data"][0]["dead"] is False
    again = ada("PUT", f"/applet/data/{applet_id}/versions/2")
    assert "strategy DEFAULT is dead" in again.json["warnings"][0]


def test_the_early_way_to_swap_a_module_warns_in_a_header(ada: User, rule: dict[str, Any]) -> None:
    applet = ada("GET", f"/applet/data/{rule['appletID']}").json
    path = f"{V0}/applet/{applet['appletID']}/{applet['instances'][0]['instanceID']}"
    body, headers = form(file=wasm(NO_START_WAT), info=b'{"appletName":"b"}')
    headers["Authorization"] = ada.token
    swapped = ada.server.send("PUT", path, body, headers)
    assert swapped.status == 204
    assert "strategy DEFAULT is dead" in warnings(swapped)[0]


# ---------------------------------------------------------------- names of applets


def test_applets_uploaded_under_one_name_get_names_of_their_own(ada: User) -> None:
    ada.project(P)
    made = [
        ada.upload("POST", path, wasm(LOG_WAT), {"appletName": "applet_01"})
        for path in (f"/applet/{P}", f"/applet/x/{P}", f"/applet/x/{P}")
    ]
    assert [reply.status for reply in made] == [201, 201, 201]
    names = ["applet_01", "applet_01_2", "applet_01_3"]
    assert [reply.json["name"] for reply in made] == names
    assert "warnings" not in made[0].json
    assert made[1].json["warnings"] == [
        "the project has an applet named applet_01; this one is named applet_01_2"
    ]
    rows = ada("GET", f"/applet/x/{P}/datalist").json["data"]
    assert sorted(row["name"] for row in rows) == names
    taken = ada.upload(
        "PUT", f"/applet/{made[1].json['appletID']}", None, {"appletName": "applet_01"}
    )
    assert (taken.status, taken.key) == (409, "AppletNameConflict"), "a PUT says what it means"


# ---------------------------------------------------------------- events


@pytest.fixture(scope="module")
def running(start_module_node: StartNode) -> RunningNode:
    return start_module_node("--metrics", "loopback")


@pytest.mark.parametrize("isolation", ["EVENT", "BATCH", "INSTANCE"])
def test_events_of_a_dead_strategy_become_dead_letters_that_run_once_the_handler_is_there(
    running: RunningNode, isolation: str
) -> None:
    project = f"dead_{isolation.lower()}"
    running.create_project(project)
    made = running.deploy(
        project, TALLY, "tally", strategies=strategies(DEFAULT="strat"), isolation=isolation
    )
    publisher = running.add_publisher(project, "d")
    for number in range(3):
        answer = running.send(project, message(publisher, b"%d" % number))
        assert answer.status == 201
        assert answer.json["results"] == [
            {
                "instanceID": made["instance"]["instanceID"],
                "code": -1,
                "errMsg": "func not imported",
            }
        ]
    letters = running.call("GET", f"/dead_letter/{project}").json["data"]
    assert {letter["reason"] for letter in letters} == {
        "the module exports no handler strat (func not imported)"
    }
    assert len(letters) == 3
    fixed = {"appletID": made["appletID"], "eventType": "DEFAULT", "handler": "start"}
    strategy_id = made["strategies"][0]["strategyID"]
    assert running.call("PUT", f"/strategy/{strategy_id}", fixed).status == 204
    ids = [letter["letterID"] for letter in letters]
    replayed = running.call("POST", f"/dead_letter/{project}/replay", {"letterIDs": ids})
    assert replayed.status == 201, replayed
    assert running.count(project, made["appletID"]) == 3
    assert running.call("GET", f"/dead_letter/{project}").json["data"] == []


def test_dead_strategies_and_their_events_are_counted(running: RunningNode) -> None:
    project = running.create_project("counted")["projectID"]
    rules = [{"eventType": "A", "handler": "start"}, {"eventType": "B", "handler": "b"}]
    running.deploy("counted", TALLY, strategies=rules)
    publisher = running.add_publisher("counted", "d")

    def shown() -> dict[str, float]:
        lines = running.call("GET", "/metrics", token="").body.decode().splitlines()
        pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {name: float(value) for name, _, value in pairs}

    label = f'project="{project}"'
    failures = f'fieldbrook_handler_failures_total{{{label},reason="not_exported"}}'
    assert running.send("counted", message(publisher, b"", "B")).status == 201
    until(lambda: shown().get(failures) == 1, "the run that was none is counted")

    def is_counted() -> bool:
        running.send("counted", message(publisher, b"", "A"))  # a project counts after a batch
        return shown()[f"fieldbrook_dead_strategies{{{label}}}"] >= 1

    until(is_counted, "the dead strategy is counted")
