"""Measures monitors that read a whole chain through public endpoints, and then follow it.

It measures for each endpoint, or group of endpoints: how long the reading takes, whether each log
is reported once and in order, by how many blocks the monitors are behind afterwards, and how many
requests a new block needs.
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tests.chain.evm import Contract
from tests.chain.hardhat import Hardhat
from tests.chain.providers import PERSONALITIES
from tests.chain.reading import ledger, providers, reading

_LOGS_OF_TRANSACTION = 10
LAG_BLOCKS, REQUESTS_PER_BLOCK = 2, 3  # at most, with 20 monitors; the lag is the p99


@dataclass(frozen=True)
class Plan:
    """The chain to read, and how.

    Attributes:
        failures: the share of all answers that fail, at random.
        follow: the number of new blocks to follow afterwards, each with a log.
        block_s: the time between two blocks, and between two polls, as in most presets of networks.
        limit_s: how long the reading may take.
    """

    blocks: int = 100_000
    logs: int = 10_000
    monitors: int = 20
    failures: float = 0.1
    follow: int = 100
    block_s: float = 2.0
    limit_s: float = 3_600.0
    seed: int = 1


@dataclass
class Row:
    """The result of one group of endpoints; `lags` are in blocks, at each new block."""

    names: Sequence[str]
    seconds: float = 0.0
    told: int = 0
    missing: int = 0
    doubled: int = 0
    disordered: int = 0
    calls: int = 0
    refused: int = 0
    lags: Sequence[int] = ()
    requests_per_block: float = 0.0
    failure: str = ""

    HEAD: ClassVar[str] = (
        "endpoints              s    told  missing  doubled  disorder  calls  refused  "
        "lag p50  p99  requests/block"
    )

    def __str__(self) -> str:
        p99 = _percentile(self.lags, 99)
        middle = statistics.median(self.lags) if self.lags else 0
        return (
            f"{'+'.join(self.names):<20}{self.seconds:>6.0f}{self.told:>8}{self.missing:>9}"
            f"{self.doubled:>9}{self.disordered:>10}{self.calls:>7}{self.refused:>9}"
            f"{middle:>9.0f}{p99:>5.0f}{self.requests_per_block:>16.1f}  {self.failure}"
        )

    @property
    def is_complete(self) -> bool:
        """Whether each log was reported once and in order, and new blocks in time and with few
        requests."""
        wrong = self.failure or self.missing or self.doubled or self.disordered
        in_time = _percentile(self.lags, 99) <= LAG_BLOCKS
        return not wrong and in_time and self.requests_per_block <= REQUESTS_PER_BLOCK


def groups(pairs: bool) -> list[list[str]]:
    """Return each personality alone, or each pair."""
    if pairs:
        return [list(pair) for pair in itertools.combinations(PERSONALITIES, 2)]
    return [[name] for name in PERSONALITIES]


@contextlib.contextmanager
def chain(plan: Plan) -> Iterator[list[Contract]]:
    """Make a chain with logs in blocks of every height; return it and its contracts."""
    evm = Hardhat()
    try:
        made = [evm.deploy() for _ in range(plan.monitors)]
        evm.spread(made, plan.logs // _LOGS_OF_TRANSACTION, _LOGS_OF_TRANSACTION, plan.blocks)
        yield made
    finally:
        evm.stop()


async def read(contracts: Sequence[Contract], names: Sequence[str], plan: Plan) -> Row:
    """Read a chain through endpoints, then follow it."""
    row, evm = Row(names), contracts[0].evm
    with (
        tempfile.TemporaryDirectory(prefix="fieldbrook-reading-") as folder,
        providers(evm, names, plan.failures, plan.seed) as endpoints,
    ):
        poll_ms = int(plan.block_s * 1_000)
        count = plan.monitors
        async with reading(Path(folder), contracts, endpoints, count, poll_ms=poll_ms) as made:
            began = time.monotonic()
            try:
                await made.caught_up(evm.height, plan.limit_s)
                row.seconds = time.monotonic() - began
                before = sum(endpoint.requests for endpoint in endpoints)
                await made.follow(plan.follow, plan.block_s)
                requests = sum(endpoint.requests for endpoint in endpoints) - before
                row.requests_per_block = requests / max(1, plan.follow)
                row.lags = made.lags
                await made.caught_up(evm.height, plan.limit_s)
            except AssertionError as error:
                row.failure = str(error)[:200]
                row.seconds = time.monotonic() - began
        for monitor_id, contract in made.monitors.items():
            told, expected = made.told(monitor_id), ledger(contract)
            counts = Counter(told)
            row.told += len(told)
            row.missing += len(set(expected) - set(told))
            row.doubled += sum(n - 1 for n in counts.values())
            row.disordered += told != [place for place in expected if place in counts]
        row.calls = sum(endpoint.calls.total() for endpoint in endpoints)
        row.refused = sum(endpoint.refused.total() for endpoint in endpoints)
    return row


def _percentile(values: Sequence[int], percent: int) -> float:
    """Return the smallest value that at least this percentage of all values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)] if ordered else 0
