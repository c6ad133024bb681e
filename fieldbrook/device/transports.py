"""Chooses the transport of a device by the address."""

from __future__ import annotations

from fieldbrook.device.address import Address
from fieldbrook.device.transport import Sender, Transport


def open_transport(address: Address, sender: Sender, timeout_s: float) -> Transport:
    """Make the transport for an address; it connects at its first use.

    Args:
        timeout_s: how long the node may be silent before events are sent again.
    """
    if address.mqtt:
        from fieldbrook.device.mqtt_transport import MqttTransport

        return MqttTransport(address, sender, timeout_s)
    from fieldbrook.device.http_transport import HttpTransport

    return HttpTransport(address, sender, timeout_s)
