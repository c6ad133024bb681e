"""One handler run as its host functions see it, and what can perform it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol


def _nothing(_key: bytes) -> bytes | None:
    return None


class Run:
    """What a handler is given and what it leaves behind. Used for one run, then read.

    `read` looks a key up below the overlay; it may raise a NodeError, which ends the run
    and comes out of `Host.run`. `writes` is the overlay: the handler sees its own writes
    first. `logs` holds (level, source, text); it stays whatever becomes of the run, while
    `writes` counts only when the run did not fail.
    """

    __slots__ = ("env", "event_type", "logs", "payload", "read", "writes")

    def __init__(
        self,
        payload: bytes,
        event_type: str = "DEFAULT",
        env: Mapping[str, str] | None = None,
        read: Callable[[bytes], bytes | None] = _nothing,
    ) -> None:
        self.payload = payload
        self.event_type = event_type
        self.env: Mapping[str, str] = {} if env is None else env
        self.read = read
        self.writes: dict[bytes, bytes] = {}
        self.logs: list[tuple[int, str, str]] = []


class Host(Protocol):
    """A linked applet, ready to run. One thread at a time."""

    @property
    def handlers(self) -> tuple[str, ...]:
        """The names `run` accepts."""
        ...

    def run(self, handler: str, run: Run) -> tuple[int, str]:
        """Run one handler over one event in an instance of its own.

        Returns:
            The handler's code and an empty text, or -1 and the reason why there is no
            code: a trap, a budget, an exit, a handler that is not exported.

        Raises:
            NodeError: what `run.read` raised; nothing of the run may be kept but its logs.
        """
        ...

    def run_batch(self, handler: str, runs: Sequence[Run]) -> list[tuple[int, str]]:
        """Run one handler over several events in one instance, as many as go well.

        For applets that allow it: an event may find what earlier ones left in the
        instance. Each has budgets of its own and sees what earlier ones wrote.

        Returns:
            Codes and empty texts of the first runs. The next one, if any, left no trace
            and is to be given to `run`: it failed here, did not fit or came too late, and
            only an instance of its own tells what is its own fault.
        """
        ...

    def close(self) -> None:
        """Release the module. The host cannot run afterwards."""
        ...
