"""Decoding of data messages."""

import base64
import json
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.core.errors import MalformedMessageError
from fieldbrook.gateway.events.message import (
    BATCH_LIMIT,
    BOTH_OR_NONE,
    MEMBERS_LIMIT,
    decode_message,
    message_token,
    split_batch,
)
from fieldbrook.gateway.events.request import is_message

HEADER = {"pub_id": "p", "token": "t", "event_type": "MINT", "pub_time": 1666211451}


def body(header: object = HEADER, **rest: object) -> bytes:
    return json.dumps({"header": header, "payload": "aGk=", **rest}).encode()


def refused(data: bytes) -> dict[str, str]:
    with pytest.raises(MalformedMessageError) as caught:
        decode_message(data)
    fields = {field.field: field.msg for field in caught.value.fields() or []}
    return fields or {"": caught.value.desc}


def test_the_documented_sample_decodes() -> None:
    sample = (
        b'{"header":{"event_type":"MINT","pub_id":"my_publisher_id","pub_time":1666211451,'
        b'"token":"eyJ.e"},"payload":"VGhpcyBpcyB0aGUgbWVzc2FnZSBwYXlsb2FkCg=="}'
    )
    message = decode_message(sample)
    assert message.payload == b"This is the message payload\n"
    assert message.event_type == "MINT"
    assert message.header.pub_id == "my_publisher_id"


@pytest.mark.parametrize("event_type", [{}, {"event_type": ""}, {"event_type": None}])
def test_an_absent_or_empty_type_is_default(event_type: dict[str, object]) -> None:
    header = {"pub_id": "p", "token": "t", **event_type}
    assert decode_message(body(header)).event_type == "DEFAULT"


def test_keys_in_another_case_and_unknown_keys_are_accepted() -> None:
    data = b'{"Header":{"PUB_ID":"p","Token":"t","x":1},"PAYLOAD":"aGk=","more":[]}'
    assert decode_message(data).payload == b"hi"


@pytest.mark.parametrize("name", ["Event_Type", "EVENT_TYPE", "event_type"])
def test_an_optional_key_in_another_case_counts_too(name: str) -> None:
    header = {"pub_id": "p", "token": "t", name: "MINT", "x": None}
    assert decode_message(body(header)).event_type == "MINT"
    identified = {"pub_id": "p", "token": "t", name.replace("vent_Type", "vent_ID"): "e", "y": 1}
    assert decode_message(body(identified)).header.pub_id == "p"


def test_a_batch_in_another_case_is_one() -> None:
    found = split_batch(b'{"Events":[{"header":{}}],"more":1}')
    assert found is not None
    assert len(found) == 1
    assert split_batch(b'{"Events":5}') is None


def test_base64_with_line_breaks_is_accepted() -> None:
    assert decode_message(body(payload="aG\r\nk=")).payload == b"hi"


@pytest.mark.parametrize(
    ("data", "field", "reason"),
    [
        (b"", "", "not JSON"),
        (b"hello", "", "not JSON"),
        (b'{"header":', "", "not JSON"),
        (b"\xff\xfe", "", "not JSON"),
        (b"[]", "", "not a JSON object"),
        (b'"x"', "", "not a JSON object"),
        (b'{"payload":"aGk="}', "header", "missing required field"),
        (b'{"header":7,"payload":"aGk="}', "header", "not a JSON object"),
        (body({"token": "t"}), "header.pub_id", "missing required field"),
        (body({"pub_id": "p"}), "header.token", "missing required field"),
        (body({"pub_id": "", "token": "t"}), "header.pub_id", "missing required field"),
        (body({"pub_id": 7, "token": "t"}), "header.pub_id", "not a string"),
        (body(HEADER | {"event_type": []}), "header.event_type", "not a string"),
        (body(HEADER | {"pub_time": "1666211451"}), "header.pub_time", "not an integer"),
        (body(HEADER | {"pub_time": 1.5}), "header.pub_time", "not an integer"),
        (body(HEADER | {"pub_time": 1 << 63}), "header.pub_time", "not a 64-bit integer"),
        (body(HEADER | {"event_id": "x" * 129}), "header.event_id", "longer than 128"),
        (body(HEADER | {"event_type": "x" * 257}), "header.event_type", "longer than 256"),
        (body(HEADER | {"token": "t" + " " * 1_024}), "header.token", "longer than 1024"),
        (body() + b"\0x", "", "not JSON"),
        (body() + b"{}", "", "not JSON"),
        (body(payload=7), "payload", "not a base64 string"),
        (body(payload="a*b="), "payload", "illegal base64 data at input byte 1"),
        (body(payload="aGk"), "payload", "illegal base64 data at input byte 3"),
        (body(payload="aGk=aGk="), "payload", "illegal base64 data at input byte 4"),
    ],
)
def test_what_is_wrong_is_named(data: bytes, field: str, reason: str) -> None:
    fields = refused(data)
    assert list(fields) == [field]
    assert reason in fields[field]


def test_a_payload_that_is_an_object_is_its_text() -> None:
    assert decode_message(body(payload={"data": {"t": 1}})).payload == b'{"data":{"t":1}}'


@pytest.mark.parametrize("header", [{}, {"pub_id": "", "token": ""}, {"token": None}])
def test_a_public_projects_message_may_have_neither_publisher_nor_token(
    header: dict[str, object],
) -> None:
    message = decode_message(body(header), credentials=BOTH_OR_NONE)
    assert (message.header.pub_id, message.header.token, message.payload) == ("", "", b"hi")
    assert set(refused(body(header))) == {"header.pub_id", "header.token"}


