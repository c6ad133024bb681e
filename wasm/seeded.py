"""Repeatable runs: what a run would take from the machine comes from a seed instead.

A node never runs applets so. The workbench does, so that a recorded test stays true.
"""

from __future__ import annotations

import random

READING_NS = 1_000_000
"""How far each look at the clock moves it: a loop that waits for a time comes to an end."""


class Seeded:
    """Resource id, clock and random numbers of one run.

    Two runs with the same seed, number and start see the same, whatever ran before and
    whichever host performs them.
    """

    __slots__ = ("_elapsed_ns", "_random", "_started_ns", "rid")

    def __init__(self, seed: int, number: int, started_ns: int) -> None:
        """Args:
        seed: any number.
        number: of the run, from 0 below 2**30. Resource ids of successive runs are
            successive, as those of a batch have to be.
        started_ns: what the clock says at the run's start, in Unix nanoseconds.
        """
        # A text is hashed (SHA-512), so seeds that are close have nothing in common.
        self.rid = random.Random(f"{seed}").getrandbits(30) + number  # noqa: S311
        self._random = random.Random(f"{seed} {number}")  # noqa: S311 - it must repeat itself
        self._started_ns = started_ns
        self._elapsed_ns = 0

    def bytes(self, size: int) -> bytes:
        """The next random bytes."""
        return self._random.randbytes(size)

    def bits(self, count: int) -> int:
        """The next number of so many random bits."""
        return self._random.getrandbits(count)

    def number(self) -> float:
        """The next random number, as AssemblyScript's runtime wants its seed: a float that is
        not small."""
        return self._random.random() * self.unix_ns

    @property
    def unix_ns(self) -> int:
        """The time of day, without moving it."""
        return self._started_ns + self._elapsed_ns

    @property
    def elapsed_ns(self) -> int:
        """The run's own time, without moving it."""
        return self._elapsed_ns

    def move(self, ns: int = READING_NS) -> None:
        """Let time pass."""
        self._elapsed_ns += ns
