"""Fetches logs from a chain's endpoints.

The logs of recent blocks, which may still vanish, are requested block by block by their hashes.
The logs of older blocks are requested in ranges as large as an endpoint allows. Small ranges are
requested concurrently.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from fieldbrook.chain.blocks.checks import Range, RangeChecks
from fieldbrook.chain.blocks.follower import Follower
from fieldbrook.chain.blocks.logs import Log, read_logs, read_receipts
from fieldbrook.chain.blocks.omissions import Block, IsComplete, LogFilter, OmissionDetector
from fieldbrook.chain.blocks.ranges import FIRST, BlockRange
from fieldbrook.chain.concurrency import gather_or_cancel
from fieldbrook.chain.errors import (
    CHAIN_FAILURES,
    ChainError,
    IncompleteAnswerError,
    MalformedAnswerError,
    RpcError,
    UnknownBlockError,
)
from fieldbrook.chain.rpc.request import Request
from fieldbrook.core.errors import ChainUnavailableError
from fieldbrook.core.providers import provider_of
from fieldbrook.core.settings import Chain

if TYPE_CHECKING:
    from fieldbrook.chain.rpc.client import ChainClient
    from fieldbrook.chain.rpc.endpoint import Endpoint
    from fieldbrook.chain.rpc.search import Answer

log = logging.getLogger(__name__)

_ADDRESSES_LIMIT = 100  # addresses in one request; with more, all logs are requested
_INVALID_REQUEST, _INVALID_PARAMETERS = -32600, -32602
_CONCURRENT_RANGES = 8
_CONCURRENT_BLOCKS = 4_000  # blocks in all ranges that are requested at the same time
_REQUESTS_OF_SPAN = 4  # most requests for one span; the rest of the span is read later
_MUCH_LARGER = 10  # wait for an endpoint whose range is this many times larger
_KEPT_LOGS = 20_000  # cached logs of recent blocks
# Numbers of logs at which endpoints may truncate an answer silently. Older versions of iotex-core
# do so after 1,000.
_CUT_AT = (1_000, 5_000, 10_000)


@dataclass(frozen=True, slots=True)
class _Read:
    """The cached logs of a block from some contracts; from all if `addresses` is None."""

    addresses: frozenset[str] | None
    logs: list[Log]

    def covers(self, addresses: frozenset[str]) -> bool:
        return self.addresses is None or addresses <= self.addresses


class _Span(NamedTuple):
    """The logs of consecutive blocks up to `end`.

    `endpoints` are the endpoints that returned the logs; `failure` is the reason to stop at `end`,
    if any.
    """

    logs: list[Log]
    end: int
    endpoints: set[Endpoint]
    failure: ChainError | ChainUnavailableError | None = None


class Recent(NamedTuple):
    """The logs of recent blocks up to `end`, and the reason to stop there, if any."""

    logs: list[Log]
    end: int
    failure: Exception | None = None


class LogFetcher:
    """Reads the logs of a chain; `follower` has the chain's newest blocks."""

    def __init__(self, chain: Chain, client: ChainClient, follower: Follower) -> None:
        self._chain = chain
        self._client = client
        self._follower = follower
        self._ranges: dict[Endpoint, BlockRange] = {}
        self._by_hash = True  # until an endpoint refuses a query by block hash (EIP-234)
        self._omissions = OmissionDetector(chain.name)
        self._read: dict[str, _Read] = {}  # logs of recent blocks, by block hash
        self._checks = RangeChecks(
            chain.name, client, self._omissions, self._range_request, self._fetch_all
        )

    async def fetch_recent(self, wanted: Sequence[LogFilter], first: int, last: int) -> Recent:
        """Return the logs of followed blocks, in the order of the chain, up to the first failure.

        All logs belong to blocks with the followed hashes. Logs that an endpoint omitted are
        detected and requested again. If a block cannot be read, the logs of later blocks stay in
        the cache for the next call.

        Args:
            wanted: the filters of all monitors, so that each block is requested only once.
            first: the first block.
            last: the last block.
        """
        self._forget_old_blocks()
        # The hashes are looked up now: a reorganisation may remove blocks before the tasks begin.
        hashes = [self._follower.blocks[number] for number in range(first, last + 1)]
        reading = [self._block(first + at, each, wanted) for at, each in enumerate(hashes)]
        logs: list[Log] = []
        for number, found in enumerate(await asyncio.gather(*reading, return_exceptions=True)):
            if isinstance(found, CHAIN_FAILURES):
                return Recent(_in_order(logs), first + number - 1, found)
            if isinstance(found, BaseException):
                raise found
            logs += found
        return Recent(_in_order(logs), last)

    async def fetch_range(
        self, wanted: Sequence[LogFilter], first: int, last: int
    ) -> tuple[list[Log], int]:
        """Return the logs of old blocks, and the last block that was read.

        Raises:
            ChainError, ChainUnavailableError: the logs cannot be read now; try again later.
        """
        filter_ = _address_filter(wanted)
        range_ = self._next_range(last - first + 1)
        size = range_.size
        # The endpoint may refuse a size that it has not answered yet: request one range first.
        at_once = max(1, min(_CONCURRENT_RANGES, _CONCURRENT_BLOCKS // size))
        count = at_once if range_.is_proven else 1
        starts = range(first, min(last + 1, first + count * size), size)
        reading = (
            self._span(Range(filter_, wanted, start, min(last, start + size - 1)))
            for start in starts
        )
        logs: list[Log] = []
        read: set[Endpoint] = set()
        end = first - 1
        for start, span in zip(starts, await gather_or_cancel(*reading), strict=True):
            if start != end + 1:  # the previous span was read only in part
                break
            logs += span.logs
            read |= span.endpoints
            end = span.end
            if span.failure is not None and end < first:
                raise span.failure
        for endpoint in read:
            await self._client.confirm(endpoint)
        return _in_order(logs), end

    async def _span(self, asked: Range) -> _Span:
        """Read a range of blocks in requests that fit the endpoint's limits.

        The result may end before the range does; see `_REQUESTS_OF_SPAN` and `_Span.failure`.
        """
        logs: list[Log] = []
        endpoints: set[Endpoint] = set()
        first, last = asked.first, asked.last
        for _ in range(_REQUESTS_OF_SPAN):
            if first > last:
                break
            make = partial(self._range_request, asked.filter_, first, last)
            try:
                prefers = partial(self._gives_large_ranges, last - first + 1)
                answer = await self._client.answer(make, prefers=prefers)
                end = int(answer.request.params[0]["toBlock"], 16)
                range_ = self._range_of(answer.endpoint)
                range_.record_success(end - first + 1, len(answer.result))
                part = asked._replace(first=first, last=end)
                logs += await self._checks.complete(part, answer)
            except CHAIN_FAILURES as failure:
                return _Span(logs, first - 1, endpoints, failure)
            endpoints.add(answer.endpoint)
            first = end + 1
        return _Span(logs, first - 1, endpoints)

    def _range_request(
        self, filter_: Mapping[str, Any], first: int, last: int, endpoint: Endpoint
    ) -> Request:
        """Make a request for at most as many blocks as the endpoint is expected to allow."""
        range_ = self._range_of(endpoint)
        most = self._checks.most_blocks(endpoint) or range_.size
        last = min(last, first + min(range_.size, most) - 1)
        size = last - first + 1

        def is_in_range(found: Log) -> bool:
            return first <= found.block <= last

        return Request(
            "eth_getLogs",
            [{"fromBlock": hex(first), "toBlock": hex(last), **filter_}],
            read=_only_whole(_only_requested(read_logs, is_in_range), size),
            shrink=(lambda text: range_.record_refusal(size, text)) if size > 1 else None,
        )

    def _next_range(self, blocks: int) -> BlockRange:
        """Return the block range of the endpoint that gets the next request."""
        ranges = [self._range_of(endpoint) for endpoint in self._client.candidates()]
        most = min(blocks, max((range_.size for range_ in ranges), default=0))
        none = BlockRange(FIRST, self._chain.log_range)
        return next((range_ for range_ in ranges if most <= _MUCH_LARGER * range_.size), none)

    def _gives_large_ranges(self, blocks: int, endpoint: Endpoint) -> bool:
        """Return whether no other endpoint would read these blocks with far fewer requests."""
        own = self._range_of(endpoint).size
        most = max(range_.size for range_ in self._ranges.values())
        return min(blocks, most) <= _MUCH_LARGER * own

    def _range_of(self, endpoint: Endpoint) -> BlockRange:
        """Return the block range of an endpoint, initially with the known limit of its provider."""
        if endpoint not in self._ranges:
            provider = provider_of(endpoint.name)
            first = FIRST if provider is None else provider.log_range
            self._ranges[endpoint] = BlockRange(first, self._chain.log_range)
        return self._ranges[endpoint]

    def _forget_old_blocks(self) -> None:
        """Remove cached logs: first of blocks that are no longer followed, then of the oldest
        blocks."""
        followed = {self._follower.blocks[n] for n in self._follower.blocks}
        self._read = {h: read for h, read in self._read.items() if h in followed}
        kept = sum(len(read.logs) for read in self._read.values())
        for block_hash in list(self._read):
            if kept <= _KEPT_LOGS:
                return
            kept -= len(self._read.pop(block_hash).logs)

    async def _block(self, number: int, block_hash: str, wanted: Sequence[LogFilter]) -> list[Log]:
        addresses = frozenset(each.address for each in wanted)
        known = self._read.get(block_hash)
        if known is None or not known.covers(addresses):
            logs = await self._complete_block(number, block_hash, wanted)
            all_read = len(addresses) > _ADDRESSES_LIMIT
            known = self._read[block_hash] = _Read(None if all_read else addresses, logs)
        return known.logs

    async def _complete_block(
        self, number: int, block_hash: str, wanted: Sequence[LogFilter]
    ) -> list[Log]:
        filter_ = _address_filter(wanted)
        answer = await self._fetch_block(number, block_hash, filter_)
        logs: list[Log] = answer.result
        block = Block(number, block_hash, await self._follower.bloom(self._client, number))

        async def fetch_all(receipts: bool, is_complete: IsComplete) -> list[Log]:
            return await self._fetch_all(block, receipts, is_complete, answer.endpoint)

        omitted = await self._omissions.find(block, wanted, logs, not filter_, fetch_all)
        if omitted:
            self._client.report_omission(answer.endpoint, f"it omitted logs of block {number}")
        return logs + omitted

    async def _fetch_all(
        self, block: Block, receipts: bool, is_complete: IsComplete, other_than: Endpoint
    ) -> list[Log]:
        """Request all logs of a block, from its receipts or by its hash."""
        fetch = self._receipts if receipts else self._all_logs
        return await fetch(block, is_complete, other_than)

    async def _all_logs(
        self, block: Block, is_complete: IsComplete, other_than: Endpoint
    ) -> list[Log]:
        answer = await self._fetch_block(block.number, block.hash, {}, is_complete, other_than)
        return list(answer.result)

    async def _receipts(
        self, block: Block, is_complete: IsComplete, other_than: Endpoint
    ) -> list[Log]:
        read = _only_requested(read_receipts, _in_block(block.number, block.hash))
        request = Request(
            "eth_getBlockReceipts", [hex(block.number)], read=_only_complete(read, is_complete)
        )
        answer = await self._client.answer(lambda _: request, other_than=other_than)
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
            params = [{"blockHash": block_hash, **filter_}]
            query = Request("eth_getLogs", params, read)
            try:
                return await self._client.answer(lambda _: query, other_than=other_than)
            except UnknownBlockError:  # its code may be one of those below
                raise
            except RpcError as error:
                if error.code not in (_INVALID_REQUEST, _INVALID_PARAMETERS):
                    raise
            log.info(
                "chain %s: an endpoint does not support log queries by block hash; block numbers "
                "are used from now on",
                self._chain.name,
            )
            self._by_hash = False
        params = [{"fromBlock": hex(number), "toBlock": hex(number), **filter_}]
        by_number = Request("eth_getLogs", params, read=read)
        return await self._client.answer(lambda _: by_number, other_than=other_than)


def _in_block(number: int, block_hash: str) -> Callable[[Log], bool]:
    def is_in_block(found: Log) -> bool:
        return (found.block, found.block_hash) == (number, block_hash)

    return is_in_block


def _only_requested(
    read: Callable[[Any], list[Log]], is_requested: Callable[[Log], bool]
) -> Callable[[Any], list[Log]]:
    """Wrap `read` so that an answer with logs that were not requested is malformed."""

    def reading(raw: Any) -> list[Log]:
        logs = read(raw)
        if not all(is_requested(found) for found in logs):
            raise MalformedAnswerError("it contains logs of blocks that were not requested")
        return logs

    return reading


def _only_whole(read: Callable[[Any], list[Log]], blocks: int) -> Callable[[Any], list[Log]]:
    """Wrap `read` so that an answer that may be truncated counts as a refusal of its range.

    The answer for a single block is accepted, because a block cannot be requested in parts.
    """

    def reading(raw: Any) -> list[Log]:
        logs = read(raw)
        if blocks > 1 and len(logs) in _CUT_AT:
            raise RpcError(0, f"it returned exactly {len(logs)} logs and may have more")
        return logs

    return reading


def _only_complete(
    read: Callable[[Any], list[Log]], is_complete: IsComplete
) -> Callable[[Any], list[Log]]:
    """Wrap `read` for all logs of a block, so that an unusable answer counts as incomplete.

    Logs of other contracts may have an unknown form. Such an answer counts as incomplete instead
    of malformed, so that the endpoint is not marked as failed.
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
    """Return a filter for the contracts; an empty one (all logs) if there are too many."""
    addresses = sorted({each.address for each in wanted})
    return {"address": addresses} if len(addresses) <= _ADDRESSES_LIMIT else {}


def _in_order(logs: Iterable[Log]) -> list[Log]:
    """Remove duplicates and sort logs in the order of the chain."""
    found = {(entry.block, entry.index): entry for entry in logs}
    return [found[place] for place in sorted(found)]
