"""The workbench calls a real chain, records its answers, and replays them without the chain."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.cli import main
from fieldbrook.workbench.chain_file import read_chains
from tests.chain.evm import Evm
from tests.unit.workbench.test_simulated_chain import MODULE

ECHO = "0x0000000000000000000000000000000000000004"  # a contract every chain has: gives its input


@pytest.fixture
def evm() -> Iterator[Evm]:
    chain = Evm(chain_id=5)
    yield chain
    chain.stop()


def test_what_a_real_chain_answers_is_recorded_and_met_without_it(
    evm: Evm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    beacon = evm.deploy()
    refuse = {"to": beacon.address, "data": beacon.data("refuse", "closed")}
    ping = {"to": beacon.address, "data": beacon.data("ping", 1, "x"), "value": "0"}
    events = [
        ("call", {"to": ECHO, "data": "0x57"}),
        ("call", refuse),
        ("tx", {**refuse, "value": "0"}),
        ("tx", ping),
    ]
    (tmp_path / "m.wat").write_text(MODULE)
    lines = [json.dumps({"event_type": kind, "payload": asked}) for kind, asked in events]
    (tmp_path / "e.jsonl").write_text("\n".join(lines))

    def test(*more: str) -> tuple[int, list[dict[str, Any]]]:
        words = ["test", *(str(tmp_path / name) for name in ("m.wat", "e.jsonl"))]
        words += ["--strategy=call=call", "--strategy=tx=tx", "--json"]
        code = main.run(["applet", *words, "--chain", str(tmp_path / "chain.json"), *more])
        return code, json.loads(capsys.readouterr().out)["runs"]

    height = evm.height
    code, left = test("--record-chain", evm.url, "--record")
    assert code == 0
    assert [item["code"] for item in left] == [0, -1, -1, 0]
    assert left[0]["writes"]["answer"] == "W"
    assert "execution reverted: closed" in left[1]["logs"][0][1]
    assert "execution reverted: closed" in left[2]["logs"][0][1]
    assert evm.height == height  # nothing was sent
    evm.stop()
    assert test()[0] == 0
    [chain] = read_chains(tmp_path / "chain.json").chains
    assert (chain.id, len(chain.calls), len(chain.transactions or ())) == (5, 2, 2)


def test_an_endpoint_that_is_none_is_named_without_its_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.wat").write_text(MODULE)
    chain = tmp_path / "chain.json"
    words = ["run", str(tmp_path / "m.wat"), "--handler", "call", "--chain", str(chain)]
    assert main.run(["applet", *words, "--record-chain", "http://127.0.0.1:9/hunter22"]) == 1
    told = capsys.readouterr().err
    assert "http://127.0.0.1:9: " in told
    assert "hunter22" not in told
    assert not chain.exists()
