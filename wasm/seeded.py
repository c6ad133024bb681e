"""Repeatable runs: resource id, clock and random numbers come from a seed, not the machine.

Only the workbench runs applets this way, so that recorded tests keep their results. A node
never does.
"""

from __future__ import annotations

import random

READING_NS = 1_000_000
"""How far the clock advances with each reading, so that a loop that polls the clock ends."""


class Seeded:
    """Resource id, clock and random numbers of one run.

    Two runs with the same seed, number and start get the same values, independent of earlier
    runs and of the host that performs them.
    """

    __slots__ = ("_elapsed_ns", "_random", "_started_ns", "rid")

    def __init__(self, seed: int, number: int, started_ns: int) -> None:
        """Seed one run.

        Args:
            seed: any number.
            number: the run's number, from 0 to below 2**30. Consecutive runs get consecutive
                resource ids, which a batch requires.
            started_ns: the clock at the run's start, in Unix nanoseconds.
        """
        # `Random` hashes a text (SHA-512), so neighbouring seeds give unrelated numbers.
        self.rid = random.Random(f"{seed}").getrandbits(30) + number  # noqa: S311
        self._random = random.Random(f"{seed} {number}")  # noqa: S311 - it must repeat itself
        self._started_ns = started_ns
        self._elapsed_ns = 0

    def bytes(self, size: int) -> bytes:
        """Return the next `size` random bytes."""
        return self._random.randbytes(size)

    def bits(self, count: int) -> int:
        """Return the next random number of `count` bits."""
        return self._random.getrandbits(count)

    def number(self) -> float:
        """Return the next random seed for AssemblyScript's runtime, which expects a large float."""
        return self._random.random() * self.unix_ns

    @property
    def unix_ns(self) -> int:
        """Unix time in nanoseconds. Reading this property does not advance the clock."""
        return self._started_ns + self._elapsed_ns

    @property
    def elapsed_ns(self) -> int:
        """Nanoseconds since the run's start. Reading this property does not advance the clock."""
        return self._elapsed_ns

    def move(self, ns: int = READING_NS) -> None:
        """Advance the clock."""
        self._elapsed_ns += ns
