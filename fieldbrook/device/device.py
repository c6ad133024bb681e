"""`Device`: the class that an application uses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, Self

from fieldbrook.device.address import read_address
from fieldbrook.device.disk_queue import DiskQueue
from fieldbrook.device.errors import DeviceError
from fieldbrook.device.event import Accepted, Event, Refused, make_event
from fieldbrook.device.sender import EventSender
from fieldbrook.device.transport import Sender
from fieldbrook.device.transports import open_transport


class Device:
    """Sends the events of one device, a publisher of a project, to a node.

    `send` puts an event into a queue on the device's disk and returns. A thread sends the queued
    events in order, and repeats each with the same event id until the node has answered. The node
    runs an event once, even if it arrives several times. Events that were not answered when the
    process ended are sent by the next `Device` with the same queue.

        with Device("https://node.example:8888", project="room", publisher="sensor-1",
                    token=token, queue="/var/lib/sensor") as device:
            device.send("TEMPERATURE", {"celsius": 21.5})

    At the end of a `with` block, the device waits up to 5 seconds until unsent events are sent.

    Args:
        url: `http://`, `https://`, `mqtt://` or `mqtts://` with host and port.
        project: the name of the project.
        publisher: the key of the publisher.
        token: the token of the publisher.
        queue: a folder for the queue of only this device; it is created if it is missing.
        ca: a PEM file of the authorities to trust; None for those of the system.
        certificate: a PEM file with a certificate of the device, if the node asks for one.
        key: the PEM file of the certificate's key.
        limit_events: how many events the queue holds.
        limit_bytes: how many bytes the events may have; each counts 200 in addition to payload,
            type and id.
        when_full: `refuse`: `send` raises `QueueFullError`; `drop-oldest`: the oldest events
            are dropped and counted in `dropped`.
        sync: whether `send` waits until the event is on the disk, so that it survives a power cut.
        batch_events: how many events are sent together. With 1, the order is kept even if the node
            temporarily refuses events.
        batch_bytes: how many bytes are sent together.
        timeout_s: how long the node may be silent before events are sent again.
        on_accepted: called when the node has handled an event, in the sending thread.
        on_refused: called when the node refuses an event permanently, in the sending thread.

    Raises:
        DeviceError: the URL, a certificate or a limit is not valid.
        QueueBusyError: another process uses the queue.
        QueueError: the queue cannot be opened.
    """

    def __init__(
        self,
        url: str,
        *,
        project: str,
        publisher: str,
        token: str,
        queue: str | Path,
        ca: str | Path | None = None,
        certificate: str | Path | None = None,
        key: str | Path | None = None,
        limit_events: int = 100_000,
        limit_bytes: int = 64 << 20,
        when_full: Literal["refuse", "drop-oldest"] = "refuse",
        sync: bool = True,
        batch_events: int = 100,
        batch_bytes: int = 512 << 10,
        timeout_s: float = 30.0,
        on_accepted: Callable[[Event, Accepted], object] | None = None,
        on_refused: Callable[[Event, Refused], object] | None = None,
    ) -> None:
        """Open the queue and start to send. The node need not be running yet."""
        paths = [None if path is None else str(path) for path in (ca, certificate, key)]
        _require_positive(limit_events, limit_bytes, batch_events, batch_bytes, timeout_s)
        if when_full not in ("refuse", "drop-oldest"):
            raise DeviceError(f"when_full must be 'refuse' or 'drop-oldest', not {when_full!r}")
        sender = Sender(project=project, publisher=publisher, token=token)
        transport = open_transport(read_address(url, *paths), sender, timeout_s)
        self._queue = DiskQueue(Path(queue), limit_events, limit_bytes, sync=sync)
        self._drop_oldest = when_full == "drop-oldest"
        self._sender = EventSender(
            *(self._queue, transport, batch_events, batch_bytes, on_accepted, on_refused)
        )
        self.dropped = 0
        """The number of events that a full queue has dropped since this object was created."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(
        self,
        event_type: str,
        payload: object = b"",
        *,
        event_id: str | None = None,
        at: float | None = None,
    ) -> str:
        """Put an event into the queue. When this returns, the event will be sent.

        Args:
            event_type: the type of the event, which selects the handler.
            payload: bytes are sent unchanged, text as UTF-8, anything else as JSON.
            event_id: 16 to 128 printable characters, unique for the publisher; None for a new one.
            at: when the event happened, in Unix seconds. None stands for now or, for an event with
                an `event_id`, for no time, so that the same call makes the same event.

        Returns:
            The event's id.

        Raises:
            InvalidEventError: no node would accept the event.
            QueueFullError: the queue is full.
            QueueError: the queue cannot be written, e.g. because the disk is full.
        """
        event = make_event(event_type, payload, event_id, at)
        self.dropped += self._queue.add(event, drop_oldest=self._drop_oldest)
        self._sender.wake()
        return event.event_id

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until no event waits; return False if the time was not enough."""
        return self._sender.wait_until_sent(timeout_s)

    @property
    def pending(self) -> int:
        """The number of events that the node has not answered."""
        return self._queue.waiting

    @property
    def last_error(self) -> str:
        """The reason of the last failed attempt; "" if the last attempt succeeded."""
        return self._sender.last_error

    def refused(self) -> list[tuple[Event, str]]:
        """The refused events that the queue still holds, with the node's reasons.

        They stay there until the space is needed.
        """
        return [(queued.event, queued.refused) for queued in self._queue.refused()]

    def resend_refused(self) -> int:
        """Send the refused events again, e.g. after the token was replaced; return their number."""
        count = self._queue.restore_refused()
        self._sender.wake()
        return count

    def close(self, flush_s: float = 5.0) -> None:
        """Wait up to `flush_s` seconds for queued events, then stop. The rest stays on disk."""
        if flush_s > 0:
            self.flush(flush_s)
        self._sender.close()
        self._queue.close()


def _require_positive(*limits: float) -> None:
    if min(limits) <= 0:
        raise DeviceError(
            "limit_events, limit_bytes, batch_events, batch_bytes and timeout_s must be above 0"
        )