@pytest.mark.parametrize("header", [{"pub_id": "p"}, {"token": "t"}, {"pub_id": 0}, {"token": []}])
def test_half_of_it_is_not_enough_even_there(header: dict[str, object]) -> None:
    with pytest.raises(MalformedMessageError):
        decode_message(body(header), credentials=BOTH_OR_NONE)


def test_every_wrong_field_is_named_at_once() -> None:
    assert set(refused(body({"pub_time": "x"}, payload="*"))) == {
        "header.pub_id",
        "header.token",
        "header.pub_time",
        "payload",
    }


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    with suppress(MalformedMessageError):
        assert decode_message(data).header.token


@given(st.binary(max_size=100), st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_what_a_device_sends_is_what_the_handler_gets(
    payload: bytes, pub_id: str, token: str
) -> None:
    data = json.dumps(
        {
            "header": {"pub_id": pub_id, "token": token},
            "payload": base64.b64encode(payload).decode(),
        }
    ).encode("utf-8", "surrogatepass")
    message = decode_message(data)
    assert (message.payload, message.header.pub_id, message.header.token) == (
        payload,
        pub_id,
        token,
    )


@pytest.mark.parametrize("depth", [1_000, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_a_body_nested_too_deeply_is_refused_like_any_other(
    depth: int, opening: bytes, closing: bytes
) -> None:
    nested = opening * depth + b"1" + closing * depth
    assert "nested too deeply" in refused(nested)[""]
    whole = body()[:-1] + b',"more":' + nested + b"}"
    assert "nested too deeply" in refused(whole)[""]
    assert split_batch(b'{"events":[],"more":' + nested + b"}") is None


def test_a_batch_has_an_end() -> None:
    def batch(size: int) -> bytes:
        return b'{"events":[' + b",".join([b"0"] * size) + b"]}"

    assert len(split_batch(batch(BATCH_LIMIT)) or ()) == BATCH_LIMIT
    with pytest.raises(MalformedMessageError) as caught:
        split_batch(batch(BATCH_LIMIT + 1))
    assert [field.field for field in caught.value.fields() or ()] == ["events"]


@pytest.mark.parametrize("rest", [b"\0", b"\0\0\0\0", b" \n\0\t\r\v\f\0", b"\n"])
def test_what_firmware_in_c_leaves_in_its_buffer_after_the_json_is_no_part_of_it(
    rest: bytes,
) -> None:
    assert decode_message(body() + rest) == decode_message(body())
    batch = b'{"events":[' + body() + b"]}"
    assert split_batch(batch + rest) == split_batch(batch)
    assert message_token(body() + rest) == "t"
    assert is_message(body() + rest)


def test_a_message_without_a_payload_has_an_empty_one() -> None:
    for data in (b'{"header": %s}', b'{"header": %s, "payload": null}', b'{"Header": %s}'):
        assert decode_message(data % json.dumps(HEADER).encode()).payload == b""


def test_a_message_is_signed_when_its_header_has_a_token() -> None:
    without = {"pub_id": "p"}
    cases: list[tuple[object, bool]] = [
        ({"header": HEADER}, True),
        ({"HEADER": {"Token": "t"}}, True),
        ({"header": without}, False),
        ({"header": {"token": ""}}, False),
        ({"header": {"token": None}}, False),
        ({"header": {"token": 5}}, False),
        ({"header": 7}, False),
        ({"events": [{"header": without}, {"header": HEADER}]}, True),
        ({"events": [{"header": without}, {"header": {}}]}, False),
        ({"events": [{"header": HEADER}, {}]}, False),
        ({"data": {"token": "t"}}, False),
        ([HEADER], False),
    ]
    for value, signed in cases:
        assert is_message(json.dumps(value).encode(), signed=True) is signed, value


MANY = {f"k{number}": number for number in range(MEMBERS_LIMIT)}


def test_a_message_with_many_members_is_read_by_its_keys_in_lower_case() -> None:
    assert decode_message(body(**MANY)).header.event_type == "MINT"
    assert message_token(body(**MANY)) == "t"
    assert is_message(body(**MANY), signed=True)
    as_object = decode_message(json.dumps({"header": HEADER, "payload": MANY}).encode())
    assert json.loads(as_object.payload) == MANY
    assert decode_message(body({**HEADER, "more": MANY}, **MANY)).payload == b"hi"
    batch = json.dumps({**MANY, "events": [{"header": HEADER}]}).encode()
    assert len(split_batch(batch) or ()) == 1
    assert is_message(batch, signed=True)


def test_what_is_wrong_with_a_message_with_many_members_is_named() -> None:
    cases: list[tuple[dict[str, object], str]] = [
        ({"Header": HEADER}, "missing required field `header`"),
        ({"header": 5}, "`$.header`"),
        ({"header": {**HEADER, "token": 5}}, "`$.header.token`"),
        ({"header": HEADER, "payload": 5}, "`$.payload`"),
    ]
    for wrong, named in cases:
        assert named in refused(json.dumps({**wrong, **MANY}).encode())[""]
    assert refused(body({"pub_id": "p"}, **MANY)) == {"header.token": "missing required field"}
    assert "payload" in refused(json.dumps({"header": HEADER, "payload": ":", **MANY}).encode())


def test_a_message_with_a_hundred_thousand_members_takes_less_time_than_to_make_them() -> None:
    data = json.dumps({f"k{number}": 1 for number in range(80_000)}).encode()

    def handle() -> None:
        assert split_batch(data) is None
        assert not is_message(data, signed=True)
        assert message_token(data) == ""
        refused(data)

    def spent(work: Callable[[], object]) -> float:
        began = time.thread_time()
        work()
        return time.thread_time() - began

    made = min(spent(lambda: msgspec.json.decode(data)) for _ in range(5))
    assert min(spent(handle) for _ in range(5)) < 3 * made
