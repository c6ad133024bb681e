"""The metadata of a request, the form of its body, and the identity of its event."""

from __future__ import annotations

from urllib.parse import parse_qs, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.actors.wire import DELIVERY, KEYED, NAMED, REDELIVERY, key_of
from fieldbrook.core.errors import BadRequestError
from fieldbrook.core.model import EVENT_TYPE_LIMIT
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


# ---------------------------------------------------------------- limits


def test_an_event_type_is_at_most_as_long_as_a_strategy_can_name() -> None:
    assert check_meta(Meta("x" * EVENT_TYPE_LIMIT)) == ""
    with pytest.raises(BadRequestError) as caught:
        check_meta(Meta("x" * (EVENT_TYPE_LIMIT + 1)))
    assert [field.field for field in caught.value.fields() or ()] == ["eventType"]


@pytest.mark.parametrize("depth", [1_000, 100_000])
def test_a_body_nested_too_deeply_is_no_message(depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    assert not is_message(b'{"more":' + nested + b',"header":{}}')


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
    assert identify("ESP32", "5", delivered, "", lambda: "made") == (
        "ESP32",
        "mqtt-7\nmade",
        delivered[1],
    )
    assert identify(long, 5, delivered, "", lambda: "made") == (long, f"5 {long}", NAMED)
    assert identify(long, "", NO_NAME, "", lambda: "made") == identify(
        long, 0, NO_NAME, "", lambda: "made"
    )
    assert identify("", 5, delivered, "", lambda: "made") == ("made", "mqtt-7\nmade", delivered[1])
    assert identify("", 5, NO_NAME, "", lambda: "made") == ("made", "", 0)


def test_a_key_comes_before_the_name_that_an_event_has_besides() -> None:
    long = "x" * 16
    for sent, name, kind in ((long, f"5 {long}", NAMED), ("ESP32", "", 0), ("", "", 0)):
        known = identify(sent, 5, NO_NAME, "k", lambda: "made")
        assert known == (sent or "made", f"k\n{name}", kind | KEYED)
        event = ("T", 1, known[0], b"", 1, known[2], known[1])
        assert key_of(event) == ("k", name)
