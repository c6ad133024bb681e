"""Monitors that read a real chain through providers, compared with a ledger of the chain's own."""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import itertools
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chain.evm import Contract, Evm
from tests.chain.providers import PERSONALITIES, Provider
from tests.chain.world import World

Place = tuple[str, int]
"""Where a log is: the hash of its block, and its index there."""


def ledger(contract: Contract) -> list[Place]:
    """The logs of a contract as its chain has them, in the chain's order."""
    logs = contract.evm.logs(address=contract.address)
    return [(log["blockHash"], int(log["logIndex"], 16)) for log in logs]


@contextlib.contextmanager
def providers(
    evm: Evm, names: Sequence[str], failures: float, seed: int
) -> Iterator[list[Provider]]:
    """Endpoints of these personalities before a chain."""
    made = [
        Provider(evm.url, PERSONALITIES[name], failures=failures, seed=seed + n)
        for n, name in enumerate(names)
    ]
    yield made
    for provider in made:
        provider.close()


@dataclass
class Reading:
    """Monitors of contracts over some endpoints.

    Attributes:
        lags: how many earlier blocks had a log that was not told yet, at each block that `follow`
            made. A stored cursor may be older than what was told.
    """

    world: World
    contracts: Sequence[Contract]
    monitors: dict[int, Contract] = field(default_factory=dict)
    lags: list[int] = field(default_factory=list)

    def watch(self, count: int = 1) -> None:
        """Watch each contract, with so many monitors in all."""
        for contract in itertools.islice(itertools.cycle(self.contracts), count):
            self.monitors[self.world.logs(contract.address)] = contract

    def told(self, monitor_id: int) -> list[Place]:
        """The logs that a monitor has told of, as often and in the order as it has."""
        own = [e for e in self.world.handled if e[2].endswith(f"-{monitor_id}")]
        logs = [json.loads(event[3]) for event in own]
        return [(log["blockHash"], int(log["logIndex"], 16)) for log in logs]

    def assert_complete(self) -> None:
        """Each monitor has told of every log of its contract, once and in order."""
        for monitor_id, contract in self.monitors.items():
            assert self.told(monitor_id) == ledger(contract)

    async def caught_up(self, height: int, limit_s: float) -> float:
        """Wait until every monitor is at a block; how many seconds that took."""
        began = time.monotonic()
        while self.behind(height):
            assert time.monotonic() - began < limit_s, self.describe()
            await asyncio.sleep(0.02)
        return time.monotonic() - began

    def behind(self, height: int) -> int:
        """How many blocks the slowest monitor is behind."""
        cursors = (self.world.store.cursor(monitor_id) for monitor_id in self.monitors)
        return max(height - (cursor.block if cursor else 0) for cursor in cursors)

    async def follow(self, blocks: int, every_s: float) -> None:
        """Have the chain grow, each block with a log, and note how far the monitors are behind."""
        evm = self.contracts[0].evm
        before = len(self.world.handled)
        monitors = Counter(contract.address for contract in self.monitors.values())
        due = [0]  # how many events the blocks so far cause
        for number in range(blocks):
            contract = self.contracts[number % len(self.contracts)]
            data = contract.data("many", 10**6 + number, 1)
            await asyncio.to_thread(evm.send, contract.address, data)
            told = len(self.world.handled) - before
            self.lags.append(len(due) - bisect.bisect_right(due, told))
            due.append(due[-1] + monitors[contract.address])
            await asyncio.sleep(every_s)

    def describe(self) -> Any:
        status = self.world.client.status()
        cursors = [self.world.store.cursor(monitor_id) for monitor_id in self.monitors]
        return cursors, status


@contextlib.asynccontextmanager
async def reading(
    folder: Path,
    contracts: Sequence[Contract],
    endpoints: Sequence[Provider],
    monitors: int,
    **settings: Any,
) -> AsyncIterator[Reading]:
    """Monitors from the first block on, while they run."""
    world = World(folder, [provider.url for provider in endpoints], **settings)
    made = Reading(world, contracts)
    made.watch(monitors)
    async with world.running():
        yield made
