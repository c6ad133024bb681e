"""Endpoints that omit logs, and blocks whose headers say little about their logs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from fieldbrook.chain.blocks.bloom import bits_of, bits_of_filter, bloom_of, holds
from fieldbrook.chain.blocks.logs import read_log
from fieldbrook.chain.rpc.answers import FULL_BLOOM
from tests.chain.evm import word
from tests.chain.forked import ADDRESS, TOPIC, Block, ForkedChain

BY_CONTRACT, ALL, RECEIPTS = "by contract", "all", "receipts"
"""How the logs of a block are asked for."""


class Forgetful(ForkedChain):
    """Answers like its chain, but without logs for kinds of queries for which `forgets` returns
    True; `queries` are the kinds of all queries for logs."""

    def __init__(self, height: int, **more: Any) -> None:
        super().__init__(height, **more)
        self.forgets: Callable[[str], bool] = lambda _how: False
        self.queries: list[str] = []

    async def request(self, method: str, params: list[Any]) -> dict[str, Any]:
        answer = await super().request(method, params)
        how = _how(method, params)
        if how is None:
            return answer
        self.queries.append(how)
        return {"result": []} if self.forgets(how) else answer


def _how(method: str, params: list[Any]) -> str | None:
    match method:
        case "eth_getBlockReceipts":
            return RECEIPTS
        case "eth_getLogs":
            return BY_CONTRACT if "address" in params[0] else ALL
    return None


class Strange(Forgetful):
    """A chain with logs of an unknown form, which only queries for all logs return, and headers
    with all bits of the filter but one."""

    async def request(self, method: str, params: list[Any]) -> dict[str, Any]:
        answer = await super().request(method, params)
        how = _how(method, params)
        if how == ALL:
            answer["result"] = [*answer["result"], {"address": "system"}]
        elif how == RECEIPTS:
            answer["result"] = None
        return answer

    def bloom(self, block: Block) -> int:
        return FULL_BLOOM >> 1


class Busy(Forgetful):
    """A chain in which logs of other contracts set all bits of the watched log in each block: only
    a query for all logs can show that the watched log is absent."""

    async def request(self, method: str, params: list[Any]) -> dict[str, Any]:
        answer = await super().request(method, params)
        if _how(method, params) == ALL:
            block = next(b for b in self.chain if b.hash == params[0]["blockHash"])
            answer["result"] = [*answer["result"], *self._others(block)]
        return answer

    def bloom(self, block: Block) -> int:
        return super().bloom(block) | bloom_of(read_log(log) for log in self._others(block))

    def _others(self, block: Block) -> list[dict[str, Any]]:
        return [
            self._log(block, 0, 100 + n) | {"address": "0x" + "0e" * 20, "topics": [topic]}
            for n, topic in enumerate(_TOPICS)
        ]


def _covering(bits: int) -> list[str]:
    """Return topics that together set all of these bits."""
    found: list[str] = []
    have = 0
    for topic in map(word, itertools.count(1)):
        new = bits_of(topic) & bits & ~have
        if new:
            found.append(topic)
            have |= new
        if holds(have, bits):
            return found
    raise AssertionError


_TOPICS = _covering(bits_of_filter(ADDRESS, [TOPIC]))
