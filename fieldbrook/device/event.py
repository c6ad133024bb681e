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
"""For a node, a shorter id is only a label, which several events may have; repeated events would
run twice."""
_OVERHEAD_BYTES = 200  # added to the payload's size, in the queue and in a request
_ERROR = re.compile(
    r"\[\]@StatusErr\[(?P<key>\w+)\]\[(?P<code>[0-9]+)\]\[(?P<msg>[^\]]*)\]!?(?P<desc>.*)",
    re.DOTALL,
)
_TIMES = range(-(1 << 63), 1 << 63)


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the device.

    `at_ms` is when the event happened, in Unix milliseconds; None for an event without a time. The
    node recognises an event that is sent again by all four fields.
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
        """Return the event in the form for HTTP and MQTT (docs/reference/clients.md)."""
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

    `results` are the results of its handlers, including failed ones, whose events the node keeps as
    dead letters; they are not available over MQTT. `replayed` is set if the node had handled the
    event before and did not run it again.
    """

    results: tuple[HandlerResult, ...] = ()
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """The node will never accept the event. For `status` and `key` see docs/reference/errors.md;
    over MQTT 3.1.1 a refusal is not reported."""

    status: int
    key: str
    text: str = ""

    def __str__(self) -> str:
        return f"{self.status} {self.key}" + (f": {self.text}" if self.text else "")


@dataclass(frozen=True, slots=True)
class Later:
    """The event has to be sent again: there was no answer, or the node cannot accept it now."""

    reason: str
    retry_after_s: float = 0.0


Outcome = Accepted | Refused | Later


def make_event(
    event_type: str, payload: object, event_id: str | None = None, at: float | None = None
) -> Event:
    """Make an event from the arguments of an application.

    Args:
        event_type: its type, 1 to 256 printable characters.
        payload: bytes are sent unchanged, text as UTF-8, anything else as JSON.
        event_id: 16 to 128 printable characters, unique for the publisher; None for a new one.
        at: when the event happened, in Unix seconds. None stands for now if the id is new, and for
            no time if the application gives the id, so that the same call makes the same event.

    Raises:
        InvalidEventError: an argument is not valid.
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
    """Parse an error in the answer to an event of a batch, or in a reason of MQTT.

    Its form is `[]@StatusErr[KEY][CODE][MESSAGE]DETAILS`, where CODE begins with the status. The
    result is None if the text has another form.
    """
    match = _ERROR.match(text)
    if match is None:
        return None
    words = ": ".join(filter(None, (match["msg"], match["desc"].strip())))
    return failure(int(match["code"][:3]), match["key"], words)
