"""Chain monitors over the routes of both generations."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.management import V0, Server, User

ADDRESS = "0x1AA325E5144f763a520867c56FC77cC1411430d0"
HASH = "e15a2ce8bcd5a2f0a0ad42a6a5b1a2c3e15a2ce8bcd5a2f0a0ad42a6a5b1a2c3"
HUGE = "9" * 40

BODIES: dict[str, dict[str, Any]] = {
    "contract_log": {"chainID": 4690, "contractAddress": ADDRESS, "blockStart": 20299310},
    "chain_tx": {"chainID": 4690, "txAddress": HASH},
    "chain_height": {"chainID": 4690, "height": 1000},
}
IDS = {"contract_log": "contractlogID", "chain_tx": "chaintxID", "chain_height": "chainHeightID"}
NAMES = {"contract_log": "ContractLog", "chain_tx": "ChainTx", "chain_height": "ChainHeight"}
KINDS = sorted(BODIES)
each_kind = pytest.mark.parametrize("kind", KINDS)


def later(kind: str, project: str = "NftMinter") -> str:
    return f"/monitor/x/{project}/{kind}"


def seed(kind: str, project: str = "NftMinter") -> str:
    return f"/monitor/{kind}/{project}"


@each_kind
@pytest.mark.parametrize("path_of", [later, seed])
def test_a_monitor_is_created_found_listed_and_removed(ada: User, kind: str, path_of: Any) -> None:
    project, path = ada.project(), path_of(kind)
    made = ada("POST", path, {**BODIES[kind], "eventType": "SEEN", "unknown": True})
    assert made.status == 201
    assert made.headers["X-Meta"] == f"srv-applet-mgr@0.0.9/Create{NAMES[kind]}"
    row = made.json
    assert {key: row[key] for key in BODIES[kind]} == BODIES[kind]
    assert (row["projectID"], row["projectName"]) == (project["projectID"], "NftMinter")
    assert (row["eventType"], row["paused"], row["finished"]) == ("SEEN", False, False)
    one = f"{path}/{row[IDS[kind]]}"
    assert ada("GET", one).json == row
    listed = path if path_of is seed else f"{path}/datalist"
    assert ada("GET", listed).json == {"data": [row], "total": 1}
    gone = ada("DELETE", one)
    assert (gone.status, gone.body) == (204, b"")
    assert ada("GET", one).key == ada("DELETE", one).key == f"{NAMES[kind]}NotFound"


def test_a_contract_log_begins_at_its_first_block_and_shows_its_topics(ada: User) -> None:
    ada.project()
    body = {**BODIES["contract_log"], "blockEnd": 20299311, "topic0": "0x" + HASH, "topic2": HASH}
    row = ada("POST", later("contract_log"), body).json
    assert (row["blockCurrent"], row["blockEnd"]) == (20299310, 20299311)
    assert [row[f"topic{n}"] for n in range(4)] == ["0x" + HASH, "", HASH, ""]


@each_kind
def test_a_monitor_that_names_no_event_type_has_its_generations_default(
    ada: User, kind: str
) -> None:
    ada.project()
    assert ada("POST", seed(kind), BODIES[kind]).json["eventType"] == "MONITOR_DEFAULT"
    assert ada("POST", later(kind), BODIES[kind]).json["eventType"] == "DEFAULT"


@each_kind
def test_the_same_monitor_twice_is_a_conflict(ada: User, kind: str) -> None:
    ada.project()
    assert ada("POST", later(kind), BODIES[kind]).status == 201
    again = {
        key: value.lower() if isinstance(value, str) else value
        for key, value in BODIES[kind].items()
    }
    taken = ada("POST", later(kind), again)
    assert (taken.status, taken.key) == (409, f"{NAMES[kind]}Conflict")
    assert ada("POST", later(kind), {**again, "eventType": "B"}).status == 201
    ada.project("other")
    assert ada("POST", later(kind, "other"), again).status == 201


@each_kind
def test_a_chain_the_settings_do_not_have_is_not_found(ada: User, kind: str) -> None:
    ada.project()
    unknown = ada("POST", later(kind), {**BODIES[kind], "chainID": 1})
    assert (unknown.status, unknown.key) == (404, "BlockchainNotFound")


def test_a_height_may_name_its_chain(ada: User) -> None:
    ada.project()
    path = later("chain_height")
    row = ada("POST", path, {"height": 5, "chainName": "iotex-testnet"}).json
    assert (row["chainID"], row["chainName"]) == (4690, "iotex-testnet")
    both = {"height": 6, "chainName": "iotex-testnet", "chainID": 4690}
    assert ada("POST", path, both).status == 201
    for strange in (
        {"chainName": "nowhere"},
        {"chainName": "nowhere", "chainID": 4690},
        {"chainName": "iotex-testnet", "chainID": 1},
        {},
    ):
        assert ada("POST", path, {"height": 7, **strange}).key == "BlockchainNotFound"


@pytest.mark.parametrize(
    ("kind", "change", "fields"),
    [
        ("contract_log", {"contractAddress": ""}, ["contractAddress"]),
        ("contract_log", {"contractAddress": "0x12"}, ["contractAddress"]),
        ("contract_log", {"contractAddress": 5}, ["contractAddress"]),
        ("contract_log", {"blockStart": 0}, ["blockStart"]),
        ("contract_log", {"blockStart": -1}, ["blockStart"]),
        ("contract_log", {"blockStart": 1 << 63}, ["blockStart"]),
        ("contract_log", {"blockEnd": 7}, ["blockEnd"]),
        ("contract_log", {"chainID": 0}, ["chainID"]),
        ("contract_log", {"chainID": "4690"}, ["chainID"]),
        ("contract_log", {"topic1": "0x12", "topic3": "g" * 64}, ["topic1", "topic3"]),
        ("contract_log", {"eventType": "x" * 257}, ["eventType"]),
        ("chain_tx", {"txAddress": ""}, ["txAddress"]),
        ("chain_tx", {"txAddress": HASH + "00"}, ["txAddress"]),
        ("chain_tx", {"chainID": 0}, ["chainID"]),
        ("chain_tx", {"paused": "yes"}, ["paused"]),
        ("chain_height", {"height": 0}, ["height"]),
        ("chain_height", {"height": 1.5}, ["height"]),
        ("chain_height", {"chainName": "x" * 257}, ["chainName"]),
    ],
)
def test_an_invalid_field_of_a_monitor_is_named(
    ada: User, kind: str, change: dict[str, Any], fields: list[str]
) -> None:
    ada.project()
    for path in (later(kind), seed(kind)):
        assert list(ada("POST", path, {**BODIES[kind], **change}).fields) == fields


@each_kind
def test_monitors_are_paused_and_started_all_or_none(ada: User, kind: str) -> None:
    ada.project()
    ids = [
        ada("POST", later(kind), {**BODIES[kind], "eventType": t}).json[IDS[kind]] for t in "ABC"
    ]

    def paused() -> set[str]:
        rows = ada("GET", f"{later(kind)}/datalist").json["data"]
        return {row["eventType"] for row in rows if row["paused"]}

    assert ada("PUT", f"{later(kind)}/PAUSE", {"ids": ids[:2]}).status == 204
    assert paused() == {"A", "B"}
    assert ada("PUT", f"{later(kind)}/start", {"ids": [ids[0], ids[0]]}).status == 204
    assert paused() == {"B"}
    strange = ada("PUT", f"{later(kind)}/PAUSE", {"ids": [*ids, "5"]})
    assert (strange.status, strange.key) == (400, f"Invalid{NAMES[kind]}IDs")
    assert strange.json["desc"] == "the project has no such monitors: 5; nothing was changed"
    assert paused() == {"B"}
    other = next(k for k in KINDS if k != kind)
    assert ada("PUT", f"{later(other)}/PAUSE", {"ids": ids[:1]}).key == f"Invalid{NAMES[other]}IDs"
    for word in ("EXPLODE", "STOP", "-"):
        unknown = ada("PUT", f"{later(kind)}/{word}", {"ids": ids})
        assert unknown.fields == {"cmd": "expected one of START, PAUSE"}
    many = ada("PUT", f"{later(kind)}/PAUSE", {"ids": [ids[0]] * 101})
    assert (many.status, many.key) == (400, f"Invalid{NAMES[kind]}IDs")
    assert many.json["desc"] == "101 ids are more than 100; nothing was changed"
    bodies: list[dict[str, list[str]]] = [{}, {"ids": []}]
    for body in bodies:
        assert list(ada("PUT", f"{later(kind)}/PAUSE", body).fields) == ["ids"]
    assert list(ada("PUT", f"{later(kind)}/PAUSE", {"ids": [5]}).fields) == ["ids[0]"]
    limit = {"ids": [ids[0]] * 100}
    assert ada("PUT", f"{later(kind)}/PAUSE", limit).status == 204


def test_a_contract_log_begins_again_at_another_block_with_an_id_of_its_own(
    ada: User, bob: User
) -> None:
    ada.project()
    path = later("contract_log")
    abi = [{"type": "event", "name": "Ping", "inputs": [{"name": "n", "type": "uint256"}]}]
    body = {**BODIES["contract_log"], "blockEnd": 20299400, "abi": abi, "event": "Ping"}
    old = ada("POST", path, {**body, "eventType": "SEEN", "paused": True}).json
    rewind = f"{path}/{old['contractlogID']}/rewind"
    assert list(ada("POST", rewind, {}).fields) == ["blockStart"]
    assert list(ada("POST", rewind, {"blockStart": -1}).fields) == ["blockStart"]
    behind = ada("POST", rewind, {"blockStart": 20299401})
    assert behind.fields == {"blockStart": "lies behind blockEnd, 20299400"}
    assert bob("POST", rewind, {"blockStart": 7}).key == "ProjectNotFound"
    made = ada("POST", rewind, {"blockStart": 7})
    assert made.status == 201
    assert made.headers["X-Meta"] == "srv-applet-mgr@0.0.9/RewindContractLog"
    new = made.json
    kept = ("eventType", "paused", "event", "topic0", "contractAddress", "blockEnd", "chainID")
    assert [new[key] for key in kept] == [old[key] for key in kept]
    assert (new["blockStart"], new["blockCurrent"]) == (7, 7)
    assert new["contractlogID"] != old["contractlogID"]
    assert ada("GET", f"{path}/datalist").json == {"data": [new], "total": 1}
    assert ada("POST", rewind, {"blockStart": 7}).key == "ContractLogNotFound"
    again = f"{path}/{new['contractlogID']}/rewind"
    other = ada("POST", path, {**body, "eventType": "SEEN", "blockStart": 9}).json
    assert ada("POST", again, {"blockStart": 9}).key == "ContractLogConflict"
    same = ada("POST", again, {"blockStart": 7}).json
    shown = {row["contractlogID"] for row in ada("GET", f"{path}/datalist").json["data"]}
    assert shown == {other["contractlogID"], same["contractlogID"]}
    height = ada("POST", later("chain_height"), BODIES["chain_height"]).json["chainHeightID"]
    assert ada("POST", f"{path}/{height}/rewind", {"blockStart": 7}).key == "ContractLogNotFound"


@each_kind
def test_monitors_are_listed_by_filters_and_in_pages(ada: User, kind: str) -> None:
    ada.project()
    ids = [
        ada("POST", later(kind), {**BODIES[kind], "eventType": t}).json[IDS[kind]] for t in "ABC"
    ]

    def listed(query: str) -> list[str]:
        rows = ada("GET", f"{later(kind)}/datalist?{query}").json["data"]
        return [row["eventType"] for row in rows]

    assert listed("") == ["C", "B", "A"]
    assert listed("size=1&offset=2") == ["A"]
    assert listed(f"size={HUGE}") == ["C", "B", "A"]
    assert listed(f"id={ids[1]}") == ["B"]
    assert listed("eventType=A&eventType=C&chainID=4690") == ["C", "A"]
    assert listed("chainID=1") == []
    assert list(ada("GET", f"{later(kind)}/datalist?size=x").fields) == ["size"]


@each_kind
def test_somebody_elses_monitors_do_not_exist(ada: User, bob: User, kind: str) -> None:
    ada.project()
    made = ada("POST", later(kind), BODIES[kind]).json[IDS[kind]]
    bob.project("other")
    for path in (later(kind), seed(kind)):
        assert bob("POST", path, BODIES[kind]).key == "ProjectNotFound"
        for method in ("GET", "DELETE"):
            assert bob(method, f"{path}/{made}").key == "ProjectNotFound"
    assert bob("GET", seed(kind)).key == "ProjectNotFound"
    assert bob("GET", f"{later(kind)}/datalist").key == "ProjectNotFound"
    assert bob("PUT", f"{later(kind)}/PAUSE", {"ids": [made]}).key == "ProjectNotFound"
    foreign = bob("PUT", f"{later(kind, 'other')}/PAUSE", {"ids": [made]})
    assert foreign.key == f"Invalid{NAMES[kind]}IDs"
    for path in (later(kind, "other"), seed(kind, "other")):
        for method in ("GET", "DELETE"):
            assert bob(method, f"{path}/{made}").key == f"{NAMES[kind]}NotFound"
    another = next(k for k in KINDS if k != kind)
    assert ada("GET", f"{later(another)}/{made}").key == f"{NAMES[another]}NotFound"
    assert list(ada("GET", f"{later(kind)}/{HUGE}").fields) == ["monitorID"]


@each_kind
def test_with_its_project_a_monitor_is_gone(ada: User, kind: str) -> None:
    ada.project()
    made = ada("POST", later(kind), BODIES[kind]).json[IDS[kind]]
    ada("DELETE", "/project/NftMinter")
    assert ada("GET", f"{later(kind)}/{made}").key == "ProjectNotFound"
    ada.project()
    assert ada("GET", f"{later(kind)}/{made}").key == f"{NAMES[kind]}NotFound"
    assert ada("GET", f"{later(kind)}/datalist").json["total"] == 0


def test_anybody_may_ask_which_chains_there_are_and_is_shown_no_endpoint(
    server: Server,
) -> None:
    for prefix in (V0, "/api/w3bapp"):
        clients = server.send("GET", f"{prefix}/configuration/eth_client")
        assert clients.status == 200
        assert json.loads(clients.json["clients"]) == {"4690": ""}
        chains = server.send("GET", f"{prefix}/configuration/chain_config")
        assert json.loads(chains.json["chains"]) == [
            {"chainID": 4690, "name": "iotex-testnet", "endpoint": ""}
        ]
