"""The health conditions of the cluster, on the board of this host."""

from __future__ import annotations

from collections.abc import Iterable

from fieldbrook.actors import messages as m
from fieldbrook.observability.health import Board


class ClusterHealth:
    """Raises the conditions that `fb-cluster` reports, and clears those that have ended.

    The conditions are raised for names such as `host:NAME`, which are no processes of this host.
    Conditions from other sources stay.
    """

    def __init__(self, board: Board) -> None:
        self._board = board
        self._raised: set[tuple[str, str]] = set()

    def apply(self, conditions: Iterable[m.ClusterCondition]) -> None:
        """Take a complete report."""
        raised = set()
        for one in conditions:
            self._board.update(one.part, one.state, one.detail)
            raised.add((one.part, one.state))
        for part, state in self._raised - raised:
            self._board.clear(part, state)
        self._raised = raised
