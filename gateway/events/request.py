"""Metadata of event requests (query and headers), event identity, and the form of a body.

Source: interface document, 3.3, 3.6 and 4.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import unquote_plus

import msgspec

from fieldbrook.actors.wire import KEYED, NAMED, delivered, keyed
from fieldbrook.core.errors import BadRequestError, FieldError
from fieldbrook.core.model import DEFAULT_EVENT_TYPE, EVENT_TYPE_LIMIT
from fieldbrook.gateway.auth import request_token
from fieldbrook.gateway.events.message import (
    EVENT_ID_LIMIT,
    NOT_JSON,
    header_token,
    members,
    message_token,
    trimmed,
)

DATA_PUSH = "DA-TA_PU-SH"
"""The event type of a request that carries events of many devices."""

_INT64 = 1 << 63

NAME_LENGTH = 16
"""The minimum length of an event id that identifies its event for deduplication. A shorter id is
only a label for the event history, because firmware sends constants such as `ESP32`."""
KEY_LIMIT = 255
KEY_HEADER = "Idempotency-Key"

DeliveryName = tuple[str, int]
"""The name of an MQTT delivery, and a flag: store the name (`wire.DELIVERY`) or look it up
(`wire.REDELIVERY`)."""
NO_NAME: DeliveryName = ("", 0)


class Meta(NamedTuple):
    """The metadata in the query and in the headers `Authorization`, `Idempotency-Key` and
    `traceparent`.

    `event_type` is None when the query has none; the body may then be a data message.
    """

    event_type: str | None = None
    event_id: str = ""
    timestamp: str = ""
    token: str = ""
    key: str | None = None
    traceparent: str = ""

    @property
    def matched_type(self) -> str:
        """The event type; an absent or empty one is `DEFAULT`."""
        return self.event_type or DEFAULT_EVENT_TYPE


NO_META = Meta()


def read_meta(
    query: str, authorization: str | None, key: str | None = None, traceparent: str = ""
) -> Meta:
    """Read the metadata of a request; the first value of a repeated parameter counts.

    Args:
        query: the query of the URL without `?`, still percent-encoded.
        authorization: the header's value, if there is one.
        key: the value of `Idempotency-Key`, if there is one.
        traceparent: the value of `traceparent`, "" without one or if events are not traced.
    """
    if not query:
        if not authorization and key is None and not traceparent:
            return NO_META
        token = request_token(None, authorization)
        return Meta(token=token, key=key, traceparent=traceparent)
    found: dict[str, str] = {}
    for part in query.split("&"):
        name, _, value = part.partition("=")
        if "%" in part or "+" in part:
            name, value = unquote_plus(name), unquote_plus(value)
        found.setdefault(name, value)
    return Meta(
        event_type=found.get("eventType"),
        event_id=found.get("eventID", ""),
        timestamp=found.get("timestamp", ""),
        token=request_token(found.get("authorization"), authorization),
        key=key,
        traceparent=traceparent,
    )


def check_meta(meta: Meta) -> str:
    """Check the metadata; return the event's id in lower case, or "" if there is none.

    The time stamp may be any 64-bit integer, because clients send seconds, milliseconds and
    microseconds. Only its form is checked.

    Raises:
        BadRequestError: the id or the type is too long, or the time stamp is no integer.
    """
    wrong = []
    if len(meta.matched_type) > EVENT_TYPE_LIMIT:
        wrong.append(
            FieldError("eventType", f"longer than {EVENT_TYPE_LIMIT} characters", "query"),
        )
    if len(meta.event_id) > EVENT_ID_LIMIT:
        wrong.append(
            FieldError("eventID", f"longer than {EVENT_ID_LIMIT} characters", "query"),
        )
    if meta.timestamp and not _is_int64(meta.timestamp):
        wrong.append(FieldError("timestamp", "not a 64-bit integer", "query"))
    if wrong:
        raise BadRequestError(*wrong)
    return meta.event_id.lower()


def read_key(value: str | None) -> str:
    """Read the key in the header `Idempotency-Key`; "" when there is no such header.

    The key may be in quotation marks, as in the IETF's draft, or without, as clients send it.

    Args:
        value: the header's value; several are joined by line feeds.

    Raises:
        BadRequestError: the key is empty, longer than `KEY_LIMIT`, sent more than once, or not
            printable ASCII.
    """
    if value is None:
        return ""
    key = value.strip()
    if len(key) >= 2 and key[0] == key[-1] == '"':
        key = key[1:-1]
    reason = ""
    if not key:
        reason = "empty; use a UUID"
    elif "\n" in key:
        reason = "sent more than once"
    elif len(key) > KEY_LIMIT:
        reason = f"longer than {KEY_LIMIT} characters"
    elif not (key.isascii() and key.isprintable()):
        reason = "has other characters than those of printable ASCII"
    if reason:
        raise BadRequestError(FieldError(KEY_HEADER, reason, "header"))
    return key


Identity = tuple[str, str, int]
"""The identity of an event: its id, its name and its flags (`wire.WireEvent`). A plain tuple,
because one is made for each event."""


def identify(
    sent_id: str,
    sent_time: int | str,
    delivery: DeliveryName,
    key: str,
    new_id: Callable[[], str],
) -> Identity:
    """Determine the identity of an event, by which deduplication recognises a repetition.

    Args:
        sent_id: the event id as it was sent, "" for none.
        sent_time: the sender's time as it was sent, 0 or "" for none. It is part of the name,
            because some senders count their ids from 1 after each start.
        delivery: the name of the MQTT delivery.
        key: the `Idempotency-Key`, "" for none.
        new_id: makes an id for an event that has none.
    """
    name, kind = delivery
    event_id = sent_id or new_id()
    if len(sent_id) >= NAME_LENGTH:
        name, kind = f"{sent_time or 0} {sent_id}", NAMED
    elif sent_id:
        # The id is only a label, so the name must differ from the names of other events with this
        # id.
        name = delivered(name, new_id()) if name else new_id()
    elif name:
        name = delivered(name, event_id)
    if key:
        name, kind = keyed(key, name if kind & NAMED else ""), kind | KEYED
    return event_id, name, kind


def parse_content_length(text: str) -> int:
    """Read a `Content-Length` in bytes; 0 when it is not a number.

    A number of 19 digits or more counts as 2^63, because Python refuses to parse thousands of
    digits.
    """
    if not (text.isascii() and text.isdecimal()):
        return 0
    return int(text) if len(text) < len(str(_INT64)) else _INT64


def _is_int64(text: str) -> bool:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 19):
        return False
    return -_INT64 <= int(text) < _INT64


_decode_list = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode


def is_message(body: bytes, *, signed: bool = False) -> bool:
    """Return whether a body is a data message or a batch of data messages.

    A data message is a JSON object with `header`; a batch has a list `events` of such objects.
    Keys may be in any case, as in Go's decoder. With `signed`, the message must also contain a
    token; of a batch that is not empty, at least one message must contain one.
    """
    body = trimmed(body)
    try:
        keys = members(body)
        if "header" in keys:
            return not signed or bool(message_token(body))
        if "events" not in keys:
            return False
        events = _decode_list(keys["events"])
    except NOT_JSON:
        return False
    headers = [_header_in(event) for event in events]
    if None in headers:
        return False
    return not signed or not headers or any(header_token(header) for header in headers)


def _header_in(event: dict[str, msgspec.Raw]) -> msgspec.Raw | None:
    return next((value for key, value in event.items() if key.lower() == "header"), None)
