"""The state of the chain that a new transaction depends on: fees, nonces, balances and gas."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from fieldbrook.chain.errors import MalformedAnswerError, RpcError
from fieldbrook.chain.rpc.answers import hex_bytes, quantity
from fieldbrook.chain.transaction import ContractCall, Market, gas_limit, revert_reason
from fieldbrook.core.errors import ChainUnavailableError

REQUEST_LIMIT_S = 1.6  # a project waits 2 s for the answer
RESULT_LIMIT_BYTES = 4 << 20
"""Limit of the data that a contract call returns to a guest."""
_MARKET_KEPT_S = 2.0
_PRIORITY_WEI = 1_000_000_000


class Rpc(Protocol):
    """The part of `chain.rpc.client.ChainClient` that this module uses."""

    async def call(
        self, method: str, params: list[Any], *, within_s: float | None = None
    ) -> Any: ...


class ChainState:
    """Reads the state with short time limits, so that there is time to ask another endpoint.

    Every method raises ChainUnavailableError if no endpoint gives a usable answer, and RpcError if
    one refuses.
    """

    def __init__(self, rpc: Rpc) -> None:
        self._rpc = rpc
        self._market: tuple[float, Market, int] | None = None

    async def call(self, method: str, params: list[Any]) -> Any:
        """Send any request."""
        return await self._rpc.call(method, params, within_s=REQUEST_LIMIT_S)

    async def nonce_count(self, address: str) -> int:
        """Return how many nonces of an account are used, pending transactions included."""
        return number(await self.call("eth_getTransactionCount", [address, "pending"]))

    async def balance(self, address: str) -> int:
        """Return the balance of an account in wei."""
        return number(await self.call("eth_getBalance", [address, "latest"]))

    async def gas(self, call: ContractCall, fields: Mapping[str, str]) -> int:
        """Return the gas limit of a call: its own, or an estimate with a margin."""
        if call.gas:
            return call.gas
        return gas_limit(number(await self.call("eth_estimateGas", [fields])))

    async def market(self) -> tuple[Market, int]:
        """Return the chain's fees, at most `_MARKET_KEPT_S` old, and a block's gas limit."""
        now = asyncio.get_running_loop().time()
        if self._market is not None and now - self._market[0] < _MARKET_KEPT_S:
            return self._market[1], self._market[2]
        block = await self.call("eth_getBlockByNumber", ["latest", False])
        base = block.get("baseFeePerGas")
        if base is None:
            price = number(await self.call("eth_gasPrice", []))
            market = Market(None, 0, price)
        else:
            market = Market(number(base), await self._priority_fee(), 0)
        self._market = now, market, number(block["gasLimit"])
        return market, self._market[2]

    async def _priority_fee(self) -> int:
        try:
            return number(await self.call("eth_maxPriorityFeePerGas", []))
        except RpcError:  # not every node supports the method
            return _PRIORITY_WEI


def number(value: Any) -> int:
    """Read a quantity of JSON-RPC.

    Raises:
        ChainUnavailableError: the value is not a quantity, so the endpoint is unusable.
    """
    try:
        return quantity(value)
    except MalformedAnswerError:
        raise _unusable(value) from None


def returned(value: Any) -> bytes:
    """Read bytes of JSON-RPC, at most `RESULT_LIMIT_BYTES`.

    Raises:
        ChainUnavailableError: the value is not bytes, or too large.
    """
    if isinstance(value, str) and len(value) > 2 + 2 * RESULT_LIMIT_BYTES:
        raise _unusable(value)
    try:
        return bytes.fromhex(hex_bytes(value)[2:])
    except MalformedAnswerError:
        raise _unusable(value) from None


def _unusable(value: Any) -> ChainUnavailableError:
    shown = value[:40] if isinstance(value, str) else type(value).__name__
    return ChainUnavailableError(chain="", reason=f"an endpoint answered {shown!r}")


def reason_of(error: RpcError) -> str:
    """Return why a node refused a call, with the contract's reason if it reverted."""
    data = error.data.get("data") if isinstance(error.data, dict) else error.data
    if isinstance(data, str) and data.startswith("0x"):
        try:
            return revert_reason(bytes.fromhex(data[2:]))
        except ValueError:
            return error.text
    return error.text or "refused without a reason"
