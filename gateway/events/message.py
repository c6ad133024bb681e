"""Data messages as devices send them: the single-message JSON form."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Annotated, Any

import msgspec

from fieldbrook.core.bounded_json import from_json
from fieldbrook.core.errors import FieldError, MalformedMessageError
from fieldbrook.core.model import DEFAULT_EVENT_TYPE, EVENT_TYPE_LIMIT
from fieldbrook.security.tokens import TOKEN_LIMIT

MISSING = "missing required field"
EVENT_ID_LIMIT = 128
BOTH, BOTH_OR_NONE, NONE_NEEDED = "both", "both or none", "none needed"
"""Which of `pub_id` and `token` a message must have."""
BATCH_LIMIT = 8_192  # messages; it is also the limit of waiting events of one publisher
MEMBERS_LIMIT = 2_000
"""In a JSON text with more colons, keys must be in lower case. Comparing keys without regard to
case requires reading all members. A megabyte can have a hundred thousand members, which would
occupy the event loop for a quarter of a second. Members that are not requested cost almost
nothing."""


class Header(msgspec.Struct, forbid_unknown_fields=True):
    """The header of a data message; `pub_time` is in seconds or milliseconds, as it was sent.

    A header with other keys is read by `_decode_leniently`, because keys may be in another case.
    """

    pub_id: str
    token: str
    event_type: str = ""
    pub_time: Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)] = 0
    event_id: str = ""


class DataMessage(msgspec.Struct):
    """One message: the header and the decoded payload."""

    header: Header
    payload: bytes = b""

    @property
    def event_type(self) -> str:
        """The event type; an absent or empty one is `DEFAULT`."""
        return self.header.event_type or DEFAULT_EVENT_TYPE


class _OpenHeader(Header, forbid_unknown_fields=False):
    """A header in which any member may be absent, and unknown members are skipped."""

    pub_id: str = ""
    token: str = ""


class _LargeMessage(msgspec.Struct):
    """A message with more than `MEMBERS_LIMIT` members."""

    header: _OpenHeader
    payload: str | dict[str, Any] = ""


class _Signature(msgspec.Struct):
    token: str = ""


class _Signed(msgspec.Struct):
    """A message of which only the token is decoded."""

    header: _Signature


class _Members(msgspec.Struct):
    """The members of messages, batches and headers that the node uses."""

    header: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    events: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    token: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Batch(msgspec.Struct):
    events: list[msgspec.Raw]


# The decoder raises `RecursionError` for brackets that are nested too deeply.
NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_decode = msgspec.json.Decoder(DataMessage).decode
_decode_signed = msgspec.json.Decoder(_Signed).decode
_decode_batch = msgspec.json.Decoder(_Batch).decode
_decode_large = msgspec.json.Decoder(_LargeMessage).decode
_decode_members = msgspec.json.Decoder(_Members).decode
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode


def split_batch(body: bytes) -> list[msgspec.Raw] | None:
    """Split a batch `{"events": [message, ...]}` into its messages, each for `decode_message`.

    Returns None when the body is not of that form. Source: interface document, 3.1 and 3.6.

    Raises:
        MalformedMessageError: the batch has more than `BATCH_LIMIT` messages. A batch is handled
            in one turn of the loop, and one megabyte can hold half a million invalid messages.
    """
    body = trimmed(body)
    try:
        messages = _decode_batch(body).events
    except NOT_JSON:
        found = _batch_in_another_case(body)
        if found is None:
            return None
        messages = found
    if len(messages) > BATCH_LIMIT:
        reason = f"more than {BATCH_LIMIT} messages"
        raise MalformedMessageError(FieldError("events", reason, "body"))
    return messages


def _batch_in_another_case(body: bytes) -> list[msgspec.Raw] | None:
    try:
        value = members(body)
        return None if "events" not in value else _decode_list(value["events"])
    except NOT_JSON:
        return None


_PADDING = b"\0 \t\r\n\v\f"


def trimmed(body: bytes) -> bytes:
    """Strip NULs and white space after the JSON, because firmware in C sends whole buffers."""
    return body.rstrip(_PADDING)


SINGLE = (b'{"header"', b'{"payload"')
"""The first bytes of bodies that are certainly no batch."""


def is_single(body: bytes) -> bool:
    """Return whether a body is certainly not a batch.

    Only the first bytes are compared, because this check runs for every event.
    """
    return body.startswith(SINGLE)


def members(text: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """Return the members of a JSON object by their keys in lower case.

    Of an object with more than `MEMBERS_LIMIT` members, only `header`, `events` and `token` are
    returned, if their keys are in lower case.

    Raises:
        NOT_JSON: the text is no JSON object.
    """
    if not _has_many_members(text):
        return {key.lower(): value for key, value in _decode_object(text).items()}
    found = _decode_members(text)
    values = {name: getattr(found, name) for name in found.__struct_fields__}
    return {name: value for name, value in values.items() if value is not msgspec.UNSET}


def _has_many_members(text: bytes | msgspec.Raw) -> bool:
    return bytes(text).count(b":") > MEMBERS_LIMIT


def message_token(body: bytes) -> str:
    """Return the token in a message's header; "" if there is no token or the text is no message."""
    body = trimmed(body)
    try:
        token = _decode_signed(body).header.token
    except NOT_JSON:
        token = ""
    if token:
        return token
    try:
        return header_token(members(body).get("header"))
    except NOT_JSON:
        return ""


