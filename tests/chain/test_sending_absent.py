"""A chain that is unavailable for a while: depending on a setting of the project, handlers wait for
the chain, or their events are refused and sent again."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chain.crashes import CHAIN
from tests.chain.evm import Evm
from tests.chain.gate import Gate
from tests.chain.reading import providers
from tests.chain.senders import SOMEBODY, Sending, request
from tests.support.nodes import Answer, long_id, parts, until


@pytest.fixture(scope="module")
def gate(evm: Evm) -> Iterator[Gate]:
    made = Gate(evm.url)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory, evm: Evm, gate: Gate) -> Iterator[Sending]:
    """A node whose project refuses its events while the chain is unavailable."""
    folder = tmp_path_factory.mktemp("hasty")
    made = Sending(folder, evm, url=gate.url, before=["deadline_ms = 1500"])
    url = "/project_config/x/sender/PROJECT_CHAINS"
    assert made.node.call("GET", url).json == {"unavailable": "CODE"}
    assert made.node.call("POST", url, {"unavailable": "LATER"}).status == 400
    assert made.node.call("POST", url, {"unavailable": "RETRY"}).status == 201
    assert made.node.call("GET", url).json == {"unavailable": "RETRY"}
    yield made
    made.node.stop()


@pytest.mark.thorough
def test_a_handler_waits_for_the_process_of_its_chain_to_start_again(
    tmp_path: Path, evm: Evm
) -> None:
    with providers(evm, ["bsc"], failures=0.0, seed=1) as [endpoint]:
        sending = Sending(tmp_path, evm, url=endpoint.url, before=["deadline_ms = 10000"])
        try:
            before = sending.sent()
            for value in range(3):
                os.kill(parts(sending.node)[CHAIN], signal.SIGKILL)
                assert sending.send("send", request(value=value)) == 0
            sending.settled(before + 3)
        finally:
            sending.node.stop()


def sent_until_taken(sending: Sending, handler: str, payload: bytes, event_id: str) -> Answer:
    """Send an event like a device that tries again when it is refused."""

    def taken() -> Answer | None:
        answer = sending.event(handler, payload, event_id)
        assert answer.status in (201, 503), answer
        return answer if answer.status == 201 else None

    found: Answer = until(taken, "the event is taken")
    return found


@pytest.mark.thorough
def test_an_event_is_refused_for_now_while_no_endpoint_answers_and_has_one_transaction_in_the_end(
    hasty: Sending, gate: Gate
) -> None:
    before, event_id, payload = hasty.sent(), long_id("later"), request(value=5)
    gate.closed = True
    try:
        for _ in range(2):
            refused = hasty.event("send", payload, event_id)
            assert (refused.status, refused.json["key"]) == (503, "ServiceUnavailable")
            assert refused.headers["Retry-After"] == "1"
    finally:
        gate.closed = False
    hasty.logs("chain local: ")
    assert hasty.node.call("GET", "/dead_letter/sender").json["data"] == []
    answer = sent_until_taken(hasty, "send", payload, event_id)
    assert answer.json["results"][0]["code"] == 0
    hasty.settled(before + 1)


def test_of_an_event_with_several_handlers_nothing_stays_when_one_of_them_cannot_reach_its_chain(
    hasty: Sending, gate: Gate
) -> None:
    for handler in ("outcome", "send", "read"):
        body = {"appletID": hasty.applets["sender"], "eventType": "ALL", "handler": handler}
        assert hasty.node.call("POST", "/strategy/x/sender", body).status == 201
    until(hasty.at_rest, "nothing is under way")
    told, before, event_id = hasty.outcomes(), hasty.sent(), long_id("all")
    payload = request(to=SOMEBODY, value=6)
    with gate.holding("eth_call"):
        assert hasty.event("all", payload, event_id).status == 503
    assert hasty.outcomes() == told
    assert hasty.sent() == before
    answer = sent_until_taken(hasty, "all", payload, event_id)
    assert [result["code"] for result in answer.json["results"]] == [0, 0, 0]
    hasty.settled(before + 1)
    assert hasty.send("send", request(value=7)) == 0
    hasty.settled(before + 2)
