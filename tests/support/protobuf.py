"""The messages of `gateway.events.protobuf`, encoded by the protobuf library."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

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
