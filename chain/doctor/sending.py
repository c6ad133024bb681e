"""Sends a transaction of value 0 from an account to itself on a test chain, for its receipt."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fieldbrook.chain.doctor.findings import Report
from fieldbrook.chain.doctor.probe import FAILURES, Probe, text_of
from fieldbrook.chain.errors import MalformedAnswerError, RpcError
from fieldbrook.chain.rpc.answers import quantity
from fieldbrook.chain.transaction import ContractCall, Market, fees_for, max_cost, sign
from fieldbrook.core.networks import BY_ID, DEFAULT_MAX_FEE, DEVELOPMENT_IDS
from fieldbrook.security.operator_keys import ECDSA, address_of

_LEAST_POLL_S, _LONGEST_POLL_S = 0.2, 3.0
_PRIORITY_WEI = 1_000_000_000


class NotTestChainError(Exception):
    """The endpoint's chain is not a known test chain, so no transaction is sent."""


class Sender:
    """The account that sends the transaction.

    Args:
        secret: the private key of the account, 32 bytes.
        limit_s: how long to wait for the receipt.
    """

    def __init__(self, secret: bytes, limit_s: float) -> None:
        self.secret = secret
        self.limit_s = limit_s
        self.address = address_of(secret, ECDSA)

    def require_test_chain(self, chain_id: int | None) -> None:
        """Refuse all chains except known test chains, because other coins may have a value.

        Raises:
            NotTestChainError: the chain is not a known test chain.
        """
        network = BY_ID.get(chain_id or 0)
        if chain_id not in DEVELOPMENT_IDS and (network is None or not network.test):
            name = "" if network is None else f" ({network.name})"
            raise NotTestChainError(f"chain {chain_id}{name} is not a known test chain")


async def examine_sending(probe: Probe, report: Report, sender: Sender) -> None:
    """Send the transaction and wait for its receipt; each step is a finding."""
    assert report.chain_id is not None
    try:
        tx_hash, fees = await _send(probe, report.chain_id, sender)
    except (*FAILURES, MalformedAnswerError) as error:
        report.add("send", "failed", f"{sender.address}: {text_of(error)}", hash=None)
        return
    report.add("send", "ok", f"{tx_hash}, {fees}", hash=tx_hash, sender=sender.address)
    await _receipt(probe, report, sender, tx_hash)


async def _send(probe: Probe, chain_id: int, sender: Sender) -> tuple[str, str]:
    """Sign and send the transaction; return its hash and a description of its fees.

    Raises:
        RpcError, TransportError, MalformedAnswerError: a request failed.
    """
    address = sender.address
    fields = {"from": address, "to": address, "value": "0x0"}
    gas = quantity(await probe.call("eth_estimateGas", [fields]))
    nonce = quantity(await probe.call("eth_getTransactionCount", [address, "pending"]))
    balance = quantity(await probe.call("eth_getBalance", [address, "latest"]))
    network = BY_ID.get(chain_id)
    cap = DEFAULT_MAX_FEE if network is None else network.max_fee_per_gas
    least = None if network is None else network.priority_fee
    fees = fees_for(await _market(probe, least), cap)
    call = ContractCall(address, 0, b"", gas)
    if balance < max_cost(call, gas, fees):
        raise MalformedAnswerError(
            f"it has {balance} wei, and the transaction may take {max_cost(call, gas, fees)}"
        )
    signed = await asyncio.to_thread(sign, sender.secret, chain_id, nonce, call, gas, fees)
    told = await probe.call_once("eth_sendRawTransaction", ["0x" + signed.raw.hex()])
    if told != signed.hash:
        raise MalformedAnswerError(f"the endpoint returned another hash than {signed.hash}")
    kind = "a gas price" if fees.priority is None else "EIP-1559 fees"
    return signed.hash, f"nonce {nonce}, {gas:,} gas, {kind} of {fees.limit} wei at most"


async def _market(probe: Probe, least: int | None) -> Market:
    block = await probe.call("eth_getBlockByNumber", ["latest", False])
    base = block.get("baseFeePerGas") if isinstance(block, dict) else None
    if base is None:
        return Market(None, 0, quantity(await probe.call("eth_gasPrice")))
    try:
        tip = max(least or 0, quantity(await probe.call("eth_maxPriorityFeePerGas")))
    except RpcError:
        tip = _PRIORITY_WEI if least is None else least
    return Market(quantity(base), tip, 0)


async def _receipt(probe: Probe, report: Report, sender: Sender, tx_hash: str) -> None:
    began = time.monotonic()
    poll_s = min(max(_LEAST_POLL_S, (report.block_ms or 0) / 2_000), _LONGEST_POLL_S)
    seen: str | None = None
    reason = "no block includes it"
    while time.monotonic() - began < sender.limit_s:
        try:
            if seen is None and await probe.call("eth_getTransactionByHash", [tx_hash]) is not None:
                seen = f"{time.monotonic() - began:.1f}"
            receipt = await probe.call("eth_getTransactionReceipt", [tx_hash])
            if receipt is not None:
                _included(report, receipt, time.monotonic() - began)
                return
        except (*FAILURES, MalformedAnswerError) as error:
            reason = text_of(error)
        await asyncio.sleep(poll_s)
    known = "the endpoint does not know it" if seen is None else f"known after {seen} s"
    report.add("receipt", "failed", f"none within {sender.limit_s:g} s; {known}; {reason}")


def _included(report: Report, receipt: Any, seconds: float) -> None:
    """Add the finding of a receipt.

    Raises:
        MalformedAnswerError: the value is not a receipt.
    """
    if not isinstance(receipt, dict):
        raise MalformedAnswerError("its receipt is not an object")
    block, gas = quantity(receipt.get("blockNumber")), quantity(receipt.get("gasUsed"))
    good = quantity(receipt.get("status") or "0x1") == 1
    price = receipt.get("effectiveGasPrice")
    paid = "" if price is None else f" at {quantity(price)} wei"
    text = f"in block {block:,} after {seconds:.1f} s, {gas:,} gas{paid}"
    report.add(
        "receipt",
        "ok" if good else "failed",
        text if good else f"it failed: {text}",
        block=block,
        seconds=round(seconds, 1),
        gasUsed=gas,
    )
