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
from fieldbrook.chain.blocks.omissions import Block, IsComplete, LogFilter, OmissionDetector
from fieldbrook.chain.blocks.ranges import BlockRange
from fieldbrook.chain.errors import (
    IncompleteAnswerError,
    MalformedAnswerError,
    RpcError,
    TooManyResultsError,
)
from fieldbrook.core.errors import ChainUnavailableError

if TYPE_CHECKING:
    from fieldbrook.chain.rpc.client import Answer, ChainClient
    from fieldbrook.chain.rpc.endpoint import Endpoint

log = logging.getLogger(__name__)

_ADDRESSES_LIMIT = 100  # addresses in one request; with more, all logs are requested
_INVALID_PARAMETERS = -32602


class LogFetcher:
    """Reads the logs of the chain `name`; `follower` knows the chain's newest blocks."""

    def __init__(self, name: str, client: ChainClient, follower: Follower) -> None:
        self._name = name
        self._client = client
        self._follower = follower
        self._range = BlockRange()
        self._by_hash = True  # until an endpoint refuses a query by block hash (EIP-234)
        self._omissions = OmissionDetector(name)

    @property
    def range_size(self) -> int:
        """How many old blocks to request at once."""
        return self._range.size

    async def fetch_recent(self, wanted: Sequence[LogFilter], first: int, last: int) -> list[Log]:
        """Return the logs of followed blocks, in the order of the chain.

        All logs belong to blocks with the followed hashes. Logs that an endpoint omitted are
        detected and requested again.

        Raises:
            ChainError, ChainUnavailableError: the logs cannot be read now; try again later.
        """
        blocks = range(first, last + 1)
        answers = await asyncio.gather(*(self._complete_block(number, wanted) for number in blocks))
        return _in_order(found for logs in answers for found in logs)

    async def fetch_range(
        self, wanted: Sequence[LogFilter], first: int, last: int
    ) -> list[Log] | None:
        """Return the logs of old blocks; None if the caller must ask for a smaller range.

        Raises:
            ChainError, ChainUnavailableError: the logs cannot be read now; try again later.
        """
        query = {"fromBlock": hex(first), "toBlock": hex(last), **_address_filter(wanted)}
        size = last - first + 1

        def is_in_range(found: Log) -> bool:
            return first <= found.block <= last

        try:
            logs: list[Log] = await self._client.call(
                "eth_getLogs", [query], checked=True, read=_only_requested(read_logs, is_in_range)
            )
        except TooManyResultsError:
            if not self._range.record_refusal(size):
                raise
            return None
        except ChainUnavailableError:
            self._range.record_failure(size)
            raise
        self._range.record_success(size, len(logs))
        return _in_order(logs)

    async def _complete_block(self, number: int, wanted: Sequence[LogFilter]) -> list[Log]:
        block_hash = self._follower.blocks[number]
        filter_ = _address_filter(wanted)
        answer = await self._fetch_block(number, block_hash, filter_)
        logs: list[Log] = answer.result
        block = Block(number, block_hash, await self._follower.bloom(self._client, number))

        async def fetch_all(receipts: bool, is_complete: IsComplete) -> list[Log]:
            fetch = self._receipts if receipts else self._all_logs
            return await fetch(block, is_complete, answer.endpoint)

        omitted = await self._omissions.find(block, wanted, logs, not filter_, fetch_all)
        if omitted:
            self._client.report_omission(answer.endpoint, f"it left out logs of block {number}")
        return logs + omitted

    async def _all_logs(
        self, block: Block, is_complete: IsComplete, other_than: Endpoint
    ) -> list[Log]:
        answer = await self._fetch_block(block.number, block.hash, {}, is_complete, other_than)
        return list(answer.result)

    async def _receipts(
        self, block: Block, is_complete: IsComplete, other_than: Endpoint
    ) -> list[Log]:
        read = _only_requested(read_receipts, _in_block(block.number, block.hash))
        params = [hex(block.number)]
        answer = await self._client.answer(
            "eth_getBlockReceipts",
            params,
            read=_only_complete(read, is_complete),
            other_than=other_than,
        )
        return list(answer.result)

    async def _fetch_block(
        self,
        number: int,
        block_hash: str,
        filter_: Mapping[str, Any],
        is_complete: IsComplete | None = None,
        other_than: Endpoint | None = None,
    ) -> Answer:
        read = _only_requested(read_logs, _in_block(number, block_hash))
        read = read if is_complete is None else _only_complete(read, is_complete)
        if self._by_hash:
            query = {"blockHash": block_hash, **filter_}
            try:
                return await self._client.answer(
                    "eth_getLogs", [query], read=read, other_than=other_than
                )
            except RpcError as error:
                if error.code != _INVALID_PARAMETERS:
                    raise
            log.info(
                "chain %s: an endpoint cannot query logs by block hash; block numbers are used",
                self._name,
            )
            self._by_hash = False
        query = {"fromBlock": hex(number), "toBlock": hex(number), **filter_}
        return await self._client.answer("eth_getLogs", [query], read=read, other_than=other_than)


def _in_block(number: int, block_hash: str) -> Callable[[Log], bool]:
    def is_in_block(found: Log) -> bool:
        return (found.block, found.block_hash) == (number, block_hash)

    return is_in_block


def _only_requested(
    read: Callable[[Any], list[Log]], is_requested: Callable[[Log], bool]
) -> Callable[[Any], list[Log]]:
    """Wrap `read` so that it refuses logs that were not requested."""

    def reading(raw: Any) -> list[Log]:
        logs = read(raw)
        if not all(is_requested(found) for found in logs):
            raise MalformedAnswerError("logs of blocks that were not requested")
        return logs

    return reading


def _only_complete(
    read: Callable[[Any], list[Log]], is_complete: IsComplete
) -> Callable[[Any], list[Log]]:
    """Wrap `read` for all logs of a block, so that unsuitable answers are incomplete.

    Logs of foreign contracts may have an unknown form. Such an answer counts as incomplete, not
    as malformed, so that the endpoint is not marked as failed.
    """

    def reading(raw: Any) -> list[Log]:
        try:
            logs = read(raw)
        except MalformedAnswerError as error:
            raise IncompleteAnswerError(str(error)) from None
        if not is_complete(logs):
            raise IncompleteAnswerError("fewer logs than the block's Bloom filter shows")
        return logs

    return reading


def _address_filter(wanted: Sequence[LogFilter]) -> dict[str, list[str]]:
    """Return a filter for the contracts; empty if there are too many."""
    addresses = sorted({each.address for each in wanted})
    return {"address": addresses} if len(addresses) <= _ADDRESSES_LIMIT else {}


def _in_order(logs: Iterable[Log]) -> list[Log]:
    """Remove duplicates and sort logs in the order of the chain."""
    found = {(entry.block, entry.index): entry for entry in logs}
    return [found[place] for place in sorted(found)]
