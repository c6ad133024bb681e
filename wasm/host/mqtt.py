"""Messages an applet publishes, and the one that woke it."""

from __future__ import annotations

from fieldbrook.wasm import abi
from fieldbrook.wasm.host.guest import Functions, Guest, GuestError
from fieldbrook.wasm.run import Message

TOPIC_BYTES = 65_535


def functions(guest: Guest) -> Functions:
    """`ws_send_mqtt_msg`, `ws_get_mqtt_msg` and the older `ws_send_mqtt`."""

    def ws_send_mqtt_msg(topic_at: int, topic_size: int, at: int, size: int) -> int:
        guest.require(at, size)
        topic = _topic(guest.read_head(topic_at, topic_size, TOPIC_BYTES + 1))
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


def _topic(raw: bytes) -> str:
    """A topic name as MQTT 3.1.1 allows it (4.7): UTF-8, no wildcards, no NUL, not empty."""
    if not raw:
        raise GuestError("the topic is empty", abi.FAILED)
    if len(raw) > TOPIC_BYTES:
        raise GuestError(f"the topic is longer than {TOPIC_BYTES} bytes", abi.FAILED)
    try:
        topic = raw.decode()
    except UnicodeDecodeError:
        raise GuestError("the topic is not UTF-8", abi.FAILED) from None
    if any(letter in topic for letter in "#+\0"):
        raise GuestError("the topic has a wildcard or a NUL", abi.FAILED)
    return topic
