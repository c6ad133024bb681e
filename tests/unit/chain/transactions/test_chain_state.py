"""The fees that a new transaction is based on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fieldbrook.chain.errors import RpcError
from fieldbrook.chain.transaction import ContractCall, Market
from fieldbrook.chain.transactions.chain_state import ChainState
from fieldbrook.core.errors import ChainUnavailableError
from fieldbrook.core.settings.chain import read_chain
from tests.unit.chain.transactions.endpoint import AnyEndpoint

GWEI = 10**9
DEV = {"id": 31337, "name": "dev", "endpoint": "http://e"}


class Endpoint(AnyEndpoint):
    """An endpoint of a chain with these fees; None stands for a missing method or field."""

    def __init__(self, base_fee: int | None, suggested: int | None) -> None:
        self._base_fee, self._suggested = base_fee, suggested

    async def answer(self, method: str, params: list[Any]) -> Any:
        match method:
            case "eth_getBlockByNumber":
                fees = {} if self._base_fee is None else {"baseFeePerGas": hex(self._base_fee)}
                return {"gasLimit": hex(30_000_000), **fees}
            case "eth_gasPrice":
                return hex(7 * GWEI)
            case "eth_maxPriorityFeePerGas" if self._suggested is not None:
                return hex(self._suggested)
        raise RpcError(-32601, f"the method {method} does not exist")


def market(base_fee: int | None, suggested: int | None, **settings: Any) -> Market:
    chain = read_chain({**DEV, **settings})
    found, block_gas = asyncio.run(ChainState(chain, Endpoint(base_fee, suggested)).market())
    assert block_gas == 30_000_000
    return found


@pytest.mark.parametrize(
    ("suggested", "least", "offered"),
    [
        (2 * GWEI, None, 2 * GWEI),
        (None, None, GWEI),
        (2 * GWEI, 30 * GWEI, 30 * GWEI),
        (40 * GWEI, 30 * GWEI, 40 * GWEI),
        (None, 30 * GWEI, 30 * GWEI),
        (None, 0, 0),
        (3, 0, 3),
    ],
)
def test_the_priority_fee_is_what_the_endpoint_suggests_but_not_less_than_the_setting(
    suggested: int | None, least: int | None, offered: int
) -> None:
    assert market(5 * GWEI, suggested, priority_fee=least) == Market(5 * GWEI, offered, 0)


def test_blocks_without_a_base_fee_make_transactions_with_a_gas_price() -> None:
    assert market(None, 2 * GWEI) == Market(None, 0, 7 * GWEI)


def test_legacy_fees_are_a_gas_price_whatever_blocks_have() -> None:
    assert market(5 * GWEI, 2 * GWEI, fees="legacy") == Market(None, 0, 7 * GWEI)


class Refusing(AnyEndpoint):
    """An endpoint that refuses everything, like one that lacks the newest block."""

    async def answer(self, method: str, params: list[Any]) -> Any:
        raise RpcError(-32000, "header not found")


def test_only_a_refusal_of_the_call_itself_is_a_verdict_on_a_transaction() -> None:
    state = ChainState(read_chain(DEV), Refusing())
    for asking in (state.nonce_count("0x"), state.balance("0x"), state.market()):
        with pytest.raises(ChainUnavailableError, match="header not found"):
            asyncio.run(asking)
    with pytest.raises(RpcError, match="header not found"):
        asyncio.run(state.gas(ContractCall("0x" + "00" * 20, 0, b""), {}))
