"""Contract ABIs that a project stores, and monitors that refer to them by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fieldbrook.storage.backup.archive import pack, unpack
from fieldbrook.storage.backup.transfer import KIND, Exported
from fieldbrook.storage.backup.verify import verify
from fieldbrook.storage.lmdb.codec import decode_record, encode_record
from tests.chain.evm import CHAIN_ID, contract, topic
from tests.support.management import User
from tests.support.nodes import RunningNode, StartNode
from tests.support.shell import Shell

ABI = contract("Beacon")["abi"]
P = "NftMinter"
ABIS = f"/contract_abi/{P}"
LOGS = f"/monitor/x/{P}/contract_log"
WATCHED = {"chainID": 4690, "contractAddress": "0x" + "1a" * 20, "blockStart": 7}


def test_an_abi_is_kept_once_and_named_by_several_monitors(ada: User) -> None:
    ada.project()
    made = ada("POST", ABIS, {"name": "beacon", "abi": ABI})
    assert made.status == 201
    assert "Ping(uint256,address,string)" in made.json["events"]
    assert ada("GET", ABIS).json == {"data": [made.json], "total": 1}
    assert ada("GET", f"{ABIS}/beacon").json == {**made.json, "abi": ABI}
    for event in ("Ping", "Transfer(address,address,uint256)"):
        row = ada("POST", LOGS, {**WATCHED, "event": event, "abiName": "beacon"})
        assert row.status == 201, row
        assert row.json["abiName"] == "beacon"
        assert row.json["topic0"] == topic(row.json["event"])
    own = ada("POST", LOGS, {**WATCHED, "event": "Report", "abi": ABI})
    assert (own.status, "abiName" in own.json) == (201, False)


def test_a_monitor_keeps_its_declaration_when_its_abi_is_removed(ada: User) -> None:
    ada.project()
    ada("POST", ABIS, {"name": "beacon", "abi": ABI})
    row = ada("POST", LOGS, {**WATCHED, "event": "Ping", "abiName": "beacon"}).json
    assert ada("DELETE", f"{ABIS}/beacon").status == 204
    assert ada("GET", f"{LOGS}/{row['contractlogID']}").json == row
    assert ada("GET", f"{ABIS}/beacon").key == "ContractAbiNotFound"
    assert ada("DELETE", f"{ABIS}/beacon").key == "ContractAbiNotFound"
    again = {**WATCHED, "event": "Transfer", "abiName": "beacon"}
    assert ada("POST", LOGS, again).key == "ContractAbiNotFound"


@pytest.mark.parametrize(
    ("change", "field", "reason"),
    [
        ({"name": ""}, "name", ""),
        ({"name": "a/b"}, "name", "letters"),
        ({"name": "x" * 65}, "name", "letters"),
        ({"abi": []}, "abi", "missing"),
        ({"abi": {"event": "Ping"}}, "abi", ""),
        ({"abi": ["Ping"]}, "abi[0]", ""),
        ({"abi": [{"type": "method"}]}, "abi", "entry 0 has the unknown type 'method'"),
        ({"abi": [{"type": ["event"]}]}, "abi", "entry 0 has the unknown type"),
        ({"abi": [e for e in ABI if e["type"] != "event"]}, "abi", "no event"),
        ({"abi": [{"type": "event", "name": "A"}]}, "abi", "malformed"),
        (
            {"abi": [{"type": "event", "name": "A", "inputs": [{"type": "uint7"}]}]},
            "abi",
            "'uint7' is not a valid type",
        ),
        ({"abi": ABI * 300}, "abi", "more than 2000 entries"),
    ],
)
def test_an_invalid_abi_is_refused_with_the_reason(
    ada: User, change: dict[str, Any], field: str, reason: str
) -> None:
    ada.project()
    answer = ada("POST", ABIS, {"name": "beacon", "abi": ABI, **change})
    assert answer.status == 400
    assert [error["field"] for error in answer.json["fields"]] == [field]
    assert reason in answer.json["fields"][0]["msg"]
    assert ada("GET", ABIS).json["total"] == 0


def test_a_name_is_taken_once_and_a_project_has_a_hundred_at_most(ada: User) -> None:
    ada.project()
    small = [entry for entry in ABI if entry["type"] == "event"][:1]
    for n in range(100):
        assert ada("POST", ABIS, {"name": f"n{n}", "abi": small}).status == 201
    assert ada("POST", ABIS, {"name": "n0", "abi": small}).key == "ContractAbiConflict"
    assert ada("POST", ABIS, {"name": "more", "abi": small}).key == "ContractAbiLimit"
    shown = ada("GET", f"{ABIS}?size=2&offset=3").json
    assert ([row["name"] for row in shown["data"]], shown["total"]) == (["n96", "n95"], 100)


def test_nobody_sees_or_removes_the_abis_of_another(ada: User, bob: User) -> None:
    ada.project()
    ada("POST", ABIS, {"name": "beacon", "abi": ABI})
    for method, path in (("GET", ABIS), ("GET", f"{ABIS}/beacon"), ("DELETE", f"{ABIS}/beacon")):
        assert bob(method, path).key == "ProjectNotFound"
    assert bob("POST", ABIS, {"name": "other", "abi": ABI}).key == "ProjectNotFound"


def test_a_monitor_that_names_an_abi_says_which_event_and_has_none_of_its_own(ada: User) -> None:
    ada.project()
    ada("POST", ABIS, {"name": "beacon", "abi": ABI})
    for more, field in (
        ({"abiName": "beacon"}, "event"),
        ({"abiName": "beacon", "event": "Nothing"}, "event"),
        ({"abiName": "beacon", "event": "Ping", "abi": ABI}, "abiName"),
    ):
        answer = ada("POST", LOGS, {**WATCHED, **more})
        assert answer.status == 400
        assert [error["field"] for error in answer.json["fields"]] == [field]


@pytest.fixture
def running(start_node: StartNode, monkeypatch: pytest.MonkeyPatch) -> RunningNode:
    chain = {"id": CHAIN_ID, "name": "dev", "endpoints": ["http://127.0.0.1:9"]}
    monkeypatch.setenv("FIELDBROOK_CHAINS", json.dumps([chain]))
    return start_node()


@pytest.mark.thorough
def test_the_commands_of_abis_and_that_a_projects_file_has_them(
    running: RunningNode, tmp_path: Path
) -> None:
    shell = Shell(tmp_path / "home", running)
    run = shell.text
    run("project", "create", "p")
    (tmp_path / "abi.json").write_text(json.dumps(contract("Beacon")))
    assert "Ping(uint256,address,string)" in run(
        "abi", "add", "p", "beacon", str(tmp_path / "abi.json")
    )
    assert "beacon" in run("abi", "list", "p")
    assert shell.json("abi", "show", "p", "beacon") == ABI
    where = ("0x" + "1a" * 20, "--chain", str(CHAIN_ID), "--from", "1")
    made = run("monitor", "add-log", "p", *where, "--event", "Ping", "--abi-name", "beacon")
    assert "Ping(uint256,address,string)" in made
    file = tmp_path / "p.fieldbrook"
    run("project", "export", "p", str(file))
    run("abi", "delete", "p", "beacon")
    assert shell.json("abi", "list", "p") == []
    run("project", "import", str(file), "--name", "copy")
    assert shell.json("abi", "show", "copy", "beacon") == ABI
    (row,) = shell.json("monitor", "list", "copy")
    assert row["abiName"] == "beacon"
    _spoil(file, tmp_path)
    said = shell.fails("project", "import", str(tmp_path / "spoilt"), "--name", "third")
    assert "its ABI 'beacon': it is not a JSON ABI" in said
    assert verify(running.data).defects == []
    run("project", "delete", "copy", "--yes")
    assert verify(running.data).defects == []


def _spoil(file: Path, folder: Path) -> None:
    """Make a project's file with an invalid ABI."""
    inside = folder / "inside"
    inside.mkdir()
    unpack(file, inside, KIND, 1 << 20)
    records = inside / "project.bin"
    given = decode_record(records.read_bytes(), Exported)
    (kept,) = given.contract_abis
    spoilt = msgspec.structs.replace(kept, content=b"{")
    records.write_bytes(encode_record(msgspec.structs.replace(given, contract_abis=[spoilt])))
    pack(inside, folder / "spoilt", KIND, {})
