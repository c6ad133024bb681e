"""MQTT messages: those that an applet publishes, and the one that caused its event."""

from __future__ import annotations

import re

from fieldbrook.wasm.host.guest import Functions, Guest, GuestError
from fieldbrook.wasm.module import abi
from fieldbrook.wasm.run import Message

TOPIC_BYTES = 65_535
# A broker closes the connection when a message is too large for it. It would do so at every retry,
# which would block the messages of all projects. The node's own MQTT port accepts at least this
# size.
MESSAGE_BYTES = 1 << 20
# For the same reason topics must not contain control characters and non-characters (MQTT
# 3.1.1, 1.5.3), nor white space, which some brokers do not support.
_UNCARRIED = re.compile(
    "[\\x00-\\x20\\x7f-\\x9f\\ufdd0-\\ufdef"
    + "".join(chr(plane << 16 | last) for plane in range(17) for last in (0xFFFE, 0xFFFF))
    + "]"
)


def functions(guest: Guest) -> Functions:
    """Return `ws_send_mqtt_msg`, its older name `ws_send_mqtt`, and `ws_get_mqtt_msg`."""

    def ws_send_mqtt_msg(topic_at: int, topic_size: int, at: int, size: int) -> int:
        guest.check_range(at, size)
        if size > MESSAGE_BYTES:
            raise GuestError(f"the message is larger than {MESSAGE_BYTES} bytes", abi.FAILED)
        topic = read_topic(guest.read_head(topic_at, topic_size, TOPIC_BYTES + 1))
        guest.run.capabilities.check_topic(topic)
        guest.add_effect(Message(topic, guest.read(at, size)), topic_size + size)
        return abi.OK

    def ws_get_mqtt_msg(rid: int, topic_at: int, topic_size_at: int, at: int, size_at: int) -> int:
        data = guest.resources.get(rid)
        if data is None:
            return abi.RESOURCE_NOT_FOUND
        guest.copy_to_guest(guest.run.event_type.encode(), topic_at, topic_size_at)
        guest.copy_to_guest(data, at, size_at)
        return abi.OK

    return {
        abi.WS_SEND_MQTT_MSG: ws_send_mqtt_msg,
        abi.WS_SEND_MQTT: ws_send_mqtt_msg,
        abi.WS_GET_MQTT_MSG: ws_get_mqtt_msg,
    }


def read_topic(raw: bytes) -> str:
    """Decode a topic name that MQTT 3.1.1 (4.7) allows and every broker supports.

    It must be UTF-8 and not empty, without wildcards, white space, control characters and
    non-characters.

    Raises:
        GuestError: the bytes are not such a name.
    """
    if not raw:
        raise GuestError("the topic is empty", abi.FAILED)
    if len(raw) > TOPIC_BYTES:
        raise GuestError(f"the topic is longer than {TOPIC_BYTES} bytes", abi.FAILED)
    try:
        topic = raw.decode()
    except UnicodeDecodeError:
        raise GuestError("the topic is not UTF-8", abi.FAILED) from None
    if "#" in topic or "+" in topic:
        raise GuestError("the topic has a wildcard", abi.FAILED)
    if _UNCARRIED.search(topic):
        raise GuestError("the topic has white space or a control character", abi.FAILED)
    return topic
