"""Messages an applet publishes, and the one that woke it."""

from __future__ import annotations

import re

from fieldbrook.wasm.host.guest import Functions, Guest, GuestError
from fieldbrook.wasm.module import abi
from fieldbrook.wasm.run import Message

TOPIC_BYTES = 65_535
# A broker ends the connection over a larger one, each time it is sent again: nothing of any
# project would leave the node any more. The embedded one takes this much at least.
MESSAGE_BYTES = 1 << 20
# The same for what a topic may not contain: control characters and non-characters (MQTT 3.1.1,
# 1.5.3), and white space because nats-server does not carry it.
_UNCARRIED = re.compile(
    "[\\x00-\\x20\\x7f-\\x9f\\ufdd0-\\ufdef"
    + "".join(chr(plane << 16 | last) for plane in range(17) for last in (0xFFFE, 0xFFFF))
    + "]"
)


def functions(guest: Guest) -> Functions:
    """`ws_send_mqtt_msg`, `ws_get_mqtt_msg` and the older `ws_send_mqtt`."""

    def ws_send_mqtt_msg(topic_at: int, topic_size: int, at: int, size: int) -> int:
        guest.require(at, size)
        if size > MESSAGE_BYTES:
            raise GuestError(f"the message is larger than {MESSAGE_BYTES} bytes", abi.FAILED)
        topic = read_topic(guest.read_head(topic_at, topic_size, TOPIC_BYTES + 1))
        guest.run.surroundings.check_topic(topic)
        guest.leave(Message(topic, guest.read(at, size)), topic_size + size)
        return abi.OK

    def ws_get_mqtt_msg(rid: int, topic_at: int, topic_size_at: int, at: int, size_at: int) -> int:
        data = guest.resources.get(rid)
        if data is None:
            return abi.RESOURCE_NOT_FOUND
        guest.give(guest.run.event_type.encode(), topic_at, topic_size_at)
        guest.give(data, at, size_at)
        return abi.OK

    return {
        abi.WS_SEND_MQTT_MSG: ws_send_mqtt_msg,
        abi.WS_SEND_MQTT: ws_send_mqtt_msg,
        abi.WS_GET_MQTT_MSG: ws_get_mqtt_msg,
    }


def read_topic(raw: bytes) -> str:
    """A topic name as MQTT 3.1.1 allows it (4.7) and every broker carries it: UTF-8, no
    wildcards, no white space, control or non-characters, not empty.

    Raises:
        GuestError: it is none.
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
