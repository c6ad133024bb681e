"""Errors that an application of the device library may catch."""

from __future__ import annotations


class DeviceError(Exception):
    """Base class of the library's errors."""


class InvalidEventError(DeviceError, ValueError):
    """No node would accept such an event: its type, id, time or payload is not valid."""


class QueueError(DeviceError):
    """The queue on disk cannot be read or written, e.g. because the disk is full."""


class QueueBusyError(QueueError):
    """Another process, or another `Device` of this process, uses the queue."""


class QueueFullError(QueueError):
    """The queue has reached its limit of events or bytes. The event was not kept."""
