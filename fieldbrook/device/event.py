"""An event for a node, and the outcomes that it can have."""

from __future__ import annotations

import base64
import json
import re
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from fieldbrook.device.errors import InvalidEventError

TYPE_LIMIT = 256
ID_SHORTEST, ID_LIMIT = 16, 128
"""A node takes a shorter id for a label, which several events may have: they would run twice."""
_OVERHEAD_BYTES = 200  # of an event in the queue and in a request, beside its payload
_ERROR = re.compile(
    r"\[\]@StatusErr\[(?P<key>\w+)\]\[(?P<code>[0-9]+)\]\[(?P<msg>[^\]]*)\]!?(?P<desc>.*)",
    re.DOTALL,
)
_TIMES = range(-(1 << 63), 1 << 63)


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the device.

    `at_ms` is when it happened, in Unix milliseconds; None for an event that has no time. The node
    recognises an event that is sent again by all four fields.
    """

    event_type: str
    payload: bytes = field(repr=False)
    event_id: str
    at_ms: int | None

    @property
    def size_bytes(self) -> int:
        """The size that counts for the limits of the queue and of a request."""
        return len(self.payload) + len(self.event_type) + len(self.event_id) + _OVERHEAD_BYTES

    def message(self, publisher: str, token: str) -> dict[str, Any]:
        """The event as a node takes it over HTTP and MQTT (docs/reference/clients.md)."""
        header: dict[str, Any] = {
            "event_type": self.event_type,
            "pub_id": publisher,
            "token": token,
            "event_id": self.event_id,
        }
        if self.at_ms is not None:
            header["pub_time"] = self.at_ms
        return {"header": header, "payload": base64.b64encode(self.payload).decode()}


@dataclass(frozen=True, slots=True)
class HandlerResult:
    """The result of one handler. `error` is "" unless the handler failed."""

    instance_id: str
    code: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The node has handled the event, and its effects are on the node's disk.

    `results` are those of its handlers, also of failed ones, whose events the node keeps as dead
    letters; over MQTT the node does not tell them. `replayed` says that the node had handled the
    event before and did not run it again.
    """

    results: tuple[HandlerResult, ...] = ()
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """The node will never take the event. `status` and `key` are those of docs/reference/errors.md;
    over MQTT 3.1.1 the node does not tell that it refused."""

    status: int
    key: str
    text: str = ""

    def __str__(self) -> str:
        return f"{self.status} {self.key}" + (f": {self.text}" if self.text else "")


@dataclass(frozen=True, slots=True)
class Later:
    """The event has to be sent again: no answer, or the node cannot take it now."""

    reason: str
    retry_after_s: float = 0.0


Outcome = Accepted | Refused | Later


def make_event(
    event_type: str, payload: object, event_id: str | None = None, at: float | None = None
) -> Event:
    """Make an event of what an application gives.

    Args:
        event_type: its type, 1 to 256 printable characters.
        payload: bytes as they are, text as UTF-8, anything else as JSON.
        event_id: 16 to 128 printable characters, unique for the publisher; None for a new one.
        at: when it happened, in Unix seconds. None: now for an event with a new id, and no time for
            one with an id of the application, so that the same call makes the same event.

    Raises:
        InvalidEventError: one of them is not valid.
    """
    if not (0 < len(event_type) <= TYPE_LIMIT and event_type.isprintable()):
        raise InvalidEventError(
            f"an event type must have 1 to {TYPE_LIMIT} printable characters: {event_type!r}"
        )
    if event_id is None:
        event_id, at = str(uuid.uuid4()), time.time() if at is None else at
    elif not (ID_SHORTEST <= len(event_id) <= ID_LIMIT and event_id.isprintable()):
        raise InvalidEventError(
            f"an event id must have {ID_SHORTEST} to {ID_LIMIT} printable characters: {event_id!r}"
        )
    try:
        at_ms = None if at is None else int(at * 1000)
    except (OverflowError, ValueError):
        raise InvalidEventError(f"{at} is not a time in Unix seconds") from None
    if at_ms is not None and at_ms not in _TIMES:
        raise InvalidEventError(f"{at} is not a time in Unix seconds")
    return Event(event_type, _bytes_of(payload), event_id, at_ms)


def _bytes_of(payload: object) -> bytes:
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload)
    try:
        if isinstance(payload, str):
            return payload.encode()
        return json.dumps(payload, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEventError(f"the payload is neither bytes, text nor JSON: {error}") from None


def failure(status: int, key: str, text: str, retry_after_s: float = 0.0) -> Refused | Later:
    """Return the outcome for an error of the node: 4xx except 429 is a final refusal."""
    if 400 <= status < 500 and status != 429:
        return Refused(status, key, text)
    return Later(f"{status} {key}: {text}" if text else f"{status} {key}", retry_after_s)


def failure_in_text(text: str) -> Refused | Later | None:
    """Read an error as it stands in the answer to one event of a batch, and in MQTT's reasons.

    Its form is `[]@StatusErr[KEY][CODE][MESSAGE]DETAILS`, where CODE begins with the status. None:
    the text has another form.
    """
    match = _ERROR.match(text)
    if match is None:
        return None
    words = ": ".join(filter(None, (match["msg"], match["desc"].strip())))
    return failure(int(match["code"][:3]), match["key"], words)
