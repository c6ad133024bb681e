"""Simulated chains from a file: their answers to handlers without a node."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.cli import main
from fieldbrook.workbench import runs as workbench
from fieldbrook.workbench.chain_file import ChainFile, ChainSourceError, read_chains, write_chains

TOKEN = "0x5FbDB2315678afecb367f032d93F642f64180aa3"
OTHER = "0xb73eE6EB5b1984c78CCcC49eA7Ad773E71d74F51"
OPERATOR = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
HASH = "0x" + "ab" * 32
# Each handler sends the payload as the request, and stores the answer.
MODULE = """
(module
  (import "env" "ws_get_data" (func $data (param i32 i32 i32) (result i32)))
  (import "env" "ws_set_db" (func $set (param i32 i32 i32 i32) (result i32)))
  (import "env" "ws_send_tx" (func $tx (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "ws_send_tx_with_operator" (func $by (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "ws_call_contract" (func $call (param i32 i32 i32 i32 i32) (result i32)))
  (import "env" "ws_api_call" (func $api (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (data (i32.const 16) "answer")
  (global $top (mut i32) (i32.const 1024))
  (func (export "alloc") (param i32) (result i32)
    (global.get $top)
    (global.set $top (i32.add (global.get $top) (local.get 0))))
  (func $payload (param i32) (drop (call $data (local.get 0) (i32.const 0) (i32.const 4))))
  (func $kept (param i32) (result i32)
    (if (i32.eqz (local.get 0)) (then (drop (call $set
      (i32.const 16) (i32.const 6) (i32.load (i32.const 8)) (i32.load (i32.const 12))))))
    (local.get 0))
  (func (export "tx") (param i32) (result i32) (call $payload (local.get 0))
    (call $kept (call $tx (i32.const 5) (i32.load (i32.const 0)) (i32.load (i32.const 4))
      (i32.const 8) (i32.const 12))))
  (func (export "by") (param i32) (result i32) (call $payload (local.get 0))
    (call $kept (call $by (i32.const 5) (i32.load (i32.const 0)) (i32.load (i32.const 4))
      (i32.const 8) (i32.const 12))))
  (func (export "tx_and_trap") (param i32) (result i32) (call $payload (local.get 0))
    (drop (call $tx (i32.const 5) (i32.load (i32.const 0)) (i32.load (i32.const 4))
      (i32.const 8) (i32.const 12)))
    unreachable)
  (func (export "call") (param i32) (result i32) (call $payload (local.get 0))
    (call $kept (call $call (i32.const 5) (i32.load (i32.const 0)) (i32.load (i32.const 4))
      (i32.const 8) (i32.const 12))))
  (func (export "api") (param i32) (result i32) (call $payload (local.get 0))
    (call $kept (call $api (i32.load (i32.const 0)) (i32.load (i32.const 4))
      (i32.const 8) (i32.const 12))))
  (func (export "keep") (param i32) (result i32) (call $payload (local.get 0))
    (call $set (i32.const 16) (i32.const 6) (i32.load (i32.const 0)) (i32.load (i32.const 4)))))
"""
OLD = """
(module
  (import "env" "ws_get_data" (func $data (param i32 i32 i32) (result i32)))
  (import "env" "ws_send_tx" (func $tx (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "alloc") (param i32) (result i32) (i32.const 1024))
  (func (export "tx") (param i32) (result i32)
    (drop (call $data (local.get 0) (i32.const 0) (i32.const 4)))
    (call $tx (i32.load (i32.const 0)) (i32.load (i32.const 4)))))
"""
MINT = {"to": TOKEN, "value": "0", "data": "0x40c10f19"}
Replay = Callable[..., list[dict[str, Any]]]


@pytest.fixture(params=workbench.HOSTS)
def replay(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Replay:
    """Run events (type, payload) with the chains; the handler of an event has the name of its
    type."""

    def run(chains: Any, *events: tuple[str, Any], module: str = MODULE) -> list[dict[str, Any]]:
        path, chain, lines = (tmp_path / name for name in ("m.wat", "chain.json", "e.jsonl"))
        path.write_text(module)
        chain.write_text(json.dumps(chains))
        given = [json.dumps({"event_type": kind, "payload": payload}) for kind, payload in events]
        lines.write_text("\n".join(given))
        handlers = [name for name in ("tx", "by", "tx_and_trap", "call", "api") if name in module]
        strategies = [f"--strategy={name}={name}" for name in handlers if f'"{name}"' in module]
        if module is MODULE:
            strategies += ["--strategy=TX_RESULT=keep", "--strategy=ANSWER=keep"]
        options = ["--chain", str(chain), "--host", request.param, "--json"]
        main.run(["applet", "test", str(path), str(lines), *strategies, *options])
        left: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["runs"]
        return left

    return run


def one(**more: Any) -> dict[str, Any]:
    return {"chains": [{"id": 5, "name": "dev", **more}]}


def reason(left: dict[str, Any]) -> str:
    assert left["code"] == -1, left
    return str(left["logs"][-1][1])


def api(method: str, path: str, **fields: str) -> dict[str, Any]:
    return {
        "Method": method,
        "Url": f"w3bstream://w3bstream.com/system/{path}",
        "Header": {"Eventtype": ["ANSWER"]},
        "Body": base64.b64encode(json.dumps(fields).encode()).decode(),
    }


def body_of(response: str) -> tuple[int, Any]:
    value = json.loads(response)
    return value["StatusCode"], json.loads(base64.b64decode(value["Body"]))


# ---------------------------------------------------------------- transactions


def test_an_applet_that_mints_gets_a_hash_and_hears_what_became_of_it(replay: Replay) -> None:
    sent, told = replay(one(), ("tx", MINT))
    hash_ = sent["writes"]["answer"]
    assert (sent["code"], len(hash_)) == (0, 66)
    [effect] = sent["effects"]
    assert (effect["kind"], effect["hash"], effect["chain"]) == ("Transaction", hash_, "chain:5")
    assert json.loads(effect["body"])["data"] == "0x40c10f19"
    outcome = json.loads(told["writes"]["answer"])
    assert told["event_type"] == "TX_RESULT"
    assert (outcome["state"], outcome["hash"], outcome["to"]) == ("CONFIRMED", hash_, TOKEN)


def test_hashes_differ_and_are_the_same_in_the_next_run(replay: Replay) -> None:
    first = replay(one(), ("tx", MINT), ("tx", MINT))
    assert first[0]["writes"] != first[1]["writes"]
    assert replay(one(), ("tx", MINT), ("tx", MINT)) == first


def test_recorded_transactions_have_their_hashes_and_each_is_taken_once(replay: Replay) -> None:
    second = HASH.replace("ab", "cd")
    chains = one(transactions=[{"to": TOKEN, "hash": HASH}, {**MINT, "hash": second}])
    left = replay(chains, ("tx", MINT), ("tx", MINT), ("tx", MINT))
    assert [item["writes"]["answer"] for item in left[:2]] == [HASH, second]
    lacks = f'chain.json: `transactions` of chain 5 (dev) lacks {{"to": "{TOKEN}", "value": "0"'
    assert lacks in reason(left[2])
    assert "beside the 2 that were sent" in reason(left[2])


def test_a_transaction_that_the_file_lacks_is_named(replay: Replay) -> None:
    [left] = replay(one(transactions=[]), ("tx", MINT))
    assert '"data": "0x40c10f19"' in reason(left)


def test_a_transaction_may_be_refused_with_the_reason_of_the_file(replay: Replay) -> None:
    chains = one(transactions=[{"to": TOKEN, "error": "execution reverted: not the owner"}])
    left = replay(chains, ("tx", MINT), ("tx", MINT))
    assert [reason(item) for item in left] == [
        "ws_send_tx: chain 5 (dev): execution reverted: not the owner"
    ] * 2


def test_a_run_that_traps_has_sent_nothing(replay: Replay) -> None:
    chains = one(transactions=[{"to": TOKEN, "hash": HASH}])
    trapped, sent, told = replay(chains, ("tx_and_trap", MINT), ("tx", MINT))
    assert trapped["effects"] == []
    assert sent["writes"]["answer"] == HASH
    assert json.loads(told["writes"]["answer"])["nonce"] == 0


def test_a_request_that_is_none_is_refused_as_by_a_node(replay: Replay) -> None:
    [left] = replay(one(), ("tx", {**MINT, "to": "0x12"}))
    assert reason(left) == (
        "ws_send_tx: to: '0x12' is not an address (0x and 40 hexadecimal digits)"
    )


def test_a_receipt_that_says_so_makes_the_outcome_failed(replay: Replay) -> None:
    receipt = {"status": "0x0", "blockNumber": "0x10", "gasUsed": "0x5208"}
    chains = one(transactions=[{"to": TOKEN, "hash": HASH, "receipt": receipt}])
    outcome = json.loads(replay(chains, ("tx", MINT))[1]["writes"]["answer"])
    assert (outcome["state"], outcome["blockNumber"], outcome["gasUsed"]) == ("FAILED", 16, 21_000)


# ---------------------------------------------------------------- operators and balances


def test_operators_are_those_of_the_file(replay: Replay) -> None:
    chains = one(operators={"default": OPERATOR.lower(), "spare": OTHER})
    left = replay(
        chains,
        ("by", MINT),
        ("by", {**MINT, "operatorName": "spare"}),
        ("by", {**MINT, "operatorName": "nobody"}),
    )
    senders = [json.loads(item["effects"][0]["body"])["from"] for item in left[:2]]
    assert senders == [OPERATOR, OTHER]
    assert "chain 5 (dev) has no operator 'nobody': it has default, spare" in reason(left[2])


def test_native_balances_pay_for_what_is_sent(replay: Replay) -> None:
    chains = one(operators={"default": OPERATOR}, balances={OPERATOR: "100"})
    left = replay(chains, *[("tx", {**MINT, "value": value}) for value in ("60", "60", "40")])
    assert [item["code"] for item in left[:3]] == [0, -1, 0]
    assert reason(left[1]).endswith(
        f"insufficient funds: operator default ({OPERATOR}) has 40 wei; "
        "this transaction may take 60"
    )


def test_a_balance_that_the_file_lacks_is_named(replay: Replay) -> None:
    [left] = replay(one(operators={"default": OPERATOR}, balances={}), ("tx", MINT))
    assert f"`balances` of chain 5 (dev) lacks {OPERATOR} (operator default)" in reason(left)


# ---------------------------------------------------------------- calls


def test_contracts_answer_what_the_file_says_in_order(replay: Replay) -> None:
    asked = {"to": TOKEN, "data": "0x18160ddd"}
    calls = [{**asked, "result": "0x01"}, {**asked, "result": "0x02"}, {"to": OTHER, "result": ""}]
    left = replay(
        one(calls=calls),
        *[("call", asked)] * 3,
        ("call", {"to": OTHER.lower(), "data": "0x"}),
        ("call", {"to": TOKEN, "data": "0xffffffff"}),
    )
    assert [item["writes"]["answer"] for item in left[:4]] == ["\x01", "\x02", "\x02", ""]
    lacks = f'chain.json: `calls` of chain 5 (dev) lacks {{"to": "{TOKEN}", "data": "0xffffffff"}}'
    assert reason(left[4]) == f"ws_call_contract: {lacks}"


def test_a_call_may_be_refused_with_the_reason_of_the_file(replay: Replay) -> None:
    chains = one(calls=[{"to": TOKEN, "error": "execution reverted: closed"}])
    [left] = replay(chains, ("call", {"to": TOKEN, "data": "0x"}))
    assert reason(left) == "ws_call_contract: chain 5 (dev): execution reverted: closed"


# ---------------------------------------------------------------- which chain


def test_a_chain_that_the_file_lacks_is_named(replay: Replay) -> None:
    [left] = replay({"chains": [{"id": 7}]}, ("tx", MINT))
    assert reason(left) == "ws_send_tx: chain.json: chain 5 is not configured"


def test_a_call_without_a_chain_is_told_which_chains_there_are_and_what_chooses(
    replay: Replay,
) -> None:
    two = [{"id": 5, "name": "dev"}, {"id": 7, "name": "test"}]
    [left] = replay({"chains": two}, ("tx", MINT), module=OLD)
    assert "the call names no chain, and there are several: 5 (dev), 7 (test)" in reason(left)
    assert "default_chain" in reason(left)
    assert "ws_send_tx" in reason(left)
    [left] = replay({"chains": two, "default_chain": 7}, ("tx", MINT), module=OLD)
    assert left["effects"][0]["chain"] == "chain:7"


# ---------------------------------------------------------------- requests of ws_api_call


def test_a_transaction_by_request_is_answered_as_by_a_node(replay: Replay) -> None:
    fields = {"chainName": "dev", **MINT}
    sent, told = replay(one(), ("api", api("POST", "send_tx", **fields)))
    status, body = body_of(sent["writes"]["answer"])
    assert (status, body["transactionID"]) == (200, "5-1")
    assert told["event_type"] == "ANSWER"
    assert body_of(told["writes"]["answer"]) == (
        200,
        {"transactionID": "5-1", "state": "CONFIRMED"},
    )
    [left] = replay(one(), ("api", api("POST", "send_tx", chainName="moon", **MINT)))
    assert body_of(left["writes"]["answer"])[0] == 400


def test_a_receipt_comes_as_an_event(replay: Replay) -> None:
    receipt = {"status": "0x1", "logs": [{"data": "0x2a"}]}
    chains = one(transactions=[{"to": TOKEN, "hash": HASH, "receipt": receipt}])
    read = ("api", api("GET", "read_tx", chainName="dev", hash=HASH[2:]))
    told = replay(chains, ("tx", MINT), read)[-1]
    status, body = body_of(told["writes"]["answer"])
    assert (status, body["receipt"]) == (200, receipt)
    assert body["transaction"]["hash"] == HASH
    unknown = ("api", api("GET", "read_tx", chainName="dev", hash=HASH.replace("ab", "ee")))
    status, body = body_of(replay(chains, unknown)[-1]["writes"]["answer"])
    assert status == 400
    assert "chain 5 (dev) has no transaction" in body["error"]


def test_a_handler_that_sends_whenever_it_hears_of_a_transaction_is_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in (
        ("m.wat", MODULE),
        ("chain.json", json.dumps(one())),
        ("e.jsonl", json.dumps({"event_type": "api", "payload": api("GET", "read_tx", hash="0x")})),
    ):
        (tmp_path / name).write_text(text)
    # The answer is not a request, so the handler of ANSWER makes the next request itself.
    asks = api("GET", "read_tx", chainName="dev", hash=HASH)
    endless = MODULE.replace(
        '(func (export "keep")',
        '(func (export "again") (param i32) (result i32)'
        " (call $api (i32.const 65536) (i32.const SIZE) (i32.const 8) (i32.const 12)))"
        '(func (export "keep")',
    )
    text = json.dumps(asks)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    endless = endless.replace("SIZE", str(len(text))).replace(
        '(data (i32.const 16) "answer")',
        f'(data (i32.const 16) "answer") (data (i32.const 65536) "{escaped}")',
    )
    (tmp_path / "m.wat").write_text(endless)
    words = ["test", tmp_path / "m.wat", tmp_path / "e.jsonl", "--chain", tmp_path / "chain.json"]
    words += ["--strategy=api=again", "--strategy=ANSWER=again"]
    assert main.run(["applet", *map(str, words)]) == 1
    assert "again still sends transactions for ANSWER" in (capsys.readouterr().err)


# ---------------------------------------------------------------- the file


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("{", "Expecting"),
        ("[]", "Expected `object`"),
        ("[" * 100_000, "nested too deeply"),
        ('{"chains": [{"id": "5"}]}', "$.chains[0].id"),
        ('{"chains": [{"id": 0}]}', "$.chains[0].id"),
        ('{"chains": [{"id": 5}, {"id": 5}]}', "$.chains[1].id"),
        ('{"chains": [], "default_chain": 5}', "$.default_chain"),
        ('{"chains": [{"id": 5, "call": []}]}', "unknown field `call`"),
        ('{"chains": [{"id": 5, "operators": {"a": "0x12"}}]}', "$.chains[0].operators.a"),
        ('{"chains": [{"id": 5, "balances": {"a": "1"}}]}', "$.chains[0].balances"),
        (f'{{"chains": [{{"id": 5, "balances": {{"{TOKEN}": "-1"}}}}]}}', "not a decimal"),
        ('{"chains": [{"id": 5, "calls": [{"to": "0x"}]}]}', "$.chains[0].calls[0].to"),
        (f'{{"chains": [{{"id": 5, "calls": [{{"to": "{TOKEN}"}}]}}]}}', "either result or error"),
        (
            f'{{"chains": [{{"id": 5, "transactions": [{{"to": "{TOKEN}", "hash": "0x1"}}]}}]}}',
            "$.chains[0].transactions[0].hash",
        ),
    ],
)
def test_a_file_of_another_form_is_told_with_the_place(
    text: str, place: str, tmp_path: Path
) -> None:
    path = tmp_path / "chain.json"
    path.write_text(text)
    with pytest.raises(ChainSourceError) as caught:
        read_chains(path)
    assert place in str(caught.value)
    assert "chain.json" in str(caught.value)


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    path, again = tmp_path / "chain.json", tmp_path / "again.json"
    calls = [{"to": TOKEN.lower(), "data": "0xAB", "result": "0x"}]
    path.write_text(json.dumps(one(calls=calls, transactions=[{**MINT, "receipt": None}])))
    file = read_chains(path)
    write_chains(again, file)
    assert read_chains(again) == file
    assert json.loads(again.read_text())["chains"][0]["calls"][0]["to"] == TOKEN


def test_without_chains_a_transaction_is_refused_with_the_option_that_gives_some(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.wat"
    path.write_text(MODULE)
    words = ["run", str(path), "--handler", "tx", "--payload", json.dumps(MINT), "--json"]
    assert main.run(["applet", *words]) == 1
    left = json.loads(capsys.readouterr().out)
    assert "chain 5 is not configured (--chain FILE simulates chains)" in left["logs"][0][1]
    assert main.run(["applet", *words, "--record-chain", "http://127.0.0.1:1"]) == 2
    assert "--record-chain needs --chain" in capsys.readouterr().err


def test_a_run_shows_the_events_by_which_chains_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, chain = tmp_path / "m.wat", tmp_path / "chain.json"
    path.write_text(MODULE)
    write_chains(chain, ChainFile([]))
    chain.write_text(json.dumps(one()))
    words = ["run", str(path), "--handler", "tx", "--payload", json.dumps(MINT)]
    assert main.run(["applet", *words, "--chain", str(chain)]) == 0
    assert 'answer   TX_RESULT: {"transactionID":"5-1"' in capsys.readouterr().out
    assert main.run(["applet", *words, "--chain", str(chain), "--json"]) == 0
    [answer] = json.loads(capsys.readouterr().out)["answers"]
    assert answer["event_type"] == "TX_RESULT"
