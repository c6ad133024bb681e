"""The topics and the forms in which devices send events over MQTT.

Source: interface document, 3.5.
"""

from __future__ import annotations

import contextlib
import re
from typing import NamedTuple

from fieldbrook.core.errors import MalformedMessageError
from fieldbrook.gateway.auth import strip_scheme
from fieldbrook.gateway.events.handling import EventService, Login
from fieldbrook.gateway.events.message import message_token
from fieldbrook.gateway.events.protobuf import decode_event
from fieldbrook.gateway.events.request import NO_NAME, DeliveryName, Meta
from fieldbrook.gateway.replies import Answer

WRONG_TOPIC = "the topic must be PROJECT or PROJECT/push/TOKEN/TYPE"

# Keys that can follow `PROJECT/` in a topic. A key that begins with "push/" would make it the topic
# of an event.
_ACK_KEY = re.compile(r"(?!push/)[^\x00-\x20\x7f+#*>]{1,256}")


class EventTopic(NamedTuple):
    """A parsed topic: the channel, and the metadata if the topic contains them."""

    channel: str
    meta: Meta | None


def read_topic(topic: str) -> EventTopic | None:
    """Parse the topic of an event; None when the topic has another form.

    `<channel>`, `<channel>/push/<token>/<type>` or
    `<channel>/push/<token>/<type>/ts=<ms>&id=<event id>` (interface document, 3.5).
    """
    channel, *levels = topic.split("/")
    if not levels:
        return EventTopic(channel, None)
    if len(levels) not in (3, 4) or levels[0] != "push":
        return None
    pairs = dict(pair.partition("=")[::2] for pair in levels[3].split("&")) if levels[3:] else {}
    token = strip_scheme(levels[1])
    return EventTopic(channel, Meta(levels[2], pairs.get("id", ""), pairs.get("ts", ""), token))


def masked(topic: str) -> str:
    """Shorten a topic for the log, with its token masked."""
    levels = topic.split("/")
    if len(levels) > 2:
        levels[2] = "***"
    return "/".join(levels)[:128]


def publisher_of(topic: str, payload: bytes) -> str:
    """The token that identifies the publisher of a message; "" if there is none.

    The queue of a publisher gets only messages with its token.
    """
    found = read_topic(topic)
    if found is None:
        return ""
    if found.meta is not None:
        return found.meta.token
    if not payload.startswith(b"{"):
        with contextlib.suppress(MalformedMessageError):
            return decode_event(payload)[0].token
    return strip_scheme(message_token(payload))


def ack_topic(publisher_key: str) -> str | None:
    """The topic of a publisher's replies; None when its key cannot be part of a topic."""
    return f"ack/{publisher_key}" if _ACK_KEY.fullmatch(publisher_key) else None


def submit_event(
    events: EventService,
    topic: EventTopic,
    payload: bytes,
    answer: Answer,
    *,
    resend: bool,
    delivery: DeliveryName = NO_NAME,
    login: Login | None = None,
) -> None:
    """Submit a message as an event; `answer` is called once, now or after the commit.

    The body on the topic of a channel is JSON or protobuf; on the other topics it is the payload.

    Args:
        events: accepts the event.
        topic: the parsed topic of the message.
        payload: its body.
        answer: receives the answer.
        resend: whether the message is kept and submitted again after a temporary error.
        delivery: the name of the delivery, for deduplication.
        login: the publisher that the connection has logged in, for messages without a token.

    Raises:
        MalformedMessageError: the body is neither JSON nor protobuf.
    """
    channel, meta = topic
    # A protobuf message begins with the tag of its first field. JSON may begin with the same byte,
    # a line feed, but then the rest is not valid protobuf.
    if meta is None and not payload.startswith(b"{"):
        try:
            meta, payload = decode_event(payload)
        except MalformedMessageError as error:
            if not payload.lstrip().startswith(b"{"):
                reason = f"neither a JSON message nor {error}"
                raise MalformedMessageError(desc=reason) from None
    if meta is None:
        events.submit(channel, payload, answer, resend=resend, delivery=delivery, login=login)
        return
    if login is not None and not meta.token:
        meta = meta._replace(token=login.token)
    events.raw.submit(channel, payload, answer, meta, resend=resend, delivery=delivery)
