"""Types that both implementations return."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Stat(NamedTuple):
    """Resident bytes, CPU seconds since the start, and the start in Unix milliseconds."""

    resident: float
    cpu_s: float
    started_ms: int


class Deaths(Protocol):
    """Reports the deaths of processes."""

    def wait(self, timeout_s: float) -> list[int]:
        """Return the ids of dead processes, after waiting up to `timeout_s` for the first."""
        ...

    def close(self) -> None:
        """Stop watching."""
        ...
