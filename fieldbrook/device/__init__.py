"""The device library: `Device` keeps events on its disk and sends them to a node, which runs each
once.

It needs only the standard library, and paho-mqtt if the node's address begins with `mqtt`. It
imports no other part of fieldbrook, so it also runs on systems on which a node does not run.

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
