"""Monitors that read a real chain through providers, compared with the chain's own logs."""

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
    """Return the logs of a contract from its chain, in the chain's order."""
    logs = contract.evm.logs(address=contract.address)
    return [(log["blockHash"], int(log["logIndex"], 16)) for log in logs]


@contextlib.contextmanager
def providers(
    evm: Evm, names: Sequence[str], failures: float, seed: int
) -> Iterator[list[Provider]]:
    """Start endpoints of these personalities in front of a chain."""
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
        lags: how many earlier blocks had an unreported log, at each block that `follow` made. A
            stored cursor may be older than the reported logs.
    """

    world: World
    contracts: Sequence[Contract]
    monitors: dict[int, Contract] = field(default_factory=dict)
    lags: list[int] = field(default_factory=list)

    def watch(self, count: int = 1) -> None:
        """Watch each contract, with this number of monitors in total."""
        for contract in itertools.islice(itertools.cycle(self.contracts), count):
            self.monitors[self.world.logs(contract.address)] = contract

    def told(self, monitor_id: int) -> list[Place]:
        """Return the logs that a monitor has reported, in its order and with repetitions."""
        own = [e for e in self.world.handled if e[2].endswith(f"-{monitor_id}")]
        logs = [json.loads(event[3]) for event in own]
        return [(log["blockHash"], int(log["logIndex"], 16)) for log in logs]

    def assert_complete(self) -> None:
        """Check that each monitor has reported every log of its contract, once and in order."""
        for monitor_id, contract in self.monitors.items():
            assert self.told(monitor_id) == ledger(contract)

    async def caught_up(self, height: int, limit_s: float) -> float:
        """Wait until every monitor has reached a block; return the seconds that this took."""
        began = time.monotonic()
        while self.behind(height):
            assert time.monotonic() - began < limit_s, self.describe()
            await asyncio.sleep(0.02)
        return time.monotonic() - began

    def behind(self, height: int) -> int:
        """Return by how many blocks the slowest monitor is behind."""
        cursors = (self.world.store.cursor(monitor_id) for monitor_id in self.monitors)
        return max(height - (cursor.block if cursor else 0) for cursor in cursors)

    async def follow(self, blocks: int, every_s: float) -> None:
        """Append blocks with a log each, and record by how many blocks the monitors are behind."""
        evm = self.contracts[0].evm
        before = len(self.world.handled)
        monitors = Counter(contract.address for contract in self.monitors.values())
        due = [0]  # the number of events of the blocks so far
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
