"""Parameters of every scenario: how long to measure, which baselines, where to write."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import Table


@dataclass(frozen=True)
class Context:
    """Parameters of one call of the suite.

    Args:
        rounds: how often each server is measured.
        seconds: how long each time.
        peers: names of the baselines to measure beside the node.
        quick: also make fewer projects, publishers and events.
        before: a checkout of another version, with its `.venv`, to measure beside this one.
    """

    rounds: int
    seconds: float
    peers: Sequence[str]
    quick: bool
    before: Path | None = None

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A folder for the servers' data; TMPDIR chooses the disk that is measured."""
        with tempfile.TemporaryDirectory(prefix="fieldbrook-bench-") as name:
            yield Path(name)

    def size(self, full: int, quick: int) -> int:
        """The number of objects to create."""
        return quick if self.quick else full

    def title(self, what: str, *, timed: bool = True) -> str:
        """A table's title, with how it was measured; `timed` rounds take `seconds` each."""
        rounds = "one round" if self.rounds == 1 else f"medians of {self.rounds} rounds"
        return f"{what}; {rounds} of {self.seconds:g} s" if timed else f"{what}; {rounds}"


Emit = Callable[[Table], None]  # takes each table when it is whole
Scenario = Callable[[Context, Emit], None]
