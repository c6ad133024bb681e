"""Data messages in protobuf, as ESP32 firmware sends them over MQTT.

Only the two messages below are needed, so the node reads the wire format itself. Like protobuf's
own parsers, it takes the last value of a field that occurs twice, merges headers, and ignores
unknown fields and fields of another wire type.

    message Header {
      string event_type = 1;
      string pub_id = 2;
      string token = 3;
      int64 pub_time = 4;
      string event_id = 5;
    }
    message Event {
      Header header = 1;
      bytes payload = 2;
    }

Source: interface document, 3.5; https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

from collections.abc import Iterator

from fieldbrook.core.errors import FieldError, MalformedMessageError
from fieldbrook.gateway.auth import strip_scheme
from fieldbrook.gateway.events.request import Meta

_VARINT, _EIGHT_BYTES, _LENGTH, _GROUP, _GROUP_END, _FOUR_BYTES = range(6)
_SIZES = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}
_HEADER, _PAYLOAD = 1, 2
_EVENT_TYPE, _PUB_ID, _TOKEN, _PUB_TIME, _EVENT_ID = range(1, 6)
_STRINGS = frozenset({_EVENT_TYPE, _PUB_ID, _TOKEN, _EVENT_ID})
_VARINT_BYTES = 10  # 64 bits, seven in each byte
_TAG_BYTES = 5
_TAG_LIMIT = 1 << 32
_GROUPS_LIMIT = 100  # groups within groups, as in protobuf's own parsers
_FIELDS_LIMIT = 1_000  # in a message with its headers; half a million fields took a second


def decode_event(body: bytes) -> tuple[Meta, bytes]:
    """Decode a message; return its header as the metadata of a raw event, and its payload.

    `pub_id` is ignored: the token identifies the sender (interface document, 3.5).

    Raises:
        MalformedMessageError: the bytes are not such a message, or it has more than
            `_FIELDS_LIMIT` fields.
    """
    places = iter(range(_FIELDS_LIMIT))
    texts = dict.fromkeys(_STRINGS, "")
    pub_time, payload = 0, b""
    try:
        for number, value in _fields(body, places):
            if number == _PAYLOAD and isinstance(value, bytes):
                payload = value
            elif number == _HEADER and isinstance(value, bytes):
                for key, item in _fields(value, places):
                    if key in _STRINGS and isinstance(item, bytes):
                        texts[key] = item.decode()
                    elif key == _PUB_TIME and isinstance(item, int):
                        pub_time = item
    except ValueError as error:
        raise MalformedMessageError(FieldError("body", f"not protobuf: {error}", "body")) from None
    if pub_time >= 1 << 63:
        pub_time -= 1 << 64
    meta = Meta(texts[_EVENT_TYPE], texts[_EVENT_ID], str(pub_time), strip_scheme(texts[_TOKEN]))
    return meta, payload


def _fields(data: bytes, places: Iterator[int]) -> Iterator[tuple[int, int | bytes | None]]:
    """Iterate over the fields of a message: the number of each, and its varint or bytes.

    The value of a field of fixed size is None, and the content of groups is skipped, because no
    field that the node uses has these forms. Each field uses one of the places.

    Raises:
        ValueError: the data is no message, or has more fields than there are places.
    """
    at = 0
    groups: list[int] = []
    while at < len(data):
        tag, at = _varint(data, at, _TAG_BYTES)
        number, kind = tag >> 3, tag & 7
        value: int | bytes | None = None
        if next(places, None) is None:
            raise ValueError(f"it has more than {_FIELDS_LIMIT} fields")
        if tag >= _TAG_LIMIT or not (number or groups):
            raise ValueError("a field has an impossible number")
        if kind == _GROUP:
            groups.append(number)
            if len(groups) > _GROUPS_LIMIT:
                raise ValueError("too many groups within groups")
        elif kind == _GROUP_END:
            if not groups or groups.pop() != number:
                raise ValueError("a group ends that has not begun")
            continue
        elif kind == _VARINT:
            value, at = _varint(data, at, _VARINT_BYTES)
        else:
            size = _SIZES.get(kind, -1)
            if kind == _LENGTH:
                size, at = _varint(data, at, _VARINT_BYTES)
                value = data[at : at + size]
            if not 0 <= size <= len(data) - at:
                raise ValueError("a field has another form or is cut")
            at += size
        if not groups:
            yield number, value
    if groups:
        raise ValueError("a group does not end")


def _varint(data: bytes, at: int, limit: int) -> tuple[int, int]:
    """Read an integer of 64 bits at `at`; return it and the position after it.

    Raises:
        ValueError: the data ends within it, or it has more than `limit` bytes.
    """
    value = 0
    for index in range(limit):
        if at + index >= len(data):
            raise ValueError("it is cut")
        byte = data[at + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value & ((1 << 64) - 1), at + index + 1
    raise ValueError("a number is too long")
