"""The device library: `Device` keeps events on its disk and sends them to a node, each once.

It needs the standard library only, and paho-mqtt when the node's address begins with `mqtt`. It
imports no other part of fieldbrook, so it runs where a node does not.

In: events of an application, the address of a node, the token of a publisher.
Out: requests over HTTP or MQTT; the node's answer to each event, for the application's callbacks.
Open first: `device.py`, then `sender.py` (order and repetition) and `disk_queue.py`.
"""

from fieldbrook.device.device import Device
from fieldbrook.device.errors import (
    DeviceError,
    InvalidEventError,
    QueueBusyError,
    QueueError,
    QueueFullError,
)
from fieldbrook.device.event import Accepted, Event, HandlerResult, Later, Outcome, Refused

__all__ = [
    "Accepted",
    "Device",
    "DeviceError",
    "Event",
    "HandlerResult",
    "InvalidEventError",
    "Later",
    "Outcome",
    "QueueBusyError",
    "QueueError",
    "QueueFullError",
    "Refused",
]
