"""Projects that were removed, or whose stores are lost, block no nonces of other projects with the
same key."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from fieldbrook.storage.chain.transactions import LEASED
from tests.chain.crashes import CHAIN, Event, held, kill
from tests.chain.evm import Evm
from tests.chain.senders import ETHER, SOMEBODY, Sending, request
from tests.support.crash_at import CrashAt
from tests.support.nodes import until


@pytest.fixture(scope="module")
def sending(
    tmp_path_factory: pytest.TempPathFactory, evm: Evm, crash_at: CrashAt
) -> Iterator[Sending]:
    made = Sending(tmp_path_factory.mktemp("lost"), evm, kind=crash_at.node, finality=0)
    yield made
    made.node.stop()


def leased(sending: Sending) -> bool:
    return any(row.state == LEASED for row in sending.rows())


def received(evm: Evm) -> int:
    """Return the balance of the receiver of all transactions, in wei."""
    return int(evm.rpc("eth_getBalance", SOMEBODY, "latest"), 16)


@pytest.mark.parametrize("absent", [False, True], ids=["chain is there", "chain is down"])
@pytest.mark.thorough("chain is there")
def test_a_project_that_is_deleted_with_a_nonce_of_its_own_leaves_it_to_others(
    sending: Sending, crash_at: CrashAt, absent: bool
) -> None:
    name, before = f"doomed{absent:d}", sending.sent()
    sending.create(name)
    crash_at.arm("project.chain_answer_received", hold=True)
    event = Event(sending, "send", request(value=7), "never committed", name, at=crash_at.reached)
    crash_at.happens()
    pid = held(sending.node)
    assert leased(sending)
    assert sending.node.call("DELETE", f"/project/x/{name}").status == 204
    if absent:
        kill(sending, CHAIN)
    os.kill(pid, signal.SIGKILL)
    event.ends()
    until(lambda: sending.send("send", request()) == 0, "another project has the nonce")
    sending.settled(before + 1)
    assert not leased(sending)


def test_a_transaction_of_a_project_that_is_gone_can_be_seen_and_cancelled(
    sending: Sending,
) -> None:
    node, before = sending.node, sending.sent()
    sending.create("gone")
    assert node.call("POST", "/chain/local/park").status == 201
    sending.sends("send", request(value=7), "gone")
    row = until(lambda: [r for r in sending.rows() if r.state == "INIT"], "it waits")[0]
    assert node.call("DELETE", "/project/x/gone").status == 204
    until(lambda: node.call("GET", f"/tx/gone/{row.name}").status == 404, "the project is gone")
    one = f"/tx/x/{row.name}"
    assert node.call("GET", one).json["state"] == "INIT"
    assert node.call("POST", f"{one}/cancel").status == 201
    assert node.call("POST", "/chain/local/resume").status == 201
    sending.settled(before + 1)
    until(lambda: node.call("GET", one).json["state"] == "FAILED", "it is cancelled")


def test_nonces_of_a_project_whose_store_is_lost_are_released_and_what_it_committed_is_sent_later(
    sending: Sending, crash_at: CrashAt, evm: Evm
) -> None:
    node, before, had = sending.node, sending.sent(), received(evm)
    sending.create("lost")
    assert sending.event("nowhere", request(), project="lost").status == 201
    assert node.call("GET", "/event_log/lost").status == 200  # makes the project write its store
    release = "/chain/local/release/lost"
    refused = node.call("POST", release)
    assert (refused.status, refused.json["key"]) == (409, "TransactionRefused")
    until(sending.at_rest, "no project has an outcome to commit")
    crash_at.arm("project.committed", hold=True)
    event = Event(sending, "send", request(value=1_000), "committed", "lost", at=crash_at.reached)
    crash_at.happens()
    assert "its leases end with its current batch" in node.call("POST", release).body.decode()
    assert leased(sending)
    lost = next(row.project_id for row in sending.rows() if row.state == LEASED)
    store = node.data / "projects" / str(lost) / "data.mdb"
    kept = store.rename(store.with_suffix(".kept"))
    store.write_bytes(b"nothing that can be read" * 1_000)
    os.kill(held(node), signal.SIGKILL)
    sending.refuses("send", request(value=1), "is in use by another project")
    until(lambda: '"stuck_leases"' in node.call("GET", "/health").body.decode(), "it is seen")
    assert node.call("POST", release).status == 201
    until(lambda: sending.send("send", request(value=1)) == 0, "another project has the nonce")
    sending.settled(before + 1)
    kept.rename(store)
    assert event.code() == 0  # the event was committed before the store was lost
    evm.mine(8)  # then its nonce is used finally, and the transaction gets another one
    sending.settled(before + 2)
    assert received(evm) == had + 1 + 1_000
    until(lambda: sending.send("send", request(value=1)) == 0, "others go on")
    sending.settled(before + 3)


def test_a_project_with_an_operator_of_its_own_does_not_disturb_others(
    sending: Sending, crash_at: CrashAt, evm: Evm
) -> None:
    made = sending.node.call("POST", "/operator/generate", {"name": "own"}).json
    evm.fund(made["address"], ETHER)
    sending.create("apart")
    # Its worker is stopped, so the other project must have another worker.
    alone = sending.node.call("PUT", "/project/x/apart/worker", {"dedicated": True})
    assert alone.status == 200, alone
    before = sending.sent()
    crash_at.arm("project.chain_answer_received", hold=True)
    own = request(value=7, operatorName="own")
    event = Event(sending, "named", own, "with its own key", "apart", at=crash_at.reached)
    crash_at.happens()
    pid = held(sending.node)
    try:
        sending.sends("send", request())
        sending.settled(before + 1)
    finally:
        os.kill(pid, signal.SIGCONT)
        event.ends()
