"""Keeps the order of MQTT messages after one of them could not be stored."""

from __future__ import annotations

from collections.abc import Sequence

from fieldbrook.actors.wire import (
    BY_MQTT,
    NODE_COMMAND,
    RESUME,
    SOURCE_BITS,
    EventResult,
    Requester,
    WireEvent,
)
from fieldbrook.core.errors import UnavailableError, to_wire


class MqttOrder:
    """Refuses further MQTT messages of a gateway until the gateway has read that one was not
    stored.

    The gateway has already sent later messages, which must not run before the refused one.
    """

    def __init__(self) -> None:
        self.held: set[Requester] = set()  # the connections whose messages are refused

    def hold(self, connection: Requester, events: Sequence[WireEvent]) -> None:
        """Begin to refuse messages, if the events that were not stored came by MQTT."""
        if any(event[5] & SOURCE_BITS == BY_MQTT for event in events):
            self.held.add(connection)

    def refusal(self, connection: Requester, event: WireEvent) -> EventResult | None:
        """Return the refusal of an event that follows one that was not stored.

        None means that the event may run. The command `RESUME` ends the refusals.
        """
        if event[1] == NODE_COMMAND and event[0] == RESUME:
            self.held.discard(connection)
        if connection not in self.held or event[5] & SOURCE_BITS != BY_MQTT:
            return None
        return to_wire(UnavailableError(what="an earlier event could not be stored"))

    def forget_closed(self) -> None:
        """Forget connections that are closed."""
        self.held.difference_update([each for each in self.held if each.closed])
