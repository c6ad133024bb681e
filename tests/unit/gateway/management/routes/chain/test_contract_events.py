"""Contract events in the notation of their owners."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.gateway.management.routes.chain.contract_events import (
    EventError,
    encode,
    parse_signature,
    select_event,
)
from tests.chain.evm import contract

TRANSFER = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"


@pytest.mark.parametrize(
    ("text", "signature", "marked"),
    [
        ("Transfer(address,address,uint256)", "Transfer(address,address,uint256)", False),
        (
            "event Transfer(address indexed from, address indexed to, uint256 value);",
            "Transfer(address,address,uint256)",
            True,
        ),
        ("E()", "E()", False),
        ("E( uint , int[] , bytes32[2][] )", "E(uint256,int256[],bytes32[2][])", False),
        ("E((int32,int32) p, tuple(bool)[3])", "E((int32,int32),(bool)[3])", False),
        ("E(string indexed)", "E(string)", True),
    ],
)
def test_a_signature_is_read_as_solidity_writes_it(text: str, signature: str, marked: bool) -> None:
    event, found = parse_signature(text)
    assert (event.signature, found) == (signature, marked)


def test_the_topic_of_a_transfer_is_the_one_everybody_knows() -> None:
    assert parse_signature("Transfer(address,address,uint256)")[0].topic == TRANSFER


@pytest.mark.parametrize(
    "text",
    [
        *("", "Transfer", "Transfer(", "Transfer)", "Transfer(address", "Transfer(address))"),
        *("Transfer(address,)", "Transfer(,address)", "(address)", "1a(bool)", "T(uint7)"),
        *("T(uint264)", "T(bytes33)", "T(bytes0)", "T(float)", "T(address) x", "T(a-b)"),
        "T(" + "(" * 50 + "bool" + ")" * 50 + ")",
        "T(bool indexed a, bool indexed b, bool indexed c, bool indexed d)",
    ],
)
def test_what_is_no_signature_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(EventError, match=r".{5}"):
        parse_signature(text)


@given(st.text(max_size=60) | st.from_regex(r"[A-Z]\([a-z0-9(),\[\] ]{0,40}\)", fullmatch=True))
def test_no_text_makes_the_reader_fail_otherwise(text: str) -> None:
    try:
        event, _ = parse_signature(text)
    except EventError:
        return
    again, _ = parse_signature(event.signature)
    assert again.signature == event.signature


def test_an_event_is_found_in_an_abi_by_its_name_or_its_signature() -> None:
    abi = contract("Beacon")["abi"]
    by_name = select_event("Ping", abi)
    assert by_name.event.signature == "Ping(uint256,address,string)"
    assert by_name.decodable
    assert select_event("Ping(uint256, address, string)", abi) == by_name
    assert select_event("", [entry for entry in abi if entry.get("name") == "Ping"]) == by_name


def test_a_signature_without_marks_chooses_logs_and_does_not_read_them() -> None:
    assert not select_event("Transfer(address,address,uint256)", []).decodable
    assert select_event("Transfer(address indexed,address indexed,uint256)", []).decodable
    assert select_event("Paused()", []).decodable


ABIS: list[tuple[list[dict[str, Any]], str, str]] = [
    ([], "Ping", "if no ABI is given"),
    ([{"type": "function", "name": "f"}], "f", "has no event"),
    ([{"type": "event", "name": "E", "inputs": []}], "F", "no event of the ABI"),
    (
        [
            {"type": "event", "name": "E", "inputs": []},
            {"type": "event", "name": "E", "inputs": [{"type": "bool"}]},
        ],
        "E",
        "more than one",
    ),
    ([{"type": "event", "name": "E"}], "E", "malformed"),
    ([{"type": "event", "name": "E", "inputs": [{"type": 5}]}], "E", "malformed"),
    ([{"type": "event", "name": "E", "inputs": [{"type": "tuple"}]}], "E", "does not match"),
    ([{"type": "event", "name": "E", "inputs": [], "anonymous": True}], "E", "no event of the ABI"),
]


@pytest.mark.parametrize(("abi", "wanted", "reason"), ABIS)
def test_an_event_that_is_not_one_of_the_abi_is_refused(
    abi: list[dict[str, Any]], wanted: str, reason: str
) -> None:
    with pytest.raises(EventError, match=reason):
        select_event(wanted, abi)


def test_a_signature_of_any_length_costs_little() -> None:
    for text in (
        "E(" + "bool," * 170_000 + "bool)",
        "E(" + "(" * 900_000,
        "E(bool" + "[]" * 500_000,
    ):
        began = time.process_time()
        with pytest.raises(EventError, match="at most 16384 characters"):
            select_event(text, [])
        assert time.process_time() - began < 1
    began = time.process_time()
    assert parse_signature("E(" + ",".join(["bool"] * 3_000) + ")")[0].inputs[2_999].type == "bool"
    assert time.process_time() - began < 1


def test_arrays_are_within_each_other_as_deeply_as_decoders_follow() -> None:
    assert parse_signature("E(uint256" + "[]" * 8 + ")")
    for text in ("[]" * 9, "[1]" * 9):
        with pytest.raises(EventError, match="more than 8 nested arrays"):
            parse_signature(f"E(uint256{text})")


def test_a_declaration_that_is_too_long_to_be_kept_is_refused() -> None:
    names = ",".join(f"uint256 {'n' * 20}{n}" for n in range(400))
    with pytest.raises(EventError, match="bytes"):
        encode(parse_signature(f"E({names})")[0])


def test_a_signature_of_a_megabyte_is_refused_before_it_is_read() -> None:
    before = time.process_time()
    with pytest.raises(EventError, match="at most 16384 characters"):
        parse_signature("E(" + "uint256," * (1 << 17) + "bool) ;")
    assert time.process_time() - before < 5
