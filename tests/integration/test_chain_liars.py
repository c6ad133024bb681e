"""Endpoints with impossible answers: monitors continue without errors."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.chain.monitors import watch
from fieldbrook.chain.rpc import endpoint
from tests.chain.forked import ADDRESS, TOPIC, ForkedChain
from tests.chain.liar import Liar
from tests.chain.world import eventually, world_over


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Call a failed endpoint again at once."""
    monkeypatch.setattr(endpoint, "_PAUSES_S", (0.0, 0.01))
    monkeypatch.setattr(endpoint, "_ALONE_PAUSES_S", (0.0,))
    monkeypatch.setattr(endpoint, "_OTHER_CHAIN_PAUSE_S", 0.01)
    monkeypatch.setattr(watch, "_PAUSES_S", (0.01,))


@pytest.mark.parametrize("seed", range(5))
async def test_whatever_an_endpoint_makes_up_nothing_is_told_that_is_not_there(
    tmp_path: Path, seed: int, impatient: None, caplog: pytest.LogCaptureFixture
) -> None:
    chain = Liar(40, seed)
    chain.grow(1, 2, 0, 3)
    world = world_over(tmp_path, chain)
    world.logs(ADDRESS, [TOPIC])
    world.transaction(chain.chain[-1].hash)
    async with world.running() as service:
        await eventually(lambda: service._follower.blocks)
        chain.honest = False
        for _ in range(5):
            chain.grow(0, 1, 2)
            told = chain.told
            await eventually(lambda told=told: chain.told > told + 8)  # type: ignore[misc]
            assert not service._tasks[0].done(), "it goes on"
        chain.honest = True
        await eventually(lambda: Counter(world.numbers()) == Counter(chain.logs()))
        await eventually(lambda: world.payloads("MINED"))
        await eventually(lambda: world.store.state().error == "")
    assert world.numbers() == chain.logs(), "in order, each once"
    assert world.numbers("SEEN_REMOVED") == []
    assert "failed" not in [record.message for record in caplog.records]
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


class Crooked:
    """Another view of a chain, with one wrong answer."""

    def __init__(self, chain: ForkedChain, method: str, bend: Any) -> None:
        self._chain, self._method, self._bend = chain, method, bend
        self.bent = 0

    async def request(self, method: str, params: list[Any]) -> dict[str, Any]:
        answer = await self._chain.request(method, params)
        if method != self._method:
            return answer
        bent = self._bend(params, answer["result"])
        self.bent += bent != answer["result"]
        return {"result": bent}

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


def _far(params: list[Any], block: Any) -> Any:
    return {**block, "number": hex(1 << 40)} if params[0] == "latest" else block


@pytest.mark.parametrize(
    ("method", "bend", "reason"),
    [
        (
            "eth_getLogs",
            lambda _params, logs: [{**log, "blockHash": "0x" + "00" * 32} for log in logs],
            "logs of blocks that were not requested",
        ),
        ("eth_getLogs", lambda _params, _logs: {"logs": 1}, "the logs are not a list"),
        (
            "eth_getLogs",
            lambda _params, logs: [{**log, "logIndex": "0x100000000"} for log in logs],
            "a value is not a hexadecimal number within its limit",
        ),
        (
            "eth_getBlockByNumber",
            lambda _params, block: block and {**block, "transactions": 5},
            "the transactions of a block are not a list",
        ),
        ("eth_getBlockByNumber", _far, "is missing, although a newer one is known"),
        (
            "eth_getTransactionByHash",
            lambda _params, found: found and {**found, "hash": "0x" + "12" * 32},
            "it is not the requested transaction",
        ),
        (
            "eth_getTransactionByHash",
            lambda _params, _found: ["x"],
            "the transaction is not an object",
        ),
    ],
)
async def test_when_the_preferred_endpoint_says_what_cannot_be_the_next_one_is_asked(
    tmp_path: Path,
    method: str,
    bend: Any,
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    chain = ForkedChain(50)
    chain.grow(1, 2)
    crooked = Crooked(chain, method, bend)
    world = world_over(tmp_path, crooked, chain)
    world.logs(ADDRESS, [TOPIC])
    world.transaction(chain.chain[-1].hash)
    async with world.running():
        await eventually(lambda: world.payloads("MINED") and len(world.numbers()) == 3)
        chain.grow(2)
        await eventually(lambda: len(world.numbers()) == 5)
    assert crooked.bent
    assert world.numbers() == chain.logs()
    assert reason in caplog.text, "who asks is told why it is not used"