def header_token(header: msgspec.Raw | None) -> str:
    """Return the token in a header, with keys in any case; "" if there is none."""
    try:
        found = members(header).get("token") if header else None
        return msgspec.json.decode(found, type=str) if found else ""
    except NOT_JSON:
        return ""


def decode_message(body: bytes | msgspec.Raw, *, credentials: str = BOTH) -> DataMessage:
    """Decode one data message.

    Shape: `{"header": {"pub_id": str, "token": str, "event_type"?: str, "pub_time"?: int,
    "event_id"?: str}, "payload"?: base64 str}`; other keys are ignored. `pub_id` and `token`
    must not be empty. A payload may also be a JSON object, as early simulators send it; it is
    then encoded as JSON text. A message without a payload (a heartbeat) has an empty one. NULs
    and white space may follow the JSON.

    Args:
        body: UTF-8 JSON, already within the gateway's size limit.
        credentials: which of `pub_id` and `token` the message must have: `BOTH`, `BOTH_OR_NONE`
            (public projects) or `NONE_NEEDED` (the connection is logged in).

    Raises:
        MalformedMessageError: the body is not JSON, a field is absent, too long or of another
            type, or the payload is not base64; each offending field is named.

    Source: interface document, 1.4, 3.1 and 8.9.
    """
    try:
        message = _decode(body)
    except NOT_JSON:
        message = _decode_leniently(body, credentials)
    header = message.header
    if (
        len(header.event_id) > EVENT_ID_LIMIT
        or len(header.event_type) > EVENT_TYPE_LIMIT
        or len(header.token) > TOKEN_LIMIT
    ):
        # Queues count only the payload's bytes, so the length of these fields must be bounded.
        raise MalformedMessageError(
            *(
                FieldError(f"header.{name}", f"longer than {limit} characters", "body")
                for name, value, limit in (
                    ("event_id", header.event_id, EVENT_ID_LIMIT),
                    ("event_type", header.event_type, EVENT_TYPE_LIMIT),
                    ("token", header.token, TOKEN_LIMIT),
                )
                if len(value) > limit
            )
        )
    if not header.pub_id or not header.token:
        if not _required(header.pub_id, header.token, credentials):
            return message
        raise MalformedMessageError(
            *(
                FieldError(f"header.{name}", MISSING, "body")
                for name, value in (("pub_id", header.pub_id), ("token", header.token))
                if not value
            )
        )
    return message


