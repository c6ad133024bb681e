"""Transactions of handlers reach a real chain exactly as often as their events were committed."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.chain.evm import Contract, Evm
from tests.chain.senders import ETHER, SOMEBODY, Sending, request
from tests.integration.nodes import until


@pytest.fixture(scope="module")
def evm() -> Iterator[Evm]:
    chain = Evm()
    yield chain
    chain.stop()


@pytest.fixture(scope="module")
def sending(tmp_path_factory: pytest.TempPathFactory, evm: Evm) -> Iterator[Sending]:
    made = Sending(tmp_path_factory.mktemp("sending"), evm)
    yield made
    made.node.stop()


@pytest.fixture(scope="module")
def beacon(evm: Evm) -> Contract:
    return evm.deploy("Beacon")


def test_a_transaction_of_a_committed_event_is_in_the_chain_and_its_outcome_an_event(
    sending: Sending,
) -> None:
    before, told = sending.sent(), sending.outcomes()
    code = sending.send("send", request(value=7))
    assert code == 0, sending.logged()
    sending.settled(before + 1)
    hash_ = sending.stored("hash").decode()
    found = sending.evm.rpc("eth_getTransactionByHash", hash_)
    assert (found["to"].lower(), int(found["value"], 16)) == (SOMEBODY.lower(), 7)
    until(lambda: sending.outcomes() == told + 1, "the outcome arrives")
    outcome = json.loads(sending.stored("outcome"))
    assert (outcome["state"], outcome["hash"]) == ("CONFIRMED", hash_)


@pytest.mark.parametrize(
    ("handler", "payload", "reason"),
    [
        ("nowhere", request(), "chain 5 is not configured"),
        ("send", b"no json", "the request is not JSON"),
        ("send", request(to="0x12"), "to: '0x12' is not an address"),
        ("send", request(to=""), "to: an address is required"),
        ("send", request(to=SOMEBODY[:-1] + "a"), "are not its checksum"),
        ("send", request(value="one"), "value: 'one' is not a decimal number"),
        ("send", request(value=-1), "value: '-1' is not a decimal number"),
        ("send", request(value=1 << 256), "is too large"),
        ("send", request(data="0xabc"), "data: '0xabc' is not hexadecimal"),
        ("send", request(value=10**24), "nsufficient funds"),
        ("send", request(gasLimit=20_999), "gasLimit: less than 21000"),
        ("send", request(gasLimit=1 << 39), "gasLimit: a block has"),
        ("send", request(data="11" * 99, gasLimit=21_100), "gasLimit: it needs"),
        ("named", request(operatorName="nobody"), "has no operator 'nobody'"),
        ("read", b"{}", "to: an address is required"),
    ],
)
def test_bad_input_is_a_code_for_the_guest_and_a_record_and_the_sender_goes_on(
    sending: Sending, handler: str, payload: bytes, reason: str
) -> None:
    before = sending.sent()
    assert sending.send(handler, payload) == -1
    sending.logs(reason)
    assert sending.send("send", request()) == 0
    sending.settled(before + 1)


def test_a_key_of_another_kind_signs_nothing(sending: Sending) -> None:
    key = Ed25519PrivateKey.generate()
    both = key.private_bytes_raw() + key.public_key().public_bytes_raw()
    body = {"name": "edward", "privateKey": both.hex(), "type": 2}
    assert sending.node.call("POST", "/operator", body).status == 201
    assert sending.send("named", request(operatorName="edward")) == -1
    sending.logs("operator edward has an ED25519 key")


def test_an_operator_of_the_account_signs_where_the_guest_names_it(sending: Sending) -> None:
    secret = "11" * 32
    body = {"name": "other", "privateKey": secret, "type": 1}
    made = sending.node.call("POST", "/operator", body).json
    sending.evm.rpc("anvil_setBalance", made["address"], hex(ETHER))
    assert sending.send("named", request(operatorName="other")) == 0

    def sent() -> bool:
        count = sending.evm.rpc("eth_getTransactionCount", made["address"], "latest")
        return int(count, 16) == 1

    until(sent, "the other operator's transaction is in the chain")


def test_a_call_that_reverts_sends_nothing_and_its_reason_is_in_the_log(
    sending: Sending, beacon: Contract
) -> None:
    before = sending.sent()
    refused = request(to=beacon.address, value=0, data=beacon.data("refuse", "not on Sundays"))
    assert sending.send("send", refused) == -1
    sending.logs("execution reverted: not on Sundays")
    assert sending.send("read", refused) == -1
    assert sending.sent() == before


def test_what_a_contract_returns_is_handed_to_the_guest_as_bytes(
    sending: Sending,
) -> None:
    place = "0x" + "42" * 20
    sending.evm.rpc("anvil_setCode", place, "0x602a60005260206000f3")  # returns 42
    assert sending.send("read", json.dumps({"to": place}).encode()) == 0
    assert sending.stored("read") == (42).to_bytes(32, "big")


def test_a_handler_that_traps_after_sending_leaves_no_transaction_and_no_gap(
    sending: Sending,
) -> None:
    before = sending.sent()
    assert sending.send("trap", request()) == -1
    assert sending.send("twice", request()) == 0
    assert sending.send("trap", request()) == -1
    assert sending.send("send", request()) == 0
    sending.settled(before + 3)


def test_many_events_at_once_are_as_many_transactions_in_order(sending: Sending) -> None:
    before = sending.sent()
    with ThreadPoolExecutor(8) as pool:
        codes = list(pool.map(lambda n: sending.send("send", request(value=n)), range(40)))
    assert codes == [0] * 40, sending.logged()
    sending.settled(before + 40)


def test_two_projects_share_a_key_without_a_gap(sending: Sending) -> None:
    sending.create("second")
    before = sending.sent()
    with ThreadPoolExecutor(8) as pool:
        projects = ["sender", "second"] * 15
        codes = list(pool.map(lambda p: sending.send("send", request(), project=p), projects))
    good = codes.count(0)
    assert good == 30, sending.logged() + sending.logged("second")
    sending.settled(before + good)


def test_an_event_that_is_sent_again_has_one_transaction(sending: Sending) -> None:
    before = sending.sent()
    first = sending.event("send", request(value=5), event_id="again-1")
    second = sending.event("send", request(value=5), event_id="again-1")
    assert (first.status, second.status) == (201, 201)
    sending.settled(before + 1)


def api(method: str, path: str, body: object, event_type: str = "ANSWER") -> bytes:
    encoded = base64.b64encode(json.dumps(body).encode()).decode()
    url = f"w3bstream://w3bstream.com{path}"
    header = {"Eventtype": [event_type]}
    return json.dumps({"Method": method, "Url": url, "Header": header, "Body": encoded}).encode()


def answered(sending: Sending, key: str) -> Any:
    """The response of the last API call once it has arrived and has this key."""

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
    assert sending.send("send", half, "frugal") == 0
    assert sending.send("send", half, "frugal") == -1  # the fees are spent too
    sending.logs("spending limit: the project may spend 1000000000000000000 wei a day", "frugal")
    limit = {"threshold": 2, "duration": "8784h", "apiType": "BLOCKCHAIN"}
    assert sending.node.call("POST", "/traffic/x/frugal", limit).status == 201
    codes = [sending.send("send", request(), "frugal") for _ in range(3)]
    assert codes == [0, 0, -1]
    sending.logs("traffic limit: the project may send 2 transactions per 8784h", "frugal")
