"""Random checks of answers for ranges of old blocks, because endpoints may omit logs.

There are two kinds of checks. A *second opinion* asks another endpoint for the same range. A
*header check* compares the Bloom filter in a block's header with the logs of that block. Each check
is made with a known probability (`SECOND_OPINIONS`, `BLOCKS_PER_HEADER`), so that an endpoint that
omits logs is detected sooner or later. Such an endpoint becomes a *suspect*: all its answers are
checked until `_SUSPECT_CHECKS` checks in a row were passed.
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
from fieldbrook.chain.concurrency import gather_or_cancel
from fieldbrook.chain.errors import CHAIN_FAILURES, IncompleteAnswerError
from fieldbrook.chain.rpc.answers import Header, read_header
from fieldbrook.observability import metrics

if TYPE_CHECKING:
    from fieldbrook.chain.rpc.client import ChainClient
    from fieldbrook.chain.rpc.endpoint import Endpoint
    from fieldbrook.chain.rpc.request import Request
    from fieldbrook.chain.rpc.search import Answer

log = logging.getLogger(__name__)

SECOND_OPINIONS = {True: 1 / 4, False: 1 / 8}
"""The probability of a second opinion. The key says whether the first answer had no logs."""
BLOCKS_PER_HEADER = 1_000
"""The header of one in so many blocks is compared with the block's logs."""
SUSPECT_BLOCKS = 200
"""The largest range, in blocks, of a request to a suspect that is the only endpoint."""
_SUSPECT_CHECKS = 32  # passed checks in a row after which a suspect is trusted again
_REQUESTS_OF_OPINION = 4  # most requests for one second opinion
_HEADERS = 4  # most headers that are read to find out which of two answers is right


class Range(NamedTuple):
    """A range of blocks, `first` and `last` included, whose logs were requested.

    `filter_` is the filter of the request as JSON; `wanted` are the filters of the monitors.
    """

    filter_: Mapping[str, Any]
    wanted: Sequence[LogFilter]
    first: int
    last: int


class _Opinion(NamedTuple):
    """A second opinion: the logs of a range up to the block `last`, from another endpoint."""

    logs: set[Log]
    last: int
    endpoint: Endpoint


MakeRequest = Callable[[Mapping[str, Any], int, int, "Endpoint"], "Request"]
FetchAll = Callable[[Block, bool, IsComplete, "Endpoint"], Awaitable[list[Log]]]
"""Requests all logs of a block (see `omissions.RequestLogs`). The given endpoint is asked last."""


class RangeChecks:
    """Checks answers for ranges of old blocks.

    Args:
        chain: the chain's name.
        client: requests second opinions and headers.
        omissions: finds logs that were omitted from a block.
        make_request: makes the request for a range.
        fetch_all: requests all logs of a block.
        salt: seeds the random choice of checks. The same range gets the same checks again.
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
        self._suspects: Counter[Endpoint] = Counter()  # how many more checks each must pass
        # First and last block of the answers that were used since the endpoint's last wrong answer.
        self._used: dict[Endpoint, tuple[int, int]] = {}

    def most_blocks(self, endpoint: Endpoint) -> int | None:
        """Return the size of the largest range that can be checked, in blocks; None for any."""
        if endpoint in self._suspects and not self._client.has_other_than(endpoint):
            return SUSPECT_BLOCKS
        return None

    async def complete(self, asked: Range, answer: Answer) -> list[Log]:
        """Return the logs of an answer, and the omitted logs that the checks have found.

        Raises:
            IncompleteAnswerError: the endpoint was found to give wrong logs, and was no suspect
                before. The caller must read the range again, with all checks.
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
        """Ask another endpoint for a range, in several requests if it limits ranges.

        Returns:
            The logs of the range or of its first part; None if no other endpoint answers.
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
        """Merge two answers: return the logs that are on the chain, and suspect who was wrong."""
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
        """Return whether logs that one endpoint lacks are on the chain, judged by some headers."""
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
        """Return the logs that the Bloom filters of `headers` announce and `logs` lacks."""
        missing: list[Log] = []
        for header in headers:
            block = Block(header.number, header.hash, header.bloom)
            own = [found for found in logs if found.block == header.number]
            if any(found.block_hash != header.hash for found in own):
                raise IncompleteAnswerError(
                    f"the logs of block {header.number} name another block hash than its header"
                )

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
        """Return headers for a check, without those that cannot be read now."""
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
        """Make an endpoint a suspect. Returns the reason; None if it was a suspect already."""
        known = endpoint in self._suspects
        self._suspects[endpoint] = _SUSPECT_CHECKS
        if known:
            return None
        blocks = sorted({found.block for found in logs})
        what = "it omitted" if lacked else "it invented"
        reason = f"{what} logs of blocks {blocks[0]} to {blocks[-1]}"
        self._client.report_omission(endpoint, reason)
        return reason

    def _wrong(
        self, endpoint: Endpoint, asked: Range, logs: Iterable[Log], *, lacked: bool
    ) -> None:
        """Suspect an endpoint whose answer omitted logs, or contained logs that do not exist.

        Raises:
            IncompleteAnswerError: the endpoint was no suspect before.
        """
        reason = self._suspect(endpoint, logs, lacked=lacked)
        if reason is None:
            return
        first, last = self._used.pop(endpoint, (asked.first, asked.first - 1))
        if first <= last:
            log.warning(
                "chain %s: endpoint %s: %s; its answers for blocks %d to %d were used, most of "
                "them unchecked: to read these blocks again, use `fieldbrook monitor rewind`",
                *(self._chain, endpoint.name, reason, first, last),
            )
        raise IncompleteAnswerError(f"endpoint {endpoint.name}: {reason}")

    def _passed(self, endpoint: Endpoint, asked: Range, checked: bool) -> None:
        """Record that an answer is used, and that its endpoint passed a check if `checked`."""
        if checked and endpoint in self._suspects:
            self._suspects[endpoint] -= 1
            if not self._suspects[endpoint]:
                del self._suspects[endpoint]
        first, last = self._used.get(endpoint, (asked.first, asked.last))
        self._used[endpoint] = min(first, asked.first), max(last, asked.last)


def _bits(found: Log) -> int:
    return bits_of_filter(found.address, found.topics)