def _decode_leniently(body: bytes | msgspec.Raw, credentials: str) -> DataMessage:
    """Decode a message that the fast decoder refused.

    Keys in another case and base64 with line breaks are accepted, as in Go's decoder. Otherwise
    the error names each offending field.
    """
    text = trimmed(bytes(body))
    if _has_many_members(text):
        return _decode_many_members(text)
    try:
        value = from_json(text, msgspec.json.decode)
    except ValueError as error:
        raise MalformedMessageError(desc=f"body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise MalformedMessageError(desc="body is not a JSON object")
    message = lower_keys(value)
    header = message.get("header")
    if "header" not in message:
        raise MalformedMessageError(FieldError("header", MISSING, "body"))
    if not isinstance(header, dict):
        raise MalformedMessageError(FieldError("header", "not a JSON object", "body"))
    header = {"pub_id": "", "token": "", **lower_keys(header)}
    required = _required(header["pub_id"], header["token"], credentials)
    errors = [*_header_errors(header, credentials=required)]
    payload = b""
    try:
        payload = _payload(message)
    except MalformedMessageError as error:
        errors += error.fields() or []
    if errors:
        raise MalformedMessageError(*errors)
    known = {name: header[name] for name in Header.__struct_fields__ if name in header}
    return DataMessage(msgspec.convert(known, Header), payload)


def _decode_many_members(text: bytes) -> DataMessage:
    try:
        message = from_json(text, _decode_large)
    except ValueError as error:
        reason = f"{error} (in a message with more than {MEMBERS_LIMIT:,} members)"
        raise MalformedMessageError(desc=reason) from None
    return DataMessage(message.header, _payload({"payload": message.payload}))


def _required(pub_id: object, token: object, credentials: str) -> bool:
    """Return whether a header with this id and token must have both."""
    nobody = credentials == BOTH_OR_NONE and pub_id == token == ""
    return not (nobody or credentials == NONE_NEEDED)


def lower_keys(value: dict[str, Any]) -> dict[str, Any]:
    """Lower an object's keys, for comparison as in Go's decoder, and drop null values."""
    return {key.lower(): item for key, item in value.items() if item is not None}


def _header_errors(header: dict[str, Any], *, credentials: bool) -> list[FieldError]:
    errors = []
    for name in ("event_type", "pub_id", "token", "event_id"):
        if not isinstance(header.get(name, ""), str):
            errors.append(FieldError(f"header.{name}", "not a string", "body"))
        elif credentials and name in ("pub_id", "token") and not header[name]:
            errors.append(FieldError(f"header.{name}", MISSING, "body"))
    pub_time = header.get("pub_time", 0)
    if isinstance(pub_time, bool) or not isinstance(pub_time, int):
        errors.append(FieldError("header.pub_time", "not an integer", "body"))
    elif not -(1 << 63) <= pub_time < 1 << 63:
        errors.append(FieldError("header.pub_time", "not a 64-bit integer", "body"))
    return errors


_LINE_BREAKS = re.compile(r"[\r\n]")
_ALPHABET = re.compile(r"[A-Za-z0-9+/]*={0,2}")


def _payload(message: dict[str, Any]) -> bytes:
    text = message.get("payload", "")
    if isinstance(text, dict):
        return msgspec.json.encode(text)
    if not isinstance(text, str):
        raise MalformedMessageError(FieldError("payload", "not a base64 string", "body"))
    text = _LINE_BREAKS.sub("", text)
    match = _ALPHABET.match(text)
    good = match.end() if match else 0
    try:
        if good == len(text):
            return base64.b64decode(text, validate=True)
    except binascii.Error:
        good = len(text)
    reason = f"illegal base64 data at input byte {good}"
    raise MalformedMessageError(FieldError("payload", reason, "body"))
