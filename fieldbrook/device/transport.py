"""What sends events: one of HTTP and one of MQTT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fieldbrook.device.address import Address
from fieldbrook.device.event import Event, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """As whom to send, and to which project."""

    project: str
    publisher: str
    token: str = field(repr=False)


class Transport(Protocol):
    """Sends events of one publisher. It is used by one thread, but for `abort`."""

    def send(self, events: Sequence[Event]) -> list[Outcome]:
        """Send events in order, and wait for what the node makes of each.

        Returns:
            An outcome for each event, in the same order.
        """

    def abort(self) -> None:
        """End a `send` of another thread: what is not answered is `Later`. Later calls do the
        same at once."""

    def close(self) -> None:
        """Close the connection; another `send` would open it again."""


def open_transport(address: Address, sender: Sender, timeout_s: float) -> Transport:
    """Make what sends to an address; it connects when it is used.

    Args:
        timeout_s: how long the node may be silent before events are sent again.
    """
    if address.mqtt:
        from fieldbrook.device.mqtt_transport import MqttTransport

        return MqttTransport(address, sender, timeout_s)
    from fieldbrook.device.http_transport import HttpTransport

    return HttpTransport(address, sender, timeout_s)
