"""Transactions of handlers reach real chains exactly as often as their events were committed."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fieldbrook.security.operator_keys import ECDSA, address_of
from fieldbrook.storage.project.outbox import park, release
from tests.chain.crashes import CHAIN, kill
from tests.chain.evm import Contract, Evm
from tests.chain.evms import EVMS, running
from tests.chain.senders import ETHER, SOMEBODY, Sending, is_slow, request
from tests.support.metrics import one
from tests.support.nodes import message, until
from tests.support.shell import Shell


@pytest.fixture(scope="module", params=EVMS)
def evm(request: pytest.FixtureRequest) -> Iterator[Evm]:
    yield from running(request.param)


@pytest.fixture(scope="module")
def sending(tmp_path_factory: pytest.TempPathFactory, evm: Evm) -> Iterator[Sending]:
    made = Sending(tmp_path_factory.mktemp("sending"), evm)
    yield made
    made.node.stop()


@pytest.fixture(scope="module")
def beacon(evm: Evm) -> Contract:
    return evm.deploy("Beacon")


@pytest.mark.thorough("anvil")
def test_a_transaction_of_a_committed_event_is_in_the_chain_and_its_outcome_an_event(
    sending: Sending,
) -> None:
    before, told = sending.sent(), sending.outcomes()
    sending.sends("send", request(value=7))
    sending.settled(before + 1)
    hash_ = sending.stored("hash").decode()
    found = sending.evm.rpc("eth_getTransactionByHash", hash_)
    assert (found["to"].lower(), int(found["value"], 16)) == (SOMEBODY.lower(), 7)
    until(lambda: sending.outcomes() == told + 1, "the outcome arrives")
    outcome = json.loads(sending.stored("outcome"))
    assert (outcome["state"], outcome["hash"]) == ("CONFIRMED", hash_)


def test_transactions_and_their_chain_are_in_the_metrics(sending: Sending) -> None:
    node, chain = sending.node, str(sending.evm.chain_id)

    def confirmed() -> float:
        return one(node, "transactions_finished_total", chain=chain, outcome="confirmed")

    before, gas = confirmed(), one(node, "transactions_gas_total", chain=chain)
    delivered = one(node, "outbox_delivered_total", kind="transaction")
    sent = sending.sent()
    for _ in range(3):
        sending.sends("send", request())
    sending.settled(sent + 3)
    until(lambda: confirmed() == before + 3, "they are counted when they are confirmed")
    assert one(node, "transactions_gas_total", chain=chain) == gas + 3 * 21_000
    assert one(node, "outbox_delivered_total", kind="transaction") == delivered + 3
    assert one(node, "transactions_fees_wei_total", chain=chain) > 0
    assert one(node, "transactions", chain=chain, state="pending") == 0
    assert one(node, "up", part=f"chain:{chain}") == 1
    assert one(node, "chain_endpoint_usable", chain=chain, endpoint="0") == 1
    head = int(sending.evm.rpc("eth_blockNumber"), 16)
    # Nothing is watched, so the chain is polled rarely.
    assert 0 <= one(node, "chain_head_block", chain=chain) <= head
    assert sending.evm.url.encode() not in node.call("GET", "/metrics").body


def test_an_account_that_can_pay_only_a_few_more_is_told_before_one_is_refused(
    sending: Sending,
) -> None:
    node, chain = sending.node, str(sending.evm.chain_id)

    def low() -> float:
        return one(node, "chain_accounts_low", chain=chain)

    before = sending.sent()
    sending.sends("send", request(value=ETHER))
    sending.settled(before + 1)
    until(sending.at_rest, "its outcome is told")
    sending.fund(3 * ETHER)
    kill(sending, CHAIN)  # it looks at the funds when it starts, and then once a minute
    until(lambda: low() == 1, "the metric")

    def told_of() -> list[str]:
        rows = node.call("GET", "/health").json["data"]
        return [row["detail"] for row in rows if row["state"] == "low_funds"]

    (told,) = until(told_of, "the condition")
    assert f"operator default ({sending.address}) has {3 * ETHER} wei, enough for 2 more" in told
    sending.fund(100 * ETHER)
    sending.sends("send", request())
    kill(sending, CHAIN)
    until(lambda: low() == 0, "the metric")
    sending.settled(before + 2)


@pytest.mark.parametrize(
    ("handler", "payload", "reason"),
    [
        ("nowhere", request(), "chain 5 is not configured"),
        ("send", b"no json", "the request is not JSON"),
        ("send", request(to="0x12"), "to: '0x12' is not an address"),
        ("send", request(to=""), "to: an address is required"),
        ("send", request(to=SOMEBODY[:-1] + "a"), "do not match the checksum"),
        ("send", request(value="one"), "value: 'one' is not a decimal number"),
        ("send", request(value=-1), "value: '-1' is not a decimal number"),
        ("send", request(value=1 << 256), "is too large"),
        ("send", request(data="0xabc"), "data: '0xabc' is not hexadecimal"),
        ("send", request(value=10**24), "nsufficient funds"),
        ("send", request(gasLimit=20_999), "gasLimit: less than 21000"),
        ("send", request(gasLimit=1 << 39), "of a whole block"),
        ("send", request(data="11" * 99, gasLimit=21_100), "that the call needs"),
        ("named", request(operatorName="nobody"), "has no operator 'nobody'"),
        ("read", b"{}", "to: an address is required"),
    ],
)
def test_bad_input_is_a_code_for_the_guest_and_a_record_and_the_sender_goes_on(
    sending: Sending, handler: str, payload: bytes, reason: str
) -> None:
    before = sending.sent()
    sending.refuses(handler, payload, reason)
    sending.sends("send", request())
    sending.settled(before + 1)


def test_a_key_of_another_kind_signs_nothing(sending: Sending) -> None:
    key = Ed25519PrivateKey.generate()
    both = key.private_bytes_raw() + key.public_key().public_bytes_raw()
    body = {"name": "edward", "privateKey": both.hex(), "type": 2}
    assert sending.node.call("POST", "/operator", body).status == 201
    reason = "operator edward has an ED25519 key"
    sending.refuses("named", request(operatorName="edward"), reason)


def test_an_operator_of_the_account_signs_where_the_guest_names_it(sending: Sending) -> None:
    secret = "11" * 32
    body = {"name": "other", "privateKey": secret, "type": 1}
    made = sending.node.call("POST", "/operator", body).json
    sending.evm.fund(made["address"], ETHER)
    sending.sends("named", request(operatorName="other"))

    def sent() -> bool:
        count = sending.evm.rpc("eth_getTransactionCount", made["address"], "latest")
        return int(count, 16) == 1

    until(sent, "the other operator's transaction is in the chain")


def test_a_call_that_reverts_sends_nothing_and_its_reason_is_in_the_log(
    sending: Sending, beacon: Contract
) -> None:
    before = sending.sent()
    refused = request(to=beacon.address, value=0, data=beacon.data("refuse", "not on Sundays"))
    for handler in ("send", "read"):
        sending.refuses(handler, refused, "execution reverted: not on Sundays")
    assert sending.sent() == before


def test_what_a_contract_returns_is_handed_to_the_guest_as_bytes(
    sending: Sending,
) -> None:
    place = "0x" + "42" * 20
    sending.evm.rpc(f"{sending.evm.own}_setCode", place, "0x602a60005260206000f3")  # returns 42
    sending.sends("read", json.dumps({"to": place}).encode())
    assert sending.stored("read") == (42).to_bytes(32, "big")


def test_a_handler_that_traps_after_sending_leaves_no_transaction_and_no_gap(
    sending: Sending,
) -> None:
    before = sending.sent()
    assert sending.send("trap", request()) == -1
    assert sending.send("twice", request()) == 0
    assert sending.send("trap", request()) == -1
    sending.sends("send", request())
    sending.settled(before + 3)


def test_many_events_at_once_are_as_many_transactions_in_order(sending: Sending) -> None:
    before = sending.sent()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: sending.sends("send", request(value=n)), range(40)))
    sending.settled(before + 40)


def test_two_projects_share_a_key_without_a_gap(sending: Sending) -> None:
    sending.create("second")
    before = sending.sent()
    with ThreadPoolExecutor(8) as pool:
        projects = ["sender", "second"] * 15
        list(pool.map(lambda project: sending.sends("send", request(), project), projects))
    sending.settled(before + 30)


def test_events_that_share_an_instance_have_a_transaction_each(sending: Sending) -> None:
    sending.create("shared", isolation="BATCH")
    before = sending.sent()
    body = message(sending.publishers["shared"], request(value=2), "SEND")
    answer = sending.node.send("shared", {"events": [body] * 20})
    assert answer.status == 201, answer
    codes = [row["wasmResults"][0]["code"] for row in answer.json]
    refused = [line for line in sending.logged("shared").splitlines() if not is_slow(line)]
    assert refused == []
    assert set(codes) <= {0, -1}
    assert codes.count(0) > 1
    sending.settled(before + codes.count(0))


def test_an_event_that_is_sent_again_has_one_transaction(sending: Sending) -> None:
    before = sending.sent()
    event_id = sending.sends("send", request(value=5))
    assert sending.event("send", request(value=5), event_id).status == 201
    sending.settled(before + 1)


def test_two_events_of_one_label_and_payload_have_a_transaction_each(sending: Sending) -> None:
    counted = sending.sent()
    labelled = message(sending.publishers["sender"], request(value=5), "SEND")
    labelled["header"] |= {"event_id": "ESP32", "pub_time": 1683868814000}

    def both() -> bool:
        """Return whether the chain was fast enough for both; each code 0 is a transaction."""
        nonlocal counted
        answer = sending.node.send("sender", {"events": [labelled] * 2})
        codes = [item["wasmResults"][0]["code"] for item in answer.json]
        counted += codes.count(0)
        sending.settled(counted)
        return codes == [0, 0]

    until(both, "both are sent")


def api(method: str, path: str, body: object, event_type: str = "ANSWER") -> bytes:
    encoded = base64.b64encode(json.dumps(body).encode()).decode()
    url = f"w3bstream://w3bstream.com{path}"
    header = {"Eventtype": [event_type]}
    return json.dumps({"Method": method, "Url": url, "Header": header, "Body": encoded}).encode()


def answered(sending: Sending, key: str) -> Any:
    """Return the response of the last API call when it has arrived and has this key."""

    def found() -> Any:
        stored = sending.stored("answer")
        body = json.loads(base64.b64decode(json.loads(stored)["Body"])) if stored else {}
        return body if key in body else None

    return until(found, f"an answer with {key}")


def test_an_api_call_sends_a_transaction_and_its_end_is_an_event(sending: Sending) -> None:
    before = sending.sent()
    body = {"chainName": "local", "to": SOMEBODY, "value": "3", "data": ""}
    assert sending.send("api", api("POST", "/system/send_tx", body)) == 0
    answer = json.loads(sending.stored("api"))
    accepted = json.loads(base64.b64decode(answer["Body"]))
    assert (answer["StatusCode"], set(accepted)) == (200, {"transactionID", "hash"})
    sending.settled(before + 1)
    assert answered(sending, "state") == {
        "transactionID": accepted["transactionID"],
        "state": "CONFIRMED",
    }
    body = {"chainName": "local", "hash": accepted["hash"]}
    assert sending.send("api", api("GET", "/system/read_tx", body)) == 0
    result = answered(sending, "receipt")
    assert int(result["transaction"]["value"], 16) == 3
    assert result["receipt"]["status"] == "0x1"


def test_an_api_call_that_cannot_be_is_answered_why(sending: Sending) -> None:
    for body, reason in (
        ({"chainName": "mars", "to": SOMEBODY, "value": "3"}, "chain 'mars': unknown"),
        ({"chainName": "local", "to": "moon", "value": "3"}, "is not an address"),
    ):
        sending.send("api", api("POST", "/system/send_tx", body))
        answer = json.loads(sending.stored("api"))
        assert answer["StatusCode"] == 400
        assert reason in json.loads(base64.b64decode(answer["Body"]))["error"]
    sending.send("api", api("POST", "/system/gen_zk_proof", {}))
    answer = json.loads(sending.stored("api"))
    assert answer["StatusCode"] == 501
    assert b"no prover is configured" in base64.b64decode(answer["Body"])


def test_what_a_project_may_spend_a_day_and_send_in_a_window_is_limited(sending: Sending) -> None:
    sending.create("frugal")
    url = "/project_config/x/frugal/PROJECT_SPENDING"
    assert sending.node.call("POST", url, {"weiPerDay": "much"}).status == 400
    assert sending.node.call("POST", url, {"weiPerDay": str(ETHER)}).status == 201
    assert sending.node.call("GET", url).json == {"weiPerDay": str(ETHER)}
    half = request(value=ETHER // 2)
    sending.sends("send", half, "frugal")
    spent = "spending limit: the project may spend 1000000000000000000 wei a day"
    sending.refuses("send", half, spent, "frugal")  # the fees are spent too
    limit = {"threshold": 2, "duration": "8784h", "apiType": "BLOCKCHAIN"}
    assert sending.node.call("POST", "/traffic/x/frugal", limit).status == 201
    for _ in range(2):
        sending.sends("send", request(), "frugal")
    sent = "traffic limit: the project may send 2 transactions per 8784h"
    sending.refuses("send", request(), sent, "frugal")


def listed(sending: Sending, query: str = "", project: str = "sender") -> list[Any]:
    answer = sending.node.call("GET", f"/tx/{project}?{query}")
    assert answer.status == 200, answer
    rows: list[Any] = answer.json["data"]
    return rows


def test_transactions_are_listed_filtered_and_shown(sending: Sending) -> None:
    event_id = sending.sends("send", request(value=77))
    until(lambda: listed(sending, f"eventID={event_id}&state=CONFIRMED"), "it is confirmed")
    row = listed(sending, "limit=1")[0]
    assert (row["value"], row["eventID"], row["to"]) == ("77", event_id, SOMEBODY)
    assert row["hash"] == sending.stored("hash").decode()
    assert listed(sending, f"eventID={event_id}") == [row]
    (event,) = sending.node.call("GET", f"/event_log/sender?eventID={event_id}").json["data"]
    details = sending.node.call("GET", f"/event_log/sender/at/{event['place']}").json
    (sent,) = details["transactions"]
    keys = ("transactionID", "chainID", "state", "hash")
    assert sent == {key: row[key] for key in keys}
    assert listed(sending, f"hash={row['hash']}") == [row]
    assert listed(sending, f"hash={row['hash'][2:].upper()}&from={row['from'][2:]}") == [row]
    assert listed(sending, f"from={row['from']}&state=CONFIRMED&chainID=31337&limit=1") == [row]
    assert listed(sending, "state=FAILED&limit=1") != [row]
    assert listed(sending, "chainID=5") == []
    everything = sending.node.call("GET", "/tx?limit=1000").json["data"]
    assert len(everything) >= len(listed(sending, "limit=1000")) > 20
    first = sending.node.call("GET", "/tx/sender?limit=2").json
    second = sending.node.call("GET", f"/tx/sender?limit=2&before={first['next']}").json
    assert [*first["data"], *second["data"]] == listed(sending, "limit=4")
    shown = sending.node.call("GET", f"/tx/sender/{row['transactionID']}").json
    assert shown["gas"] >= 21_000, "Hardhat's estimate is 21,001, and gets a margin"
    assert (shown["gasUsed"], shown["attempts"][0]["hash"]) == (21_000, row["hash"])
    for name in ("31337-5", "5-5", "moon"):
        assert sending.node.call("GET", f"/tx/sender/{name}").status == 404
    state = sending.node.call("GET", "/tx/sender/state").json["data"][0]
    assert state["confirmed"] > 20
    assert int(state["feesWei"]) > 0
    chain = sending.node.call("GET", "/chain/local").json["transactions"]
    assert chain["confirmed"] >= state["confirmed"]


def test_what_waits_can_be_parked_priced_again_and_cancelled(sending: Sending, evm: Evm) -> None:
    node, before = sending.node, sending.sent()
    assert node.call("POST", "/chain/local/park").json == {"chainID": 31337, "parked": True}
    event_id = sending.sends("send", request(value=1))
    row = until(lambda: listed(sending, f"eventID={event_id}"), "it is there")[0]
    assert (row["state"], sending.sent()) == ("INIT", before)
    one = f"/tx/sender/{row['transactionID']}"
    dearer = node.call("POST", f"{one}/retry")
    assert (dearer.status, dearer.json["signatures"]) == (201, 2)
    cancelled = node.call("POST", f"{one}/cancel").json
    assert cancelled["attempts"][-1]["cancels"]
    assert {tried["nonce"] for tried in cancelled["attempts"]} == {row["nonce"]}
    assert node.call("POST", "/chain/mars/resume").status == 404
    node.call("POST", "/chain/local/resume")
    sending.settled(before + 1)
    until(lambda: node.call("GET", one).json["state"] == "FAILED", "it is cancelled")
    assert node.call("GET", one).json["reason"] == "cancelled by an administrator"
    found = evm.rpc("eth_getTransactionByHash", node.call("GET", one).json["hash"])
    assert (found["to"].lower(), found["value"]) == (sending.address.lower(), "0x0")
    refused = node.call("POST", f"{one}/cancel")
    assert (refused.status, refused.json["key"]) == (409, "TransactionRefused")


def test_an_operator_is_generated_and_exported_with_the_password_and_a_note(
    sending: Sending,
) -> None:
    node = sending.node
    made = node.call("POST", "/operator/generate", {"name": "fresh"})
    assert made.status == 201, made
    assert "privateKey" not in made.json
    url = f"/operator/data/{made.json['operatorID']}/export"
    assert node.call("POST", url, {"password": "wrong horse"}).status == 401
    exported = node.call("POST", url, {"password": "correct horse"})
    secret = bytes.fromhex(exported.json["privateKey"].removeprefix("0x"))
    assert address_of(secret, ECDSA) == made.json["address"]

    def noted() -> list[int]:
        rows = node.call("GET", "/audit?operation=ExportOperator").json["data"]
        return sorted(row["status"] for row in rows)

    assert 201 in noted()
    until(lambda: noted() == [201, 401], "the refusal is noted")


def test_transactions_are_seen_and_ruled_from_the_command_line(
    sending: Sending, tmp_path: Path
) -> None:
    shell = Shell(tmp_path / "config", sending.node)
    event_id = sending.sends("send", request(value=6))
    until(lambda: listed(sending, f"eventID={event_id}&state=CONFIRMED"), "it is confirmed")
    name = shell.json("tx", "list", "sender", "--event", event_id)["data"][0]["transactionID"]
    assert name in shell.text("tx", "list", "sender", "--state", "confirmed", "--state", "init")
    assert "there are more" in shell("tx", "list", "-n", "1").stderr.decode()
    assert "MAX FEE PER GAS" in shell.text("tx", "show", "sender", name)
    assert "GAS USED" in shell.text("tx", "state", "sender")
    shell("tx", "limit", "second", str(ETHER))
    assert "may spend" in shell("tx", "state", "second").stderr.decode()
    shell("tx", "park", "local")
    event_id = sending.sends("send", request(value=6))
    name = until(lambda: listed(sending, f"eventID={event_id}"), "it waits")[0]["transactionID"]
    shell("tx", "retry", "sender", name)
    assert "cancelled" in shell.text("tx", "cancel", "sender", name, "--yes")
    shell("tx", "resume", "local")
    generated = shell.json("operator", "generate", "made")
    text = shell("operator", "export", "made", "--password-stdin", stdin=b"correct horse\n")
    assert generated["address"] in text.stdout.decode()


def test_a_restored_node_sends_no_transaction_before_the_release(sending: Sending) -> None:
    data, before = sending.node.data, sending.sent()
    park(data)
    sending.sends("send", request())
    # The chain's process has the transaction, and would send it in its next round.
    until(lambda: not list(data.glob("projects/*/outbox.waiting")), "the transaction is taken")
    block = int(sending.evm.rpc("eth_blockNumber"), 16)
    sending.evm.mine(2)
    until(lambda: int(sending.evm.rpc("eth_blockNumber"), 16) >= block + 2, "two blocks")
    assert sending.sent() == before
    assert release(data)
    sending.settled(before + 1)
