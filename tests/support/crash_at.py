"""Nodes whose processes die, or pause, at a point that a test names."""

from __future__ import annotations

import os
from pathlib import Path

from fieldbrook.observability.fault_points import HOLD, VARIABLE
from tests.support.nodes import RunningNode, until


class CrashAt:
    """The file with the point at which a process dies."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reached = path.with_name(path.name + ".reached")

    def arm(self, point: str, count: int = 1, *, hold: bool = False) -> None:
        self._reached.unlink(missing_ok=True)
        made = self._path.with_suffix(".made")
        made.write_text(f"{point} {count} {HOLD if hold else ''}")
        made.rename(self._path)

    def reached(self) -> bool:
        """Return whether a process has reached the point."""
        return self._reached.exists()

    def happens(self) -> None:
        """Wait until a process has reached the point."""
        until(self.reached, "a process comes to the point")

    @property
    def node(self) -> type[RunningNode]:
        """Return a node that reads the file."""

        class Node(RunningNode):
            environment = {**os.environ, VARIABLE: str(self._path)}  # noqa: RUF012 - read only

        return Node
