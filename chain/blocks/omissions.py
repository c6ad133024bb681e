"""Logs that an endpoint keeps to itself, noticed by what the blocks' headers say.

An endpoint whose index of logs is behind or damaged answers a question for logs with none, which
looks like a block without any. The Bloom filter of the block tells such an answer from a true one:
where it has the bits of a monitor's logs and none came, all logs of the block are asked for, of
another endpoint first. Either the monitor's are among them; or others explain the bits, and all is
well; or nothing does, and the answer is not taken.

Bits are shared: a full block has those of logs that it has not. What such blocks may cost is
bounded, see `Omissions`.
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

AGAIN_PER_BLOCK = 0.25  # questions in vain, over all blocks that are read
_SPARED = 32.0  # of these that may come at once
_ROUNDS = 4  # in which nothing explains a block's bits, before it is passed
_BLOCKS_IN_DOUBT = 256


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a monitor watches: the bits of its logs, and what they match."""

    bits: int
    address: str
    topics: tuple[str, ...]

    @classmethod
    def of(cls, address: str, topics: tuple[str, ...]) -> Wanted:
        """Those of a contract; see `chain.blocks.logs.matches`."""
        return cls(bits_of_filter(address, topics), address, topics)

    def matches(self, found: Log) -> bool:
        """Whether a log is one of these."""
        return matches(found, self.address, self.topics)

    def is_among(self, logs: Sequence[Log]) -> bool:
        """Whether one of the logs is one of these."""
        return any(self.matches(found) for found in logs)


@dataclass(frozen=True, slots=True)
class Block:
    """A block whose logs were asked for; `bloom` is 0 where its header tells nothing."""

    number: int
    hash: str
    bloom: int


IsWhole = Callable[[list[Log]], bool]
Ask = Callable[[bool, IsWhole], Awaitable[list[Log]]]
"""Asks for all logs of the block: from its receipts when the first argument says so. Raises
`IncompleteAnswerError` when the second one is false of each answer."""


class Omissions:
    """Asks again where logs seem to be left out.

    Of the blocks in which nothing was found by that, one in four is asked about again, after the
    first few: chains with full blocks, whose filters say nothing, cost a quarter more questions
    for logs. What is found costs nothing of that, and where nobody can tell it is asked once in
    128 blocks. A chain whose filters are made in another way than by its logs holds nobody: after
    `_ROUNDS` in which no endpoint could explain a block's bits it is passed, and no block is tried
    more than once until one is explained.
    """

    def __init__(self, chain: str) -> None:
        self._chain = chain
        self._spare = _SPARED
        self._rounds: dict[str, int] = {}  # by the hash of a block
        self._trusted = True

    async def find(
        self, block: Block, wanted: Sequence[Wanted], logs: Sequence[Log], all_asked: bool, ask: Ask
    ) -> list[Log]:
        """The logs of a block that an answer left out.

        Args:
            wanted: what the monitors that read this block watch.
            logs: what an endpoint gave.
            all_asked: whether it was asked for all logs, not only for those of the monitors.
            ask: asks again.

        Raises:
            ChainUnavailableError, IncompleteAnswerError: nobody gives the logs that there must
                be, or nobody answers; to be tried again.
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
            metrics.add(metrics.CHAIN_LOGS_LEFT_OUT, len(left_out))
        else:
            self._spare -= 1.0
        return left_out

    async def _ask(self, block: Block, missed: Sequence[Wanted], ask: Ask) -> Sequence[Log] | None:
        """All logs of a block, from somebody whose answer can be true; None where nobody can
        tell, because there are too many or the block has vanished."""
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
        """Nothing explains the bits: try again, or pass the block."""
        rounds = self._rounds.pop(block.hash, 0) + 1
        if rounds < _ROUNDS:
            if len(self._rounds) > _BLOCKS_IN_DOUBT:  # many of them have vanished meanwhile
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
