"""What a request says beside its body, which form it is, and what a data push holds."""

from __future__ import annotations

import json
from contextlib import suppress
from urllib.parse import parse_qs, quote_plus, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.actors.wire import DELIVERY, KEYED, NAMED, REDELIVERY, key_of
from fieldbrook.core.errors import BadRequestError
from fieldbrook.core.model import EVENT_TYPE_LIMIT
from fieldbrook.gateway.channel import aliases, project_name
from fieldbrook.gateway.events.data_push import PushItem, read_items
from fieldbrook.gateway.events.request import (
    NO_META,
    NO_NAME,
    Meta,
    check_meta,
    identify,
    is_message,
    read_key,
    read_meta,
)

# ---------------------------------------------------------------- meta data


def test_a_request_that_says_nothing_costs_nothing() -> None:
    assert read_meta("", None) is NO_META
    assert NO_META.event_type is None


@pytest.mark.parametrize(
    ("query", "header", "meta"),
    [
        ("eventType=A", None, Meta("A")),
        ("eventType=", None, Meta("")),
        ("eventType", None, Meta("")),
        ("eventtype=A", None, Meta()),
        ("eventType=A&eventType=B", None, Meta("A")),
        ("eventType=A%26B+C", None, Meta("A&B C")),
        ("event%54ype=A", None, Meta("A")),
        ("eventType=%zz%e9", None, Meta("%zz\ufffd")),
        ("eventID=e&timestamp=5", None, Meta(None, "e", "5")),
        ("&&=&x", "Bearer T", Meta(token="T")),
        ("authorization=Q", "Bearer T", Meta(token="Q")),
        ("authorization=", "T", Meta(token="T")),
        ("", "Bearer T", Meta(token="T")),
        ("", "", NO_META),
    ],
)
def test_meta_data_is_read_as_clients_write_it(query: str, header: str | None, meta: Meta) -> None:
    assert read_meta(query, header) == meta


@given(st.dictionaries(st.sampled_from(["eventType", "eventID", "timestamp", "x"]), st.text()))
def test_any_text_survives_the_query(values: dict[str, str]) -> None:
    values = {name: value.encode("utf-8", "replace").decode() for name, value in values.items()}
    meta = read_meta(urlencode(values), None)
    assert meta.event_type == values.get("eventType")
    assert (meta.event_id, meta.timestamp) == (
        values.get("eventID", ""),
        values.get("timestamp", ""),
    )


@given(st.text(alphabet="ab=&%+;41", max_size=30))
def test_a_query_means_what_it_means_elsewhere(text: str) -> None:
    query = f"eventType={text}"
    known = parse_qs(query, keep_blank_values=True)["eventType"][0]
    assert read_meta(query, None).event_type == known


@pytest.mark.parametrize("timestamp", ["", "0", "-1", "1700000000", str((1 << 63) - 1)])
def test_a_time_stamp_is_any_64_bit_integer(timestamp: str) -> None:
    assert check_meta(Meta(event_id="E-1", timestamp=timestamp)) == "e-1"


@pytest.mark.parametrize(
    "timestamp", ["now", "1.5", "--1", "+1", " 1", "٣", str(1 << 63), "9" * 99]
)
def test_another_time_stamp_is_refused(timestamp: str) -> None:
    with pytest.raises(BadRequestError, match="timestamp: not a 64-bit integer"):
        check_meta(Meta(timestamp=timestamp))


def test_everything_wrong_in_the_meta_data_is_named_at_once() -> None:
    with pytest.raises(BadRequestError) as caught:
        check_meta(Meta(event_id="x" * 129, timestamp="x"))
    fields = caught.value.fields() or []
    assert [(f.field, f.location) for f in fields] == [("eventID", "query"), ("timestamp", "query")]


# ---------------------------------------------------------------- forms


@pytest.mark.parametrize(
    "body",
    [
        b'{"header":{}}',
        b'{"payload":"","header":null}',
        b' \n{"HEADER":1}',
        b'{"events":[]}',
        b'{"events":[{"header":{}},{"Header":{},"x":1}]}',
    ],
)
def test_a_message_is_told_by_its_header(body: bytes) -> None:
    assert is_message(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"hello",
        b"[]",
        b"{}",
        b'{"events":{}}',
        b'{"events":[1]}',
        b'{"events":[{"header":{}},{}]}',
        b'{"data":{"header":1}}',
        b'{"header":',
        b"\xff",
        b'"header"',
    ],
)
def test_anything_else_is_none(body: bytes) -> None:
    assert not is_message(body)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_none(body: bytes) -> None:
    assert is_message(body) in (True, False)


