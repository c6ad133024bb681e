"""The state of the chain that a new transaction depends on: fees, nonces, balances and gas."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from fieldbrook.chain.concurrency import gather_or_cancel
from fieldbrook.chain.errors import MalformedAnswerError, RpcError
from fieldbrook.chain.rpc.answers import hex_bytes, quantity
from fieldbrook.chain.rpc.request import unchanged
from fieldbrook.chain.transaction import ContractCall, Market, gas_limit, revert_reason
from fieldbrook.core.errors import ChainUnavailableError
from fieldbrook.core.settings import Chain

RESULT_LIMIT_BYTES = 4 << 20
"""Limit of the data that a contract call returns to a guest."""
_MARKET_KEPT_S = 2.0
_PRIORITY_WEI = 1_000_000_000  # priority fee if neither the endpoint nor the settings name one


class Rpc(Protocol):
    """The part of `chain.rpc.client.ChainClient` that this module uses."""

    async def call(
        self,
        method: str,
        params: list[Any],
        *,
        within_s: float | None = None,
        read: Callable[[Any], Any] = unchanged,
    ) -> Any: ...


class EachRpc(Rpc, Protocol):
    """The part of `ChainClient` that can also ask all endpoints."""

    async def ask_all(self, method: str, params: list[Any]) -> list[Any | RpcError]: ...


class ChainState:
    """Reads the state of the chain, for handlers and for transactions that are signed again.

    `within_s` is how long a handler waits for the answer; None means that no handler waits. Every
    method raises ChainUnavailableError if no endpoint gives a usable answer. `gas` raises RpcError
    if an endpoint refuses the call, because then the transaction itself is at fault. A refusal of
    any other request says nothing about the transaction: the endpoint may lack the newest block,
    for example. So it counts as no answer.
    """

    def __init__(self, chain: Chain, rpc: Rpc) -> None:
        self._chain = chain
        self._rpc = rpc
        self._market: tuple[float, Market, int] | None = None
        self._has_base_fee = chain.fees != "legacy"  # assumed until the first block is read

    async def nonce_count(self, address: str, within_s: float | None = None) -> int:
        """Return how many nonces an account has used, including those of pending transactions."""
        params = [address, "pending"]
        with self._no_verdict():
            return await self._number("eth_getTransactionCount", params, within_s)

    async def balance(self, address: str, within_s: float | None = None) -> int:
        """Return the balance of an account in wei."""
        params = [address, "latest"]
        with self._no_verdict():
            return await self._number("eth_getBalance", params, within_s)

    async def gas(
        self, call: ContractCall, fields: Mapping[str, str], within_s: float | None = None
    ) -> int:
        """Return the gas limit of a call: that of the guest, or an estimate with a margin."""
        if call.gas:
            return call.gas
        return gas_limit(await self._number("eth_estimateGas", [fields], within_s))

    async def market(self, within_s: float | None = None) -> tuple[Market, int]:
        """Return the chain's fees and the gas limit of a block, at most `_MARKET_KEPT_S` old."""
        now = asyncio.get_running_loop().time()
        if self._market is not None and now - self._market[0] < _MARKET_KEPT_S:
            return self._market[1], self._market[2]
        with self._no_verdict():
            market, block_gas = await self._read_market(within_s)
        self._market = now, market, block_gas
        return market, block_gas

    async def _read_market(self, within_s: float | None) -> tuple[Market, int]:
        # Concurrently, because a distant endpoint takes most of a second for each request.
        params = ["latest", False]
        asking = self._rpc.call("eth_getBlockByNumber", params, within_s=within_s, read=_read_fees)
        (base, block_gas), fee = await gather_or_cancel(asking, self._fee(within_s))
        has_base_fee = base is not None and self._chain.fees != "legacy"
        if has_base_fee is not self._has_base_fee:
            self._has_base_fee = has_base_fee
            fee = await self._fee(within_s)
        return Market(base, fee, 0) if has_base_fee else Market(None, 0, fee), block_gas

    async def _fee(self, within_s: float | None) -> int:
        """Return the priority fee to offer; on a chain without base fees, the gas price."""
        if not self._has_base_fee:
            return await self._number("eth_gasPrice", [], within_s)
        least = self._chain.priority_fee
        try:
            return max(least or 0, await self._number("eth_maxPriorityFeePerGas", [], within_s))
        except RpcError:  # not every node supports the method
            return _PRIORITY_WEI if least is None else least

    @contextlib.contextmanager
    def _no_verdict(self) -> Iterator[None]:
        try:
            yield
        except RpcError as error:
            reason = f"an endpoint refused a request for the chain's state: {error.text}"
            raise ChainUnavailableError(chain=self._chain.id, reason=reason) from error

    async def _number(self, method: str, params: list[Any], within_s: float | None) -> int:
        answer = await self._rpc.call(method, params, within_s=within_s, read=quantity)
        return int(answer)


def _read_fees(raw: Any) -> tuple[int | None, int]:
    """Parse the base fee of a block (None if it has none) and its gas limit."""
    if not isinstance(raw, Mapping):
        raise MalformedAnswerError("the block is not an object")
    base = raw.get("baseFeePerGas")
    return None if base is None else quantity(base), quantity(raw.get("gasLimit"))


def returned(value: Any) -> bytes:
    """Parse the result of a contract call, at most `RESULT_LIMIT_BYTES`.

    Raises:
        ChainUnavailableError: the value is not a byte string, or it is too large.
    """
    if isinstance(value, str) and len(value) > 2 + 2 * RESULT_LIMIT_BYTES:
        raise _unusable(value)
    try:
        return bytes.fromhex(hex_bytes(value)[2:])
    except MalformedAnswerError:
        raise _unusable(value) from None


def _unusable(value: Any) -> ChainUnavailableError:
    shown = value[:40] if isinstance(value, str) else type(value).__name__
    return ChainUnavailableError(
        chain="", reason=f"an endpoint returned an unusable value {shown!r}"
    )


def reason_of(error: RpcError) -> str:
    """Return why an endpoint refused a call, with the contract's reason if the call reverted."""
    data = error.data.get("data") if isinstance(error.data, dict) else error.data
    if isinstance(data, str) and data.startswith("0x"):
        try:
            return revert_reason(bytes.fromhex(data[2:]))
        except ValueError:
            return error.text
    return error.text or "refused without a reason"
