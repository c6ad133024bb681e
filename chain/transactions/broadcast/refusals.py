"""Pauses of accounts whose next transaction was refused."""

from __future__ import annotations

from typing import NamedTuple

from fieldbrook.core.clock import Clock

_PAUSES_S = (0.5, 1, 2, 5)  # before the next attempt, by the number of consecutive refusals


class _Row(NamedTuple):
    times: int = 0  # consecutive refusals
    until: int = 0  # end of the pause, in Unix ms


class Refusals:
    """The consecutive refusals of each account's next transaction, and the pause until a retry."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rows: dict[str, _Row] = {}

    def times(self, sender: str) -> int:
        """Return the number of consecutive refusals of the account's next transaction."""
        return self._rows.get(sender, _Row()).times

    def is_paused(self, sender: str) -> bool:
        """Return whether the account still pauses before the next attempt."""
        return self._clock() < self._rows.get(sender, _Row()).until

    def record(self, sender: str) -> None:
        """Record a refusal and pause the account, longer after each consecutive refusal."""
        times = self.times(sender) + 1
        pause_s = _PAUSES_S[min(times, len(_PAUSES_S)) - 1]
        self._rows[sender] = _Row(times, self._clock() + int(pause_s * 1_000))

    def clear(self, sender: str) -> None:
        """Forget the refusals of an account."""
        self._rows.pop(sender, None)
