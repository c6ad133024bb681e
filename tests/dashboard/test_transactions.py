"""The transactions of a project, on a real chain: states, one with its signatures, the limit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chain.evm import Evm
from tests.chain.senders import ETHER, Sending, request
from tests.dashboard.conftest import Open

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def sending(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sending]:
    chain = Evm()
    made = Sending(tmp_path_factory.mktemp("transactions"), chain)
    yield made
    made.node.stop()
    chain.stop()


@pytest.mark.thorough
def test_transactions_are_found_sent_again_cancelled_and_limited(
    sending: Sending, signed_in: Open
) -> None:
    node, event_id = sending.node, sending.sends("send", request(value=ETHER // 10))
    sending.settled(1)
    page = signed_in(node, "/projects/sender/transactions").page
    table = page.get_by_role("region", name="Transactions, the newest first")
    row = table.get_by_role("row").nth(1)
    row.get_by_text("confirmed").wait_for()
    row.get_by_text("0.1 ether").wait_for()
    row.get_by_role("button").click()
    panel = page.get_by_role("dialog", name="Transaction")
    panel.get_by_role("link", name=event_id).wait_for()
    assert panel.get_by_role("button", name="Cancel", exact=True).count() == 0, "it is confirmed"
    page.keyboard.press("Escape")

    sending.evm.rpc("evm_setAutomine", False)
    sending.sends("send", request(value=5))
    waiting = table.get_by_role("row").filter(has_text="5 wei")
    waiting.get_by_text("sent", exact=True).wait_for()
    waiting.get_by_role("button").click()
    panel.get_by_role("button", name="Send again").click()
    page.get_by_role("dialog", name="Send again").get_by_role("button", name="Send again").click()
    page.get_by_text("Signed again with higher fees").wait_for()
    panel.get_by_role("region", name="Signatures").get_by_role("row").nth(2).wait_for()
    panel.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("dialog", name="Cancel").get_by_role("button", name="Cancel").click()
    panel.get_by_text("cancels it").wait_for()
    # A block that is made before the cancellation is sent includes the transaction itself.
    panel.get_by_text("Sent; in no block yet").wait_for()
    sending.evm.rpc("evm_setAutomine", True)
    sending.evm.rpc("evm_mine")
    panel.get_by_text("Reverted, or given up").wait_for()
    page.keyboard.press("Escape")

    page.get_by_role("button", name="Set a limit").click()
    dialog = page.get_by_role("dialog", name="Set a limit")
    dialog.get_by_label("Limit per day").fill(str(ETHER))
    dialog.get_by_role("button", name="Set a limit").click()
    page.get_by_text("of 1 ether per day").wait_for()

    page.get_by_label("State").select_option("CONFIRMED")
    page.wait_for_url("**/transactions?state=CONFIRMED")
    page.get_by_label("Hash, sender, event id or number").fill(event_id)
    page.get_by_label("Hash, sender, event id or number").press("Enter")
    table.get_by_role("row").nth(1).get_by_text("0.1 ether").wait_for()
    assert table.get_by_role("row").count() == 2
    page.get_by_label("Hash, sender, event id or number").fill("0x" + "12" * 32)
    page.get_by_label("Hash, sender, event id or number").press("Enter")
    page.get_by_text("No transaction matches these filters").wait_for()

    chains = signed_in(node, "/node/chains").page
    chains.get_by_role("button", name="Pause sending").click()
    ask = chains.get_by_role("dialog", name="Pause sending")
    ask.get_by_role("button", name="Pause sending").click()
    chains.get_by_text("sending is paused", exact=True).wait_for()
    chains.get_by_role("button", name="Resume sending").click()
    chains.get_by_role("button", name="Pause sending").wait_for()
    chains.get_by_role("region", name="Endpoints").get_by_text("ok").wait_for()
