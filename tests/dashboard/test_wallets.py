"""Signing in with wallets of the browser, with a real key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.chain.libraries import preserve_recursion_limit
from tests.support.browser import Visit
from tests.support.nodes import RunningNode, StartNode

pytestmark = pytest.mark.timeout(300)
SCRIPT = Path(__file__).parent / "js" / "wallets.js"


@pytest.fixture(scope="module")
def open_node(start_module_node: StartNode) -> RunningNode:
    return start_module_node("--wallet-whitelist", "*")


@pytest.mark.thorough
def test_one_of_several_wallets_signs_in_and_a_refusal_is_told(
    open_node: RunningNode, browser: Any
) -> None:
    with preserve_recursion_limit():  # takes a second, also where no wallet is tested
        from eth_account import Account
        from eth_account.messages import encode_defunct

    key = Account.create()

    def sign(text: str) -> str:
        signed = Account.sign_message(encode_defunct(hexstr=text), key.key)
        return f"0x{signed.signature.hex().removeprefix('0x')}"

    seen = Visit(browser, f"http://localhost:{open_node.dashboard_port}")
    seen.context.expose_function("sign", sign)
    seen.context.add_init_script(SCRIPT.read_text().replace("ADDRESS", key.address.lower()))
    page = seen.page
    page.goto(seen.address)
    page.get_by_role("button", name="Test Wallet").wait_for()
    page.get_by_label("Username").fill("somebody")
    page.evaluate("announceLate()")
    shy = page.get_by_role("button", name="Shy Wallet")
    shy.wait_for()
    assert page.get_by_label("Username").input_value() == "somebody"
    assert shy.locator("img").count() == 0  # its icon is at another host

    shy.click()
    page.get_by_role("alert").filter(has_text="You declined in the wallet").wait_for()
    page.get_by_role("button", name="Test Wallet").click()
    page.get_by_role("heading", name="Overview").wait_for()
    kept = json.loads(page.evaluate("sessionStorage.getItem('fieldbrook.session')"))
    assert kept["name"] == f"{key.address[:6]}…{key.address[-4:]}"
    assert open_node.call("GET", "/project", token=kept["token"]).status == 200
    seen.close()