@pytest.mark.parametrize(
    ("channel", "name"),
    [
        ("room", "room"),
        ("aid_12_room", "room"),
        ("aid_12_aid_3_x", "aid_3_x"),
        ("aid_x_room", "aid_x_room"),
        ("aid_12_", "aid_12_"),
        ("aid__room", "aid__room"),
        ("eth_0x19e7e376e7c213b7e7e7e46cc70a5dd086daff2a_room", "room"),
        ("eth_0xabc_room", "eth_0xabc_room"),
        ("eth_room", "eth_room"),
        ("", ""),
    ],
)
def test_a_channel_means_the_project_behind_its_prefix(channel: str, name: str) -> None:
    assert project_name(channel) == name


@given(st.from_regex(r"\A[A-Za-z0-9_]{1,32}\Z"), st.integers(1, (1 << 63) - 1))
def test_every_alias_of_a_project_means_it(name: str, account_id: int) -> None:
    if not name.startswith(("aid_", "eth_")):  # which no project's name does
        assert {project_name(alias) for alias in aliases(name, account_id)} == {name}


# ---------------------------------------------------------------- data push


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


# ---------------------------------------------------------------- limits


def test_an_event_type_is_at_most_as_long_as_a_strategy_can_name() -> None:
    assert check_meta(Meta("x" * EVENT_TYPE_LIMIT)) == ""
    with pytest.raises(BadRequestError) as caught:
        check_meta(Meta("x" * (EVENT_TYPE_LIMIT + 1)))
    assert [field.field for field in caught.value.fields() or ()] == ["eventType"]


def test_an_event_type_in_a_push_is_too() -> None:
    (item,) = read_items(b'[{"device_id":"d","event_type":"%b"}]' % (b"x" * 257))
    assert isinstance(item, BadRequestError)
    assert [field.field for field in item.fields() or ()] == ["[0].event_type"]


@pytest.mark.parametrize("depth", [1_000, 100_000])
def test_a_body_nested_too_deeply_is_no_message_and_no_push(depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    assert not is_message(b'{"more":' + nested + b',"header":{}}')
    with pytest.raises(BadRequestError):
        read_items(nested)
    with pytest.raises(BadRequestError):
        read_items(b'[{"device_id":"d","more":' + nested + b"}]")


# ---------------------------------------------------------------- what an event is known by


@pytest.mark.parametrize(
    ("header", "key"),
    [
        (None, ""),
        ("8e03978e-40d5-43dd-bc93-6894a57f9324", "8e03978e-40d5-43dd-bc93-6894a57f9324"),
        ('"8e03978e-40d5-43dd-bc93-6894a57f9324"', "8e03978e-40d5-43dd-bc93-6894a57f9324"),
        (" k ", "k"),
        ('"', '"'),
        ("x" * 255, "x" * 255),
    ],
)
def test_an_idempotency_key_stands_in_quotation_marks_or_not(header: str | None, key: str) -> None:
    assert read_key(header) == key


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ("", "empty"),
        ('""', "empty"),
        ("x" * 256, "longer than 255 characters"),
        ("k\tx", "other characters"),
        ("k\xe9", "other characters"),
        ("k\nk", "more than once"),
    ],
)
def test_what_is_wrong_with_an_idempotency_key_is_said(header: str, reason: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        read_key(header)
    (field,) = caught.value.fields() or []
    assert (field.field, field.location) == ("Idempotency-Key", "header")
    assert reason in field.msg


def test_an_event_id_names_its_event_only_when_it_is_long_enough() -> None:
    delivered = ("mqtt-7", DELIVERY | REDELIVERY)
    long = "x" * 16
    assert identify("x" * 15, 5, NO_NAME, "", lambda: "made") == ("x" * 15, "made", 0)
    assert identify("ESP32", "5", delivered, "", lambda: "made") == ("ESP32", *delivered)
    assert identify(long, 5, delivered, "", lambda: "made") == (long, f"5 {long}", NAMED)
    assert identify(long, "", NO_NAME, "", lambda: "made") == identify(
        long, 0, NO_NAME, "", lambda: "made"
    )
    assert identify("", 5, delivered, "", lambda: "made") == ("mqtt-7", "", delivered[1])
    assert identify("", 5, NO_NAME, "", lambda: "made") == ("made", "", 0)


def test_a_key_comes_before_the_name_that_an_event_has_besides() -> None:
    long = "x" * 16
    for sent, name, kind in ((long, f"5 {long}", NAMED), ("ESP32", "", 0), ("", "", 0)):
        known = identify(sent, 5, NO_NAME, "k", lambda: "made")
        assert known == (sent or "made", f"k\n{name}", kind | KEYED)
        event = ("T", 1, known[0], b"", 1, known[2], known[1])
        assert key_of(event) == ("k", name)
