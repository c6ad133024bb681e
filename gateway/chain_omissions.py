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

from fieldbrook import metrics
from fieldbrook.chain.bloom import bits_of_filter, bloom_of, holds
from fieldbrook.chain.errors import MalformedAnswerError, RpcError
from fieldbrook.chain.logs import Log, matches
from fieldbrook.errors import ChainUnavailableError

log = logging.getLogger(__name__)

AGAIN_PER_BLOCK = 0.25  # questions in vain, over all blocks that are read
_SPARED = 32.0  # of these that may come at once
_ROUNDS = 4  # in which nothing explains a block's bits, before it is passed
_BLOCKS_IN_DOUBT = 256
FEWER_LOGS = "fewer logs than the block's header tells of"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a monitor watches: the bits of its logs, and what they match."""

    bits: int
    address: str
    topics: tuple[str, ...]

    @classmethod
    def of(cls, address: str, topics: tuple[str, ...]) -> Wanted:
        """Those of a contract; see `chain.logs.matches`."""
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
"""Asks for all logs of the block: from its receipts when the first argument says so. An answer of
which the second one is false is one that an endpoint failed to give."""


class Omissions:
    """Asks again where logs seem to be left out.

    Of the blocks in which nothing was found by that, one in four is asked about again, after the
    first few: chains with full blocks, whose filters say nothing, cost a quarter more questions
    for logs. What is found costs nothing of that. A chain whose filters are made in another way
    than by its logs holds nobody: after `_ROUNDS` in which no endpoint could explain a block's bits
    it is passed, and after that blocks are asked about again once, until one is explained.
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
            ChainUnavailableError, MalformedAnswerError: nobody gives the logs that there must be,
                or nobody answers; to be tried again.
        """
        missed = [w for w in wanted if holds(block.bloom, w.bits) and not w.is_among(logs)]
        if missed and all_asked:
            there = bloom_of(logs)
            missed = [w for w in missed if not holds(there, w.bits)]
        self._spare = min(_SPARED, self._spare + AGAIN_PER_BLOCK)
        if not missed or self._spare < 1.0:
            return []
        known = {entry.index for entry in logs}
        found = [e for e in await self._ask(block, missed, ask) if e.index not in known]
        left_out = [entry for entry in found if any(w.matches(entry) for w in wanted)]
        if left_out:
            metrics.add(metrics.CHAIN_LOGS_LEFT_OUT, len(left_out))
        else:
            self._spare -= 1.0
        return left_out

    async def _ask(self, block: Block, missed: Sequence[Wanted], ask: Ask) -> list[Log]:
        """All logs of a block, from somebody whose answer can be true; none where nobody can
        tell, because there are too many or the block has vanished."""
        rounds = self._rounds.get(block.hash, 0)
        doubtful = False

        def is_whole(logs: list[Log]) -> bool:
            nonlocal doubtful
            there = bloom_of(logs)
            if there == block.bloom:
                self._trusted = True
            doubtful = not all(holds(there, w.bits) for w in missed)
            return not (doubtful and self._trusted)

        found: list[Log] = []
        # A node whose index of logs is damaged may have the receipts.
        for receipts in (False, True) if rounds % 2 == 0 else (True, False):
            try:
                found = await ask(receipts, is_whole)
            except RpcError:
                continue
            except ChainUnavailableError:
                if not doubtful:
                    raise
            break
        if doubtful:
            self._in_doubt(block, rounds + 1)
        self._rounds.pop(block.hash, None)
        return found

    def _in_doubt(self, block: Block, rounds: int) -> None:
        """Nothing explains the bits: try again, or pass the block.

        Raises:
            MalformedAnswerError: it is to be tried again.
        """
        if not self._trusted:
            return
        if rounds < _ROUNDS:
            if len(self._rounds) > _BLOCKS_IN_DOUBT:  # many of them have vanished meanwhile
                self._rounds.clear()
            self._rounds[block.hash] = rounds
            raise MalformedAnswerError(FEWER_LOGS)
        self._trusted = False
        log.warning(
            "chain %s: no endpoint has the logs that the header of block %d tells of; it is "
            "passed, and headers are not relied on until one fits its logs",
            self._chain,
            block.number,
        )
