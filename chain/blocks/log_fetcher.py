"""Fetch logs from a chain's endpoints.

Recent blocks, which may still vanish, are read one by one by their hashes. Older blocks are read
in ranges as large as an endpoint allows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fieldbrook.chain.blocks.follower import Follower
from fieldbrook.chain.blocks.logs import Log, read_logs, read_receipts
from fieldbrook.chain.blocks.omissions import Block, IsWhole, Omissions, Wanted
from fieldbrook.chain.blocks.ranges import BlockRange
from fieldbrook.chain.errors import (
    IncompleteAnswerError,
    MalformedAnswerError,
    RpcError,
    TooManyResultsError,
)
from fieldbrook.core.errors import ChainUnavailableError

if TYPE_CHECKING:
    from fieldbrook.chain.rpc.client import Answered, ChainClient, Endpoint

log = logging.getLogger(__name__)

_ADDRESSES_LIMIT = 100  # addresses in one request; with more, all logs are requested
_INVALID_PARAMETERS = -32602


class LogReader:
    """Reads the logs of the chain `name`; `follower` knows the chain's newest blocks."""

    def __init__(self, name: str, client: ChainClient, follower: Follower) -> None:
        self._name = name
        self._client = client
        self._follower = follower
        self._range = BlockRange()
        self._by_hash = True  # until an endpoint refuses a query by block hash (EIP-234)
        self._omissions = Omissions(name)

    @property
    def range_size(self) -> int:
        """How many old blocks to request at once."""
        return self._range.size

    async def of_newest(self, wanted: Sequence[Wanted], first: int, last: int) -> list[Log]:
        """Return the logs of followed blocks, in the order of the chain.

        All logs belong to blocks with the followed hashes. Logs that an endpoint omitted are
        detected and requested again.

        Raises:
            ChainError, ChainUnavailableError: the logs cannot be read now; try again later.
        """
        blocks = range(first, last + 1)
        answers = await asyncio.gather(*(self._of_block(number, wanted) for number in blocks))
        return _in_order(found for logs in answers for found in logs)

    async def of_range(self, wanted: Sequence[Wanted], first: int, last: int) -> list[Log] | None:
        """Return the logs of old blocks; None if the caller must ask for a smaller range.

        Raises:
            ChainError, ChainUnavailableError: the logs cannot be read now; try again later.
        """
        asked = {"fromBlock": hex(first), "toBlock": hex(last), **_addresses(wanted)}
        size = last - first + 1

        def is_in_it(found: Log) -> bool:
            return first <= found.block <= last

        try:
            logs: list[Log] = await self._client.call(
                "eth_getLogs", [asked], checked=True, read=_reading(read_logs, is_in_it)
            )
        except TooManyResultsError:
            if not self._range.refused(size):
                raise
            return None
        except ChainUnavailableError:
            self._range.failed(size)
            raise
        self._range.took(size, len(logs))
        return _in_order(logs)

    async def _of_block(self, number: int, wanted: Sequence[Wanted]) -> list[Log]:
        block_hash = self._follower.blocks[number]
        asked = _addresses(wanted)
        answered = await self._by_its_hash(number, block_hash, asked)
        logs: list[Log] = answered.result
        block = Block(number, block_hash, await self._follower.bloom(self._client, number))

        async def again(receipts: bool, is_whole: IsWhole) -> list[Log]:
            ask = self._receipts if receipts else self._all_logs
            return await ask(block, is_whole, answered.endpoint)

        left_out = await self._omissions.find(block, wanted, logs, not asked, again)
        if left_out:
            self._client.left_out(answered.endpoint, f"left out logs of block {number}")
        return logs + left_out

    async def _all_logs(self, block: Block, is_whole: IsWhole, unlike: Endpoint) -> list[Log]:
        answered = await self._by_its_hash(block.number, block.hash, {}, is_whole, unlike)
        return list(answered.result)

    async def _receipts(self, block: Block, is_whole: IsWhole, unlike: Endpoint) -> list[Log]:
        read = _reading(read_receipts, _is_of(block.number, block.hash))
        params = [hex(block.number)]
        answered = await self._client.answer(
            "eth_getBlockReceipts", params, read=_reading_all(read, is_whole), unlike=unlike
        )
        return list(answered.result)

    async def _by_its_hash(
        self,
        number: int,
        block_hash: str,
        asked: Mapping[str, Any],
        is_whole: IsWhole | None = None,
        unlike: Endpoint | None = None,
    ) -> Answered:
        read = _reading(read_logs, _is_of(number, block_hash))
        read = read if is_whole is None else _reading_all(read, is_whole)
        if self._by_hash:
            query = {"blockHash": block_hash, **asked}
            try:
                return await self._client.answer("eth_getLogs", [query], read=read, unlike=unlike)
            except RpcError as error:
                if error.code != _INVALID_PARAMETERS:
                    raise
            log.info("chain %s: logs are asked for by numbers of blocks", self._name)
            self._by_hash = False
        query = {"fromBlock": hex(number), "toBlock": hex(number), **asked}
        return await self._client.answer("eth_getLogs", [query], read=read, unlike=unlike)


def _is_of(number: int, block_hash: str) -> Callable[[Log], bool]:
    def is_of_it(found: Log) -> bool:
        return (found.block, found.block_hash) == (number, block_hash)

    return is_of_it


def _reading(
    read: Callable[[Any], list[Log]], is_asked_for: Callable[[Log], bool]
) -> Callable[[Any], list[Log]]:
    """Wrap `read` so that it refuses logs that were not requested."""

    def reading(raw: Any) -> list[Log]:
        logs = read(raw)
        if not all(is_asked_for(found) for found in logs):
            raise MalformedAnswerError("logs of other blocks than were asked for")
        return logs

    return reading


def _reading_all(read: Callable[[Any], list[Log]], is_whole: IsWhole) -> Callable[[Any], list[Log]]:
    """Wrap `read` for all logs of a block, so that unsuitable answers are incomplete.

    Logs of foreign contracts may have an unknown form. Such an answer counts as incomplete, not
    as malformed, so that the endpoint is not marked as failed.
    """

    def reading(raw: Any) -> list[Log]:
        try:
            logs = read(raw)
        except MalformedAnswerError as error:
            raise IncompleteAnswerError(str(error)) from None
        if not is_whole(logs):
            raise IncompleteAnswerError("fewer logs than the block's header tells of")
        return logs

    return reading


def _addresses(wanted: Sequence[Wanted]) -> dict[str, list[str]]:
    """Return a filter for the contracts; empty if there are too many."""
    addresses = sorted({each.address for each in wanted})
    return {"address": addresses} if len(addresses) <= _ADDRESSES_LIMIT else {}


def _in_order(logs: Iterable[Log]) -> list[Log]:
    """Remove duplicates and sort logs in the order of the chain."""
    found = {(entry.block, entry.index): entry for entry in logs}
    return [found[place] for place in sorted(found)]
