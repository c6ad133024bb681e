"""Detects logs that an RPC endpoint omitted, using the Bloom filter in each block header.

An endpoint whose log index lags behind or is damaged returns no logs, as if the block had none.
The Bloom filter exposes such an answer. If the filter has the bits of a monitor's logs but the
answer has none of them, all logs of the block are requested, from another endpoint first. There
are three outcomes:

* The monitor's logs are among them: the first endpoint omitted them.
* Other logs explain the bits: nothing was omitted.
* No logs explain the bits: the answer is rejected.

Different logs can set the same bits, so full blocks cause false alarms. `OmissionDetector` limits
their cost.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from fieldbrook.chain.blocks.bloom import bits_of_filter, bloom_of, holds
from fieldbrook.chain.blocks.logs import Log, matches
from fieldbrook.chain.errors import ChainError, IncompleteAnswerError, RpcError
from fieldbrook.core.errors import ChainUnavailableError
from fieldbrook.observability import metrics

log = logging.getLogger(__name__)

RETRIES_PER_BLOCK = 0.25  # credit per block for requests that find nothing (token bucket)
_BURST = 32.0  # the most credit
_ATTEMPTS = 4  # attempts to explain a block's bits before its logs are accepted as they are
_UNEXPLAINED_BLOCKS = 256  # blocks whose attempts are counted


@dataclass(frozen=True, slots=True)
class LogFilter:
    """The filter of a monitor: the bits that its logs set, its contract and its topics."""

    bits: int
    address: str
    topics: tuple[str, ...]

    @classmethod
    def for_contract(cls, address: str, topics: tuple[str, ...]) -> LogFilter:
        """Make the filter of a contract's logs; see `chain.blocks.logs.matches`."""
        return cls(bits_of_filter(address, topics), address, topics)

    def matches(self, found: Log) -> bool:
        """Return whether a log passes the filter."""
        return matches(found, self.address, self.topics)

    def is_among(self, logs: Sequence[Log]) -> bool:
        """Return whether any of the logs passes the filter."""
        return any(self.matches(found) for found in logs)


@dataclass(frozen=True, slots=True)
class Block:
    """A block whose logs were requested; `bloom` is 0 if its filter contains no information."""

    number: int
    hash: str
    bloom: int


IsComplete = Callable[[list[Log]], bool]
RequestLogs = Callable[[bool, IsComplete], Awaitable[list[Log]]]
"""Requests all logs of the block: from its receipts if the first argument is True, otherwise with a
log query. Raises `IncompleteAnswerError` if the second argument returns False for every answer."""


class OmissionDetector:
    """Requests logs again where an endpoint seems to have omitted some.

    Requests that find nothing are limited to one per four blocks, after a burst of `_BURST`.
    Therefore a chain with full blocks, whose filters exclude little, costs at most a quarter more
    log requests. Requests that find logs do not count. If no endpoint can answer, the next request
    comes after up to 128 blocks.

    The Bloom filters of some chains do not match their logs. Monitors of such a chain must not
    stop. Therefore the logs of a block are accepted as they are after `_ATTEMPTS` attempts in which
    no endpoint could explain its bits. From then on each block gets only one attempt, until the
    logs of some block match its filter again.
    """

    def __init__(self, chain: str) -> None:
        self._chain = chain
        self._credit = _BURST
        self._attempts: dict[str, int] = {}  # by the hash of a block
        self._trusted = True

    async def find(
        self,
        block: Block,
        filters: Sequence[LogFilter],
        logs: Sequence[Log],
        all_requested: bool,
        request: RequestLogs,
    ) -> list[Log]:
        """Return the logs of a block that an answer omitted.

        Args:
            block: the block.
            filters: the filters of the monitors that read this block.
            logs: the logs in the answer.
            all_requested: whether all logs were requested, not only those of the monitors.
            request: requests all logs of the block again.

        Raises:
            ChainUnavailableError, IncompleteAnswerError: no endpoint answers, or none returns
                logs that explain the filter; try again later.
        """
        unmatched = [f for f in filters if holds(block.bloom, f.bits) and not f.is_among(logs)]
        if unmatched and all_requested:
            bloom = bloom_of(logs)
            unmatched = [f for f in unmatched if not holds(bloom, f.bits)]
        self._credit = min(_BURST, self._credit + RETRIES_PER_BLOCK)
        if not unmatched or self._credit < 1.0:
            return []
        found = await self._request(block, unmatched, request)
        if found is None:
            self._credit = max(self._credit - _BURST, -_BURST)
            return []
        known = {entry.index for entry in logs}
        found = [entry for entry in found if entry.index not in known]
        omitted = [entry for entry in found if any(f.matches(entry) for f in filters)]
        if omitted:
            metrics.add(metrics.CHAIN_LOGS_OMITTED, len(omitted))
        else:
            self._credit -= 1.0
        return omitted

    async def _request(
        self, block: Block, unmatched: Sequence[LogFilter], request: RequestLogs
    ) -> Sequence[Log] | None:
        """Request all logs of a block until an answer agrees with its filter.

        Returns:
            The logs; None if the endpoints refuse the request, e.g. because there are too many
            logs or the block has vanished, or if the block is accepted as it is.
        """
        failure: ChainError | ChainUnavailableError | None = None

        def is_complete(logs: list[Log]) -> bool:
            bloom = bloom_of(logs)
            if bloom == block.bloom:
                self._trusted = True
            return not self._trusted or all(holds(bloom, f.bits) for f in unmatched)

        # A node whose log index is damaged may still have the receipts.
        for receipts in (False, True):
            try:
                found = await request(receipts, is_complete)
            except RpcError:
                continue
            except (IncompleteAnswerError, ChainUnavailableError) as error:
                failure = failure or error
            else:
                self._attempts.pop(block.hash, None)
                return found
        if failure is not None and self._trusted:
            self._handle_unexplained(block, failure)
        return None

    def _handle_unexplained(self, block: Block, failure: Exception) -> None:
        """Raise `failure`, or after `_ATTEMPTS` attempts accept the block's logs as they are."""
        attempts = self._attempts.pop(block.hash, 0) + 1
        if attempts < _ATTEMPTS:
            if len(self._attempts) > _UNEXPLAINED_BLOCKS:  # most of the blocks have vanished
                self._attempts.clear()
            self._attempts[block.hash] = attempts
            raise failure
        self._trusted = False
        log.warning(
            "chain %s: no endpoint returns the logs that the Bloom filter of block %d announces "
            "(%s); the logs are accepted as they are, and Bloom filters are not used until one "
            "matches the logs of its block",
            self._chain,
            block.number,
            failure,
        )
