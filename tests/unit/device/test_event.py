"""Events of devices: valid fields, and the meaning of a node's errors."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import pytest

from fieldbrook.core import errors
from fieldbrook.core.errors.limits import TooManyRequestsError, TrafficLimitExceededError
from fieldbrook.core.model import EVENT_TYPE_LIMIT
from fieldbrook.device.errors import InvalidEventError
from fieldbrook.device.event import (
    ID_LIMIT,
    ID_SHORTEST,
    TYPE_LIMIT,
    Later,
    Refused,
    failure,
    failure_in_text,
    make_event,
)
from fieldbrook.gateway.events import message
from fieldbrook.gateway.events.request import NAME_LENGTH

ID = "meter-0001-000017"


def test_the_limits_are_those_of_a_node() -> None:
    theirs = (EVENT_TYPE_LIMIT, NAME_LENGTH, message.EVENT_ID_LIMIT)
    assert theirs == (TYPE_LIMIT, ID_SHORTEST, ID_LIMIT)


def test_a_node_decodes_the_message_of_an_event() -> None:
    event = make_event("HEAT", b"\0\xff", ID, 1_666_211_451.25)
    decoded = message.decode_message(json.dumps(event.message("sensor", "token")).encode())
    assert (decoded.event_type, decoded.payload) == ("HEAT", b"\0\xff")
    header = decoded.header
    assert (header.pub_id, header.token, header.event_id) == ("sensor", "token", ID)
    assert header.pub_time == 1_666_211_451_250


@pytest.mark.parametrize(
    ("payload", "sent"),
    [
        (b"\0\1", b"\0\1"),
        (bytearray(b"ab"), b"ab"),
        ("21,5 °C", "21,5 °C".encode()),
        ({"celsius": 21.5}, b'{"celsius":21.5}'),
        ([1, None], b"[1,null]"),
        (b"", b""),
    ],
)
def test_a_payload_is_bytes_text_or_json(payload: object, sent: bytes) -> None:
    shown = make_event("HEAT", payload).message("p", "t")["payload"]
    assert base64.b64decode(shown) == sent


@pytest.mark.parametrize(
    "arguments",
    [
        ("", b""),
        ("x" * (TYPE_LIMIT + 1), b""),
        ("A\nB", b""),
        ("HEAT", b"", "too-short"),
        ("HEAT", b"", "x" * (ID_LIMIT + 1)),
        ("HEAT", b"", "a line\nand another one"),
        ("HEAT", {1, 2}),
        ("HEAT", math.nan),
        ("HEAT", "\ud800"),
        ("HEAT", b"", ID, math.inf),
        ("HEAT", b"", ID, math.nan),
        ("HEAT", b"", ID, 1e30),
    ],
)
def test_what_no_node_would_take_is_refused_at_once(arguments: Any) -> None:
    with pytest.raises(InvalidEventError):
        make_event(*arguments)


def test_an_event_without_an_id_gets_a_new_one_and_the_time() -> None:
    first, second = make_event("HEAT", b""), make_event("HEAT", b"")
    assert first.event_id != second.event_id
    assert first.at_ms is not None
    # The time is part of what a node compares: the same call has to be the same event.
    assert make_event("HEAT", b"", ID) == make_event("HEAT", b"", ID)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_an_error_of_the_event_is_for_good(status: int) -> None:
    assert isinstance(failure(status, "Key", "text"), Refused)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 507])
def test_an_error_of_the_node_is_not_for_good(status: int) -> None:
    assert failure(status, "Key", "text", 7.0) == Later(f"{status} Key: text", 7.0)


def test_the_errors_in_answers_to_batches_are_read_as_the_node_writes_them() -> None:
    refused = errors.StrategyNotFoundError(what="no strategy for event type X")
    assert failure_in_text(refused.text()) == Refused(404, refused.key, f"{refused.msg}: {refused}")
    for later in (
        TooManyRequestsError(what="the queue is full"),
        TrafficLimitExceededError(retry_after_s=9, who="it", threshold=1, duration="1s"),
        errors.UnavailableError(what="the worker is starting"),
    ):
        assert isinstance(failure_in_text(later.text()), Later)
    assert failure_in_text("something else") is None
