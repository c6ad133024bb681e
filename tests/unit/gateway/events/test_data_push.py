"""The items of a data push."""

from __future__ import annotations

import json
from contextlib import suppress
from urllib.parse import quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.core.errors import BadRequestError
from fieldbrook.gateway.events.data_push import PushItem, read_items


def wrong(item: object) -> dict[str, str]:
    (read,) = read_items(json.dumps([item]).encode())
    assert isinstance(read, BadRequestError)
    return {field.field: field.msg for field in read.fields() or []}


@pytest.mark.parametrize(
    ("item", "read"),
    [
        ({"device_id": "d"}, PushItem("d", "DEFAULT", "")),
        ({"device_id": "d", "event_type": ""}, PushItem("d", "DEFAULT", "")),
        ({"device_id": "d", "event_type": None, "payload": None}, PushItem("d", "DEFAULT", "")),
        ({"DEVICE_ID": "d", "Event_Type": "E", "Payload": "p"}, PushItem("d", "E", "p")),
        ({"device_id": "d", "timestamp": "any", "x": []}, PushItem("d", "DEFAULT", "")),
    ],
)
def test_an_item_is_read_as_clients_write_it(item: object, read: PushItem) -> None:
    assert read_items(json.dumps([item]).encode()) == [read]


def test_what_is_wrong_with_an_item_is_named() -> None:
    assert wrong(7) == {"[0]": "not a JSON object"}
    assert wrong({}) == {"[0].device_id": "missing required field"}
    assert wrong({"device_id": ""}) == {"[0].device_id": "missing required field"}
    assert wrong({"device_id": None}) == {"[0].device_id": "missing required field"}
    assert wrong({"device_id": 1, "event_type": {}, "payload": {"t": 1}}) == {
        "[0].device_id": "not a string",
        "[0].event_type": "not a string",
        "[0].payload": "not a string",
    }


@given(st.binary(max_size=60) | st.text().map(lambda text: f'[{{"device_id":"{text}"}}]'.encode()))
def test_any_body_is_items_or_refused(body: bytes) -> None:
    with suppress(BadRequestError):
        for item in read_items(body):
            assert isinstance(item, BadRequestError) or item.payload.encode() is not None


def test_a_payload_is_taken_verbatim() -> None:
    payload = 'né "x"\n\u0000' + quote_plus("é")
    (item,) = read_items(json.dumps([{"device_id": "d", "payload": payload}]).encode())
    assert isinstance(item, PushItem)
    assert item.payload == payload


def test_an_event_type_in_a_push_is_too() -> None:
    (item,) = read_items(b'[{"device_id":"d","event_type":"%b"}]' % (b"x" * 257))
    assert isinstance(item, BadRequestError)
    assert [field.field for field in item.fields() or ()] == ["[0].event_type"]


@pytest.mark.parametrize("depth", [1_000, 100_000])
def test_a_body_nested_too_deeply_is_no_push(depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    with pytest.raises(BadRequestError):
        read_items(nested)
    with pytest.raises(BadRequestError):
        read_items(b'[{"device_id":"d","more":' + nested + b"}]")
