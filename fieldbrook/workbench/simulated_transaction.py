"""A transaction on a simulated chain, in the forms in which a chain and a node report it."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import NamedTuple

from msgspec import UNSET, UnsetType

from fieldbrook.chain.errors import MalformedAnswerError
from fieldbrook.chain.rpc.answers import quantity
from fieldbrook.chain.transaction import ContractCall
from fieldbrook.wasm.host.api import decode, response
from fieldbrook.workbench.chain_file import Chain, Sent
from fieldbrook.workbench.files import Json

CONFIRMED, FAILED = "CONFIRMED", "FAILED"
_TRANSFER_GAS = 21_000


class SimulatedTransaction(NamedTuple):
    """A transaction that a run sent. `cost` is the wei that the sender paid: value and fee."""

    run: int
    chain: Chain
    entry: Sent | None
    sender: str
    nonce: int
    call: ContractCall
    cost: int
    hash: str
    name: str
    event_type: str
    api: bytes

    @property
    def block(self) -> int:
        """The block number if the file gives none: the sender's transactions count from 1."""
        return self.nonce + 1


def fee(receipt: Json | UnsetType | None) -> int:
    """Return the gas fee of a receipt in wei, 0 if the receipt has no gas or no price."""
    if not isinstance(receipt, dict):
        return 0
    return _quantity(receipt, "gasUsed") * _quantity(receipt, "effectiveGasPrice")


def _quantity(receipt: Json, name: str) -> int:
    try:
        return quantity(receipt.get(name))
    except MalformedAnswerError:
        return 0


def request_body(sent: SimulatedTransaction) -> Json:
    """Return a transaction in the form in which a handler's effect shows it."""
    return {
        "from": sent.sender,
        "to": sent.call.to,
        "value": str(sent.call.value),
        "data": "0x" + sent.call.data.hex(),
        "nonce": sent.nonce,
    }


def chain_transaction(sent: SimulatedTransaction) -> Json | None:
    """Return a transaction in the form of `eth_getTransactionByHash`."""
    if sent.entry is not None and sent.entry.transaction is not UNSET:
        return sent.entry.transaction
    return {
        "hash": sent.hash,
        "chainId": hex(sent.chain.id),
        "nonce": hex(sent.nonce),
        "blockNumber": hex(sent.block),
        "from": sent.sender.lower(),
        "to": sent.call.to.lower(),
        "value": hex(sent.call.value),
        "input": "0x" + sent.call.data.hex(),
    }


def chain_receipt(sent: SimulatedTransaction) -> Json | None:
    """Return a receipt in the form of `eth_getTransactionReceipt`."""
    if sent.entry is not None and sent.entry.receipt is not UNSET:
        return sent.entry.receipt
    return {
        "transactionHash": sent.hash,
        "status": "0x1",
        "blockNumber": hex(sent.block),
        "from": sent.sender.lower(),
        "to": sent.call.to.lower(),
        "gasUsed": hex(_TRANSFER_GAS),
        "effectiveGasPrice": "0x0",
        "logs": [],
    }


def outcome_payload(sent: SimulatedTransaction) -> bytes:
    """Return the payload of the event that reports the outcome of a transaction."""
    receipt = chain_receipt(sent) or {}
    succeeded = receipt.get("status") != "0x0"
    short = {"transactionID": sent.name, "state": CONFIRMED if succeeded else FAILED}
    if sent.api:
        request = decode(sent.api)
        text = json.dumps(short, separators=(",", ":")).encode()
        return response(HTTPStatus.OK, request["Header"] if request else {}, text)
    report = {
        "transactionID": sent.name,
        "chainID": sent.chain.id,
        "state": short["state"],
        "hash": sent.hash,
        "hashes": [sent.hash],
        "eventID": f"run-{sent.run}",
        "from": sent.sender,
        "to": sent.call.to,
        "nonce": sent.nonce,
        "blockNumber": _quantity(receipt, "blockNumber"),
        "blockHash": str(receipt.get("blockHash") or ""),
        "gasUsed": _quantity(receipt, "gasUsed"),
        "gasPrice": str(_quantity(receipt, "effectiveGasPrice")),
        "reason": "" if succeeded else "execution reverted without a reason",
    }
    return json.dumps(report, separators=(",", ":")).encode()
