"""Detects logs that an RPC endpoint omitted, using the Bloom filter in each block header.

An endpoint whose log index lags behind or is damaged returns no logs, as for a block without any.
The Bloom filter exposes such an answer: if it has the bits of a monitor's logs but none of these
logs came, all logs of the block are requested, from another endpoint first. There are three
outcomes. The monitor's logs are among them; or other logs explain the bits, and nothing was
omitted; or no logs explain the bits, and the answer is rejected.

Different logs can set the same bits, so full blocks cause false alarms. Their cost is bounded, see
`Omissions`.
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

AGAIN_PER_BLOCK = 0.25  # allowed requests without a find, averaged over all blocks read
_SPARED = 32.0  # allowed burst of such requests
_ROUNDS = 4  # attempts to explain a block's bits before the block is accepted as it is
_BLOCKS_IN_DOUBT = 256


@dataclass(frozen=True, slots=True)
class Wanted:
    """The filter of a monitor: the bits that its logs set, its contract and its topics."""

    bits: int
    address: str
    topics: tuple[str, ...]

    @classmethod
    def of(cls, address: str, topics: tuple[str, ...]) -> Wanted:
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


IsWhole = Callable[[list[Log]], bool]
Ask = Callable[[bool, IsWhole], Awaitable[list[Log]]]
"""Requests all logs of the block, from its receipts if the first argument is True. Raises
`IncompleteAnswerError` if the second argument returns False for every answer."""


class Omissions:
    """Requests logs again where an endpoint seems to have omitted some.

    Requests that find nothing are limited to one per four blocks, after a burst of `_SPARED`. A
    chain with full blocks, whose filters exclude little, therefore costs a quarter more log
    requests. Requests that find logs are free. If no endpoint can answer, the next request comes
    after up to 128 blocks.

    A chain whose filters do not follow from its logs must not stop its monitors. After `_ROUNDS`
    attempts in which no endpoint could explain a block's bits, the block is accepted as it is.
    Until some block's logs explain its filter again, every block is tried only once.
    """

    def __init__(self, chain: str) -> None:
        self._chain = chain
        self._spare = _SPARED
        self._rounds: dict[str, int] = {}  # by the hash of a block
        self._trusted = True

    async def find(
        self, block: Block, wanted: Sequence[Wanted], logs: Sequence[Log], all_asked: bool, ask: Ask
    ) -> list[Log]:
        """Return the logs of a block that an answer omitted.

        Args:
            block: the block.
            wanted: the filters of the monitors that read this block.
            logs: the logs in the answer.
            all_asked: whether all logs were requested, not only those of the monitors.
            ask: requests all logs of the block again.

        Raises:
            ChainUnavailableError, IncompleteAnswerError: no endpoint answers, or none returns
                logs that explain the filter; try again later.
        """
        missed = [w for w in wanted if holds(block.bloom, w.bits) and not w.is_among(logs)]
        if missed and all_asked:
            there = bloom_of(logs)
            missed = [w for w in missed if not holds(there, w.bits)]
        self._spare = min(_SPARED, self._spare + AGAIN_PER_BLOCK)
        if not missed or self._spare < 1.0:
            return []
        found = await self._ask(block, missed, ask)
        if found is None:
            self._spare = max(self._spare - _SPARED, -_SPARED)
            return []
        known = {entry.index for entry in logs}
        found = [entry for entry in found if entry.index not in known]
        left_out = [entry for entry in found if any(w.matches(entry) for w in wanted)]
        if left_out:
            metrics.add(metrics.CHAIN_LOGS_OMITTED, len(left_out))
        else:
            self._spare -= 1.0
        return left_out

    async def _ask(self, block: Block, missed: Sequence[Wanted], ask: Ask) -> Sequence[Log] | None:
        """Request all logs of a block until an answer agrees with its filter.

        Returns:
            The logs; None if the endpoints refuse the request, e.g. because there are too many
            logs or the block has vanished, or if the block is accepted as it is.
        """
        doubt: ChainError | ChainUnavailableError | None = None

        def is_whole(logs: list[Log]) -> bool:
            there = bloom_of(logs)
            if there == block.bloom:
                self._trusted = True
            return not self._trusted or all(holds(there, w.bits) for w in missed)

        # A node whose index of logs is damaged may have the receipts.
        for receipts in (False, True):
            try:
                found = await ask(receipts, is_whole)
            except RpcError:
                continue
            except (IncompleteAnswerError, ChainUnavailableError) as error:
                doubt = doubt or error
            else:
                self._rounds.pop(block.hash, None)
                return found
        if doubt is not None and self._trusted:
            self._in_doubt(block, doubt)
        return None

    def _in_doubt(self, block: Block, doubt: Exception) -> None:
        """Handle a block whose bits no answer explains: raise `doubt`, or accept the block."""
        rounds = self._rounds.pop(block.hash, 0) + 1
        if rounds < _ROUNDS:
            if len(self._rounds) > _BLOCKS_IN_DOUBT:  # many of these blocks have vanished
                self._rounds.clear()
            self._rounds[block.hash] = rounds
            raise doubt
        self._trusted = False
        log.warning(
            "chain %s: no endpoint has the logs that the header of block %d tells of (%s); it is "
            "passed, and headers are not relied on until one fits its logs",
            self._chain,
            block.number,
            doubt,
        )
