"""A chain that tests fork, and that can return to earlier blocks."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from dataclasses import dataclass
from typing import Any

from fieldbrook.chain.blocks.bloom import bloom_of
from fieldbrook.chain.blocks.logs import read_log
from fieldbrook.chain.rpc.answers import BLOOM_BYTES
from tests.chain.evm import CHAIN_ID, word

ADDRESS = "0x" + "f0" * 20
TOPIC = "0x" + "ab" * 32


@dataclass(frozen=True)
class Block:
    """One block; its logs have the numbers `logs` as their argument."""

    number: int
    hash: str
    parent: str
    logs: tuple[int, ...] = ()


class ForkedChain:
    """Answers like a node whose newest blocks are `chain`. A transport: see `chain.rpc.transport`.

    `asked` counts requests by method. The logs of the newest `logs_behind` blocks are not available
    yet, as when another node behind an address answers.
    """

    def __init__(self, height: int, *, hashless: bool = False) -> None:
        """`hashless`: queries for logs by the hash of a block are not supported."""
        self.asked: Counter[str] = Counter()
        self.logs_behind = 0
        self._hashless = hashless
        self._words = itertools.count()
        self._numbers = itertools.count(1)
        self.chain: list[Block] = [Block(0, self._hash(), "0x" + "00" * 32)]
        self.grow(*[0] * height)

    def grow(self, *logs: int) -> None:
        """Append a block for each number, with that many logs."""
        for count in logs:
            top = self.chain[-1]
            numbers = tuple(next(self._numbers) for _ in range(count))
            self.chain.append(Block(top.number + 1, self._hash(), top.hash, numbers))

    def fork(self, depth: int) -> list[Block]:
        """Remove the last blocks and return them."""
        taken = self.chain[-depth:]
        del self.chain[-depth:]
        return taken

    def logs(self) -> list[int]:
        """Return the numbers of all logs on the chain."""
        return [number for block in self.chain for number in block.logs]

    async def request(self, method: str, params: list[Any]) -> dict[str, Any]:
        self.asked[method] += 1
        match method:
            case "eth_chainId":
                return {"result": hex(CHAIN_ID)}
            case "eth_getBlockByNumber":
                number = self.chain[-1].number if params[0] == "latest" else int(params[0], 16)
                known = number < len(self.chain)
                return {"result": self._json(self.chain[number]) if known else None}
            case "eth_getTransactionByHash":
                return {"result": self._transaction(params[0])}
            case "eth_getLogs":
                return self._logs(params[0])
            case "eth_getBlockReceipts":
                logs = self._logs({"fromBlock": params[0], "toBlock": params[0]})["result"]
                return {"result": [{"logs": logs}]}
        raise AssertionError(method)

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def _logs(self, query: dict[str, Any]) -> dict[str, Any]:
        if "blockHash" in query and self._hashless:
            return {"error": {"code": -32602, "message": "invalid filter"}}
        if "blockHash" in query:
            known = self.chain[: len(self.chain) - self.logs_behind]
            blocks = [block for block in known if block.hash == query["blockHash"]]
            if not blocks:
                return {"error": {"code": -32000, "message": "unknown block"}}
        else:
            first, last = int(query["fromBlock"], 16), int(query["toBlock"], 16)
            blocks = self.chain[first : last + 1]
        return {"result": [self._log(b, n, i) for b in blocks for i, n in enumerate(b.logs)]}

    def bloom(self, block: Block) -> int:
        """Return the Bloom filter of a block's header."""
        return bloom_of(read_log(self._log(block, n, i)) for i, n in enumerate(block.logs))

    def _json(self, block: Block) -> dict[str, Any]:
        return {
            "logsBloom": f"0x{self.bloom(block):0{2 * BLOOM_BYTES}x}",
            "number": hex(block.number),
            "hash": block.hash,
            "parentHash": block.parent,
            "transactions": [block.hash],
        }

    def _transaction(self, tx_hash: str) -> dict[str, Any] | None:
        """Return a transaction; each block has one, and its hash is that of the block."""
        for block in self.chain:
            if block.hash == tx_hash:
                place = {"blockNumber": hex(block.number), "transactionIndex": "0x0"}
                return {"hash": tx_hash, "blockHash": block.hash, **place}
        return None

    def _log(self, block: Block, number: int, index: int) -> dict[str, Any]:
        return {
            "address": ADDRESS,
            "topics": [TOPIC, word(number)],
            "data": "0x",
            "blockNumber": hex(block.number),
            "transactionHash": block.hash,
            "transactionIndex": "0x0",
            "blockHash": block.hash,
            "logIndex": hex(index),
            "removed": False,
        }

    def _hash(self) -> str:
        return "0x" + hashlib.sha256(b"%d" % next(self._words)).hexdigest()
