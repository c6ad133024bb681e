"""Checks samples of what endpoints answer for ranges of old blocks, because they may omit logs.

There are two kinds of checks. Another endpoint is asked for the same range, and headers of single
blocks are compared with the answer by their Bloom filters. Each is done with a known probability
(`SECOND_OPINIONS`, `BLOCKS_PER_HEADER`), so that an endpoint that omits logs is noticed sooner or
later. From then on everything that it answers is checked, until it has been right for a while.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from fieldbrook.chain.blocks.bloom import bits_of_filter, holds
from fieldbrook.chain.blocks.logs import Log
from fieldbrook.chain.blocks.omissions import Block, IsComplete, LogFilter, OmissionDetector
from fieldbrook.chain.errors import CHAIN_FAILURES, IncompleteAnswerError
from fieldbrook.chain.rpc.answers import Header, read_header
from fieldbrook.chain.concurrency import gather_or_cancel
from fieldbrook.observability import metrics

if TYPE_CHECKING:
    from fieldbrook.chain.rpc.client import ChainClient
    from fieldbrook.chain.rpc.endpoint import Endpoint
    from fieldbrook.chain.rpc.request import Request
    from fieldbrook.chain.rpc.search import Answer

log = logging.getLogger(__name__)

SECOND_OPINIONS = {True: 1 / 4, False: 1 / 8}
"""The probability that another endpoint is asked for a range too, by whether the first one had no
logs there."""
BLOCKS_PER_HEADER = 1_000
"""Of how many blocks one has its header compared with the logs."""
SUSPECT_BLOCKS = 200
"""The largest range that the only endpoint is asked for after it has omitted logs."""
_SUSPECT_CHECKS = 32  # that must go well until an endpoint is trusted again
_REQUESTS_OF_OPINION = 4
_HEADERS = 4  # that are read to find out which of two answers is right


class Range(NamedTuple):
    """A range of blocks that was requested: its filter as JSON, and the filters of the monitors."""

    filter_: Mapping[str, Any]
    wanted: Sequence[LogFilter]
    first: int
    last: int


class _Opinion(NamedTuple):
    """The logs of a range, up to the block `last`, as another endpoint gives them."""

    logs: set[Log]
    last: int
    endpoint: Endpoint


MakeRequest = Callable[[Mapping[str, Any], int, int, "Endpoint"], "Request"]
FetchAll = Callable[[Block, bool, IsComplete, "Endpoint"], Awaitable[list[Log]]]
"""Requests all logs of a block, see `omissions.RequestLogs`, from this endpoint last."""


class RangeChecks:
    """Checks answers for ranges of old blocks.

    Args:
        chain: the chain's name.
        client: asks other endpoints, and for headers.
        omissions: finds logs that were omitted from a block.
        make_request: makes the request for a range.
        fetch_all: requests all logs of a block.
        salt: which ranges and blocks are checked; the same for a range that is read again.
    """

    def __init__(
        self,
        chain: str,
        client: ChainClient,
        omissions: OmissionDetector,
        make_request: MakeRequest,
        fetch_all: FetchAll,
        salt: int | None = None,
    ) -> None:
        self._chain = chain
        self._client = client
        self._omissions = omissions
        self._make_request = make_request
        self._fetch_all = fetch_all
        self._salt = random.getrandbits(64) if salt is None else salt
        self._suspects: Counter[Endpoint] = Counter()  # and how many checks must go well
        self._unchecked: dict[Endpoint, tuple[int, int]] = {}  # first and last such block

    def most_blocks(self, endpoint: Endpoint) -> int | None:
        """Return the size of the largest range that can be checked; None for any."""
        if endpoint in self._suspects and not self._client.has_other_than(endpoint):
            return SUSPECT_BLOCKS
        return None

    async def complete(self, asked: Range, answer: Answer) -> list[Log]:
        """Return the logs of an answer, with those that another check has found.

        Raises:
            IncompleteAnswerError: the endpoint omitted logs, and was not suspected before. Read
                the range again: then everything is checked.
            ChainError, ChainUnavailableError: a check has no result; try again later.
        """
        draw = random.Random(f"{self._salt} {asked.first} {asked.last}")  # noqa: S311
        endpoint, logs = answer.endpoint, list(answer.result)
        suspect = endpoint in self._suspects
        second = None
        chance = 1.0 if suspect else SECOND_OPINIONS[not logs]
        if draw.random() < chance and self._client.has_other_than(endpoint):
            second = await self._second_opinion(asked, endpoint)
        if second is not None:
            logs = await self._united(asked, answer, second)
        blocks = asked.last - asked.first + 1
        numbers = range(asked.first, asked.last + 1)
        if suspect and second is None:
            headers = await self._headers(numbers)
        else:
            count = min(blocks, int(blocks / BLOCKS_PER_HEADER + draw.random()))
            headers = await self._sampled(draw.sample(numbers, count))
        logs += await self._missing_in(headers, asked, logs, endpoint)
        self._passed(endpoint, asked, bool(headers) or second is not None)
        return logs

    # ---------------------------------------------------------------- another endpoint

    async def _second_opinion(self, asked: Range, endpoint: Endpoint) -> _Opinion | None:
        """Ask another endpoint for a range, or the first part of it; None if none answers.

        An endpoint that gives smaller ranges is asked several times.
        """
        found: _Opinion | None = None
        for _ in range(_REQUESTS_OF_OPINION):
            first = asked.first if found is None else found.last + 1
            if first > asked.last:
                break
            make = partial(self._make_request, asked.filter_, first, asked.last)
            try:
                answer = await self._client.answer(make, other_than=endpoint)
            except CHAIN_FAILURES:
                break
            if answer.endpoint is endpoint or (found and answer.endpoint is not found.endpoint):
                break
            last = int(answer.request.params[0]["toBlock"], 16)
            before = found.logs if found else set()
            found = _Opinion(before | set(answer.result), last, answer.endpoint)
        return found

    async def _united(self, asked: Range, answer: Answer, second: _Opinion) -> list[Log]:
        """Return the logs of two answers that exist."""
        ours, theirs = set(answer.result), second.logs
        only_theirs = theirs - ours
        only_ours = {found for found in ours - theirs if found.block <= second.last}
        if not only_theirs and not only_ours:
            return list(ours)
        theirs_exist = await self._exist(only_theirs)
        ours_exist = await self._exist(only_ours)
        if only_ours and ours_exist:
            self._suspect(second.endpoint, only_ours, lacked=True)
        if only_theirs and not theirs_exist:
            self._suspect(second.endpoint, only_theirs, lacked=False)
        if only_ours and not ours_exist:
            self._wrong(answer.endpoint, asked, only_ours, lacked=False)
        if only_theirs and theirs_exist:
            metrics.add(metrics.CHAIN_LOGS_OMITTED, len(only_theirs))
            self._wrong(answer.endpoint, asked, only_theirs, lacked=True)
        kept = ours if ours_exist else ours - only_ours
        return list(kept | only_theirs if theirs_exist else kept)

    async def _exist(self, logs: set[Log]) -> bool:
        """Return whether logs that one endpoint lacks are on the chain, by some headers."""
        some = {found.block: found for found in logs}
        headers = await self._headers(sorted(some)[:_HEADERS])
        return all(
            header.hash == some[header.number].block_hash
            and (not header.bloom or holds(header.bloom, _bits(some[header.number])))
            for header in headers
        )

    # ---------------------------------------------------------------- headers

    async def _missing_in(
        self, headers: Sequence[Header], asked: Range, logs: Sequence[Log], endpoint: Endpoint
    ) -> list[Log]:
        """Return the logs of some blocks that are announced by their headers and not in `logs`."""
        missing: list[Log] = []
        for header in headers:
            block = Block(header.number, header.hash, header.bloom)
            own = [found for found in logs if found.block == header.number]
            if any(found.block_hash != header.hash for found in own):
                raise IncompleteAnswerError(f"the logs of block {header.number} are of another one")

            async def fetch(
                receipts: bool, is_complete: IsComplete, block: Block = block
            ) -> list[Log]:
                return await self._fetch_all(block, receipts, is_complete, endpoint)

            all_requested = not asked.filter_
            missing += await self._omissions.find(block, asked.wanted, own, all_requested, fetch)
        if missing:
            self._wrong(endpoint, asked, missing, lacked=True)
        return missing

    async def _sampled(self, numbers: Sequence[int]) -> list[Header]:
        """Return headers for a check; those that cannot be read now are no reason to wait."""
        reading = (self._header(number) for number in numbers)
        found = await asyncio.gather(*reading, return_exceptions=True)
        for failure in found:
            if isinstance(failure, BaseException) and not isinstance(failure, CHAIN_FAILURES):
                raise failure
        return [header for header in found if isinstance(header, Header)]

    async def _headers(self, numbers: Sequence[int]) -> list[Header]:
        return await gather_or_cancel(*(self._header(number) for number in numbers))

    async def _header(self, number: int) -> Header:
        def read(raw: Any) -> Header:
            if raw is None:
                raise IncompleteAnswerError(f"block {number} is missing")
            header = read_header(raw)
            if header.number != number:
                raise IncompleteAnswerError(f"block {header.number} instead of {number}")
            return header

        found: Header = await self._client.call(
            "eth_getBlockByNumber", [hex(number), False], read=read
        )
        return found

    # ---------------------------------------------------------------- endpoints

    def _suspect(self, endpoint: Endpoint, logs: Iterable[Log], *, lacked: bool) -> str | None:
        """Suspect an endpoint; returns the reason, None if it is suspected already."""
        known = endpoint in self._suspects
        self._suspects[endpoint] = _SUSPECT_CHECKS
        if known:
            return None
        blocks = sorted({found.block for found in logs})
        what = "it left out" if lacked else "it made up"
        reason = f"{what} logs of blocks {blocks[0]} to {blocks[-1]}"
        self._client.report_omission(endpoint, reason)
        return reason

    def _wrong(
        self, endpoint: Endpoint, asked: Range, logs: Iterable[Log], *, lacked: bool
    ) -> None:
        """Suspect an endpoint whose answer omitted logs, or had some that do not exist.

        Raises:
            IncompleteAnswerError: it was not suspected before.
        """
        reason = self._suspect(endpoint, logs, lacked=lacked)
        if reason is None:
            return
        first, last = self._unchecked.pop(endpoint, (asked.first, asked.first - 1))
        if first <= last:
            log.warning(
                "chain %s: endpoint %s: %s; it has also answered for blocks from %d to %d, most of "
                "them unchecked: to read them again, use `fieldbrook monitor rewind`",
                *(self._chain, endpoint.name, reason, first, last),
            )
        raise IncompleteAnswerError(f"endpoint {endpoint.name}: {reason}")

    def _passed(self, endpoint: Endpoint, asked: Range, checked: bool) -> None:
        """Note that an answer is used."""
        if checked and endpoint in self._suspects:
            self._suspects[endpoint] -= 1
            if not self._suspects[endpoint]:
                del self._suspects[endpoint]
        first, last = self._unchecked.get(endpoint, (asked.first, asked.last))
        self._unchecked[endpoint] = min(first, asked.first), max(last, asked.last)


def _bits(found: Log) -> int:
    return bits_of_filter(found.address, found.topics)
