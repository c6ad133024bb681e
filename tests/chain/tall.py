"""A computed chain of very many blocks, behind an endpoint with limits."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any

from tests.chain.evm import CHAIN_ID, word

ADDRESS = "0x" + "c0" * 20
_TOPIC = "0x" + "ee" * 32


class TallChain:
    """Answers like a node of a chain of `height` blocks; one of `every` blocks has `each` logs.

    Queries over more than `range_limit` blocks, or with more than `logs_limit` logs, are refused
    with error texts of public endpoints. A transport: see `chain.rpc.transport`.
    """

    def __init__(
        self,
        height: int = 100_000,
        every: int = 97,
        each: int = 3,
        range_limit: int = 2_000,
        logs_limit: int = 40,
    ) -> None:
        self.height, self.every, self.each = height, every, each
        self.range_limit, self.logs_limit = range_limit, logs_limit
        self.asked: Counter[str] = Counter()
        self.headers: set[int] = set()  # numbers of the blocks that were requested by number
        self.refused = 0

    async def request(self, method: str, params: list[Any]) -> dict[str, Any]:
        self.asked[method] += 1
        match method:
            case "eth_chainId":
                return {"result": hex(CHAIN_ID)}
            case "eth_getBlockByNumber":
                number = self.height if params[0] == "latest" else int(params[0], 16)
                self.headers |= {number} if params[0] != "latest" else set()
                return {"result": self._block(number)}
            case "eth_getLogs":
                return self._logs(params[0])
        raise AssertionError(method)

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def numbers(self, first: int = 1) -> list[int]:
        """Return the numbers of the logs from a block on."""
        return [
            number * 10 + n
            for number in range(first, self.height + 1)
            if number % self.every == 0
            for n in range(self.each)
        ]

    def _block(self, number: int) -> dict[str, Any]:
        return {
            "number": hex(number),
            "hash": _hash(number),
            "parentHash": _hash(number - 1),
            "transactions": [],
        }

    def _logs(self, query: dict[str, Any]) -> dict[str, Any]:
        if "blockHash" in query:
            asked = query["blockHash"]
            near = range(self.height - 200, self.height + 1)
            blocks = [number for number in near if _hash(number) == asked]
        else:
            first, last = int(query["fromBlock"], 16), int(query["toBlock"], 16)
            if last - first + 1 > self.range_limit:
                self.refused += 1
                text = f"exceed maximum block range: {self.range_limit}"
                return {"error": {"code": -32602, "message": text}}
            blocks = [n for n in range(first, last + 1) if n % self.every == 0]
        logs = [self._log(number, n) for number in blocks for n in range(self._in(number))]
        if len(logs) > self.logs_limit:
            self.refused += 1
            text = f"query returned more than {self.logs_limit} results"
            return {"error": {"code": -32005, "message": text}}
        return {"result": logs}

    def _in(self, number: int) -> int:
        return self.each if number % self.every == 0 else 0

    def _log(self, block: int, n: int) -> dict[str, Any]:
        return {
            "address": ADDRESS,
            "topics": [_TOPIC, word(block * 10 + n)],
            "data": "0x",
            "blockNumber": hex(block),
            "transactionHash": _hash(-block - 1),
            "transactionIndex": "0x0",
            "blockHash": _hash(block),
            "logIndex": hex(n),
            "removed": False,
        }


def _hash(number: int) -> str:
    return "0x" + hashlib.sha256(str(number).encode()).hexdigest()
