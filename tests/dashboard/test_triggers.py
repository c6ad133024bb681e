"""Sources of events inside the node: cron jobs, monitors of chains, contract ABIs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.conftest import Open
from tests.support.nodes import RunningNode
from tests.support.tools import free_port

pytestmark = pytest.mark.timeout(300)

ADDRESS = "0x1AA325E5144f763a520867c56FC77cC1411430d0"
TRANSFER = {
    "type": "event",
    "name": "Transfer",
    "inputs": [
        {"name": "from", "type": "address", "indexed": True},
        {"name": "value", "type": "uint256", "indexed": False},
    ],
}


@pytest.fixture(scope="module")
def chain_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A node with a chain whose endpoint does not answer."""
    folder = tmp_path_factory.mktemp("chain")
    settings = folder / "node.toml"
    endpoint = f"http://127.0.0.1:{free_port()}"
    settings.write_text(f'[[chains]]\nid = 4690\nname = "testnet"\nendpoint = "{endpoint}"\n')
    running = RunningNode(folder / "data", "--config", str(settings))
    running.log_in()
    yield running
    running.stop()


@pytest.mark.thorough
def test_a_cron_job_is_tried_added_and_deleted(node: RunningNode, signed_in: Open) -> None:
    project = node.create_project("clocks")["projectID"]
    page = signed_in(node, "/projects/clocks/triggers", expected=["400"]).page
    page.get_by_text("No cron jobs").wait_for()
    page.get_by_text("This node has no chain").wait_for()
    page.get_by_role("button", name="Add cron job").click()
    dialog = page.get_by_role("dialog", name="Add cron job")
    expression = dialog.locator("[name=expression]")
    expression.fill("0 9 * *")
    dialog.get_by_text("4 fields instead of 5").wait_for()
    expression.fill("CRON_TZ=UTC 30 9 1 1 *")
    dialog.get_by_text("-01-01, 09:30").nth(4).wait_for()
    dialog.locator("[name=type]").fill("NEW_YEAR")
    dialog.get_by_role("button", name="Add cron job").click()
    table = page.get_by_role("region", name="Cron jobs")
    row = table.get_by_role("row").filter(has_text="NEW_YEAR")
    row.wait_for()
    assert row.get_by_role("time").count() == 6
    row.get_by_role("button", name="Delete the cron job").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    page.get_by_text("No cron jobs").wait_for()
    assert node.call("GET", f"/cronjob/{project}").json["total"] == 0


def test_an_abi_is_read_from_a_file_and_shown(
    node: RunningNode, signed_in: Open, tmp_path: Path
) -> None:
    node.create_project("contracts")
    page = signed_in(node, "/projects/contracts/triggers").page
    file = tmp_path / "Token.json"
    file.write_text(json.dumps({"contractName": "Token", "abi": [TRANSFER]}))
    page.get_by_role("button", name="Add ABI").click()
    dialog = page.get_by_role("dialog", name="Add ABI")
    dialog.locator("[name=name]").fill("x")
    dialog.locator("[name=abi]").fill("{")
    dialog.get_by_role("button", name="Add ABI").click()
    dialog.get_by_role("alert").filter(has_text="not JSON").wait_for()
    dialog.locator("[name=name]").fill("")
    with page.expect_file_chooser() as chooser:
        dialog.get_by_role("button", name="Choose a file").click()
    chooser.value.set_files(file)
    dialog.get_by_role("button", name="Add ABI").click()
    table = page.get_by_role("region", name="Contract ABIs")
    table.get_by_text("Transfer(address,uint256)").wait_for()
    table.get_by_role("button", name="Show the ABI Token").click()
    page.get_by_role("dialog", name="Token").get_by_text('"indexed": true').wait_for()
    page.keyboard.press("Escape")
    table.get_by_role("button", name="Delete the ABI Token").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    page.get_by_text("No ABIs").wait_for()


@pytest.mark.thorough
def test_monitors_are_added_paused_rewound_and_deleted(
    chain_node: RunningNode, signed_in: Open
) -> None:
    chain_node.create_project("watch")
    chain_node.call("POST", "/contract_abi/watch", {"name": "token", "abi": [TRANSFER]})
    page = signed_in(chain_node, "/projects/watch/triggers", expected=["409"]).page

    def listed(kind: str) -> list[Any]:
        found: list[Any] = chain_node.call("GET", f"/monitor/x/watch/{kind}/datalist").json["data"]
        return found

    def add(kind: str, **fields: str) -> None:
        page.get_by_role("button", name="Add monitor").first.click()
        dialog = page.get_by_role("dialog", name="Add monitor")
        dialog.get_by_role("button", name=kind).click()
        for name, value in fields.items():
            dialog.locator(f"input[name={name}]").fill(value)
        if kind == "Contract log":
            dialog.locator("[name=abi]").select_option("token")
        dialog.get_by_role("button", name="Add monitor").click()

    add("Contract log", address=ADDRESS, **{"from": "1000"}, event="Transfer", type="MOVED")
    table = page.get_by_role("region", name="Monitors of chains")
    row = table.get_by_role("row").filter(has_text="MOVED")
    row.get_by_text("Transfer(address,uint256)").wait_for()
    add("Transaction", hash="0x" + "cd" * 32, type="PAID")
    table.get_by_role("row").filter(has_text="PAID").wait_for()
    add("Block height", height="500000", type="REACHED")
    table.get_by_role("row").filter(has_text="block 500000").wait_for()
    add("Block height", height="500000", type="REACHED")
    dialog = page.get_by_role("dialog", name="Add monitor")
    dialog.get_by_role("alert").filter(has_text="is the same").wait_for()
    page.keyboard.press("Escape")

    row.get_by_role("button", name="Pause").click()
    row.get_by_text("paused").wait_for()
    row.get_by_role("button", name="Rewind").click()
    dialog = page.get_by_role("dialog", name="Rewind")
    dialog.locator("[name=block]").fill("7")
    dialog.get_by_role("button", name="Rewind").click()
    row.get_by_role("cell", name="7", exact=True).wait_for()
    (rewound,) = listed("contract_log")
    shown = (rewound["blockStart"], rewound["paused"], rewound["event"], rewound["abiName"])
    assert shown == (7, True, "Transfer(address,uint256)", "token")
    row.get_by_role("button", name="Start").click()
    row.get_by_text("chain unreachable").wait_for()

    for kind in ("contract_log", "chain_tx", "chain_height"):
        (one,) = listed(kind)
        row = table.get_by_role("row").filter(has_text=one["eventType"])
        row.get_by_role("button", name="Delete").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        row.wait_for(state="detached")
        assert listed(kind) == []
    page.get_by_text("No monitors").wait_for()
