"""The transport of a device: the interface behind which HTTP and MQTT send events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fieldbrook.device.event import Event, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """The publisher that sends, and its project."""

    project: str
    publisher: str
    token: str = field(repr=False)


class Transport(Protocol):
    """Sends events of one publisher. Only one thread uses it, except for `abort`."""

    def send(self, events: Sequence[Event]) -> list[Outcome]:
        """Send events in order, and wait for the outcome of each.

        Returns:
            An outcome for each event, in the same order.
        """

    def abort(self) -> None:
        """Abort a `send` of another thread: unanswered events get the outcome `Later`. Later calls
        of `send` return the same at once."""

    def close(self) -> None:
        """Close the connection; another `send` would open it again."""
