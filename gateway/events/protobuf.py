"""Data messages in protobuf, as ESP32 firmware sends them over MQTT.

The descriptor is built at import, so no generated code is needed. Source: interface document, 3.5.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from fieldbrook.core.errors import FieldError, MalformedMessageError
from fieldbrook.gateway.auth import strip_scheme
from fieldbrook.gateway.events.request import Meta

_Field = descriptor_pb2.FieldDescriptorProto
_HEADER = (
    ("event_type", 1, _Field.TYPE_STRING),
    ("pub_id", 2, _Field.TYPE_STRING),
    ("token", 3, _Field.TYPE_STRING),
    ("pub_time", 4, _Field.TYPE_INT64),
    ("event_id", 5, _Field.TYPE_STRING),
)


def _describe() -> type[Message]:
    file = descriptor_pb2.FileDescriptorProto(
        name="fieldbrook/event.proto", package="fieldbrook", syntax="proto3"
    )
    header = file.message_type.add(name="Header")
    for name, number, kind in _HEADER:
        header.field.add(name=name, number=number, type=kind, label=_Field.LABEL_OPTIONAL)
    event = file.message_type.add(name="Event")
    event.field.add(
        name="header",
        number=1,
        type=_Field.TYPE_MESSAGE,
        type_name=".fieldbrook.Header",
        label=_Field.LABEL_OPTIONAL,
    )
    event.field.add(name="payload", number=2, type=_Field.TYPE_BYTES, label=_Field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("fieldbrook.Event"))


Event: Any = _describe()
"""The class of messages; its attributes are the fields."""


def decode_event(body: bytes) -> tuple[Meta, bytes]:
    """Decode a message; return its header as the metadata of a raw event, and its payload.

    `pub_id` is ignored: the token identifies the sender (interface document, 3.5).

    Raises:
        MalformedMessageError: the bytes are not such a message.
    """
    event = Event()
    try:
        event.ParseFromString(body)
    except DecodeError as error:
        raise MalformedMessageError(FieldError("body", f"not protobuf: {error}", "body")) from None
    header = event.header
    meta = Meta(
        header.event_type, header.event_id, str(header.pub_time), strip_scheme(header.token)
    )
    return meta, event.payload
