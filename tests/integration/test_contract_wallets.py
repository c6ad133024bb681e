"""Contract wallets sign in (EIP-1271) on a node with an EVM chain."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fieldbrook.core.clock import now_ms, rfc3339
from fieldbrook.security.operator_keys import eip55
from tests.chain.evm import CHAIN_ID, Contract, Evm
from tests.support.nodes import Answer, RunningNode, StartNode
from tests.support.nodes import until as wait_until


@pytest.fixture(scope="module")
def wallet(evm: Evm) -> Contract:
    return evm.deploy("ContractWallet")


@pytest.fixture(scope="module")
def node(evm: Evm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    chains = [
        {"id": CHAIN_ID, "name": "here", "endpoint": evm.url},
        {"id": 7, "name": "elsewhere", "endpoint": evm.url},
    ]
    folder: Path = tmp_path_factory.mktemp("wallets")
    config = folder / "node.toml"
    rows = [f"[[chains]]\n{_toml(chain)}" for chain in chains]
    config.write_text(f'wallet_whitelist = "*"\nwallet_chain = {CHAIN_ID}\n' + "\n".join(rows))
    running = RunningNode(folder / "n", "--config", str(config), command="node")
    yield running
    running.stop()


def _toml(table: dict[str, object]) -> str:
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())


def sign_in(
    node: RunningNode, evm: Evm, address: str, *, chain_id: int = CHAIN_ID, signer: int = 0
) -> Answer:
    """Sign in as a contract, with the signature of an account of the chain."""
    nonce = node.call("GET", "/login/wallet/nonce").json["nonce"]
    stated = eip55(bytes.fromhex(address[2:]))
    host = f"127.0.0.1:{node.http_port}"
    text = (
        f"{host} wants you to sign in with your Ethereum account:\n{stated}\n\n\n"
        f"URI: http://localhost\nVersion: 1\nChain ID: {chain_id}\nNonce: {nonce}\n"
        f"Issued At: {rfc3339(now_ms())}"
    )
    signature = evm.rpc("personal_sign", "0x" + text.encode().hex(), evm.accounts[signer])
    body = {"message": text, "signature": "0x0000" + signature[2:]}
    return node.call("PUT", "/login/wallet", body)


def test_a_contract_whose_owner_signed_has_an_account(
    node: RunningNode, evm: Evm, wallet: Contract
) -> None:
    answer = sign_in(node, evm, wallet.address)
    assert answer.status == 200, answer
    again = sign_in(node, evm, wallet.address)
    assert again.json["accountID"] == answer.json["accountID"]
    mine = node.call("GET", "/project", token=answer.json["token"])
    assert (mine.status, mine.json["total"]) == (200, 0)


@pytest.mark.parametrize(
    "why",
    ["another signed", "an account without code", "another chain", "a contract of another kind"],
)
def test_what_the_contract_does_not_take_is_refused(
    node: RunningNode, evm: Evm, wallet: Contract, why: str
) -> None:
    answer = {
        "another signed": lambda: sign_in(node, evm, wallet.address, signer=1),
        "an account without code": lambda: sign_in(node, evm, evm.accounts[0]),
        "another chain": lambda: sign_in(node, evm, wallet.address, chain_id=7),
        "a contract of another kind": lambda: sign_in(node, evm, evm.deploy().address),
    }[why]()
    assert (answer.status, answer.json["key"]) == (401, "InvalidEthLoginSignature")


@pytest.mark.thorough
def test_a_chain_out_of_reach_is_said_and_can_be_asked_again(
    start_node: StartNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Evm()
    port, address = first.port, first.deploy("ContractWallet").address
    chain = {"id": CHAIN_ID, "name": "here", "endpoint": first.url}
    monkeypatch.setenv("FIELDBROOK_CHAINS", json.dumps([chain]))
    monkeypatch.setenv("FIELDBROOK_WALLET_WHITELIST", "*")
    node = start_node(command="node", logged_in=False)
    assert sign_in(node, first, address).status == 200
    first.stop()
    signer = Evm()
    answer = sign_in(node, signer, address)
    signer.stop()
    assert (answer.status, answer.json["key"]) == (503, "ServiceUnavailable")
    assert "127.0.0.1" in answer.json["desc"]
    second = Evm(port=port)
    try:
        assert second.deploy("ContractWallet").address == address
        wait_until(lambda: sign_in(node, second, address).status == 200, "it is asked again")
    finally:
        second.stop()
