"""Logs decoded by the declarations of their events, compared with the encoding of another
library."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from eth_abi.abi import encode
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.chain.blocks.decode import DOES_NOT_FIT, make_decoder
from fieldbrook.chain.blocks.logs import Log
from fieldbrook.gateway.management.routes.chain import contract_events

HASH = "0x" + "11" * 32


def read(signature: str, data: bytes, *topics: str) -> Any:
    event, _ = contract_events.parse_signature(signature)
    all_topics = event.topic, *topics
    log = Log("0x" + "22" * 20, all_topics, "0x" + data.hex(), 1, HASH, HASH, 0, 0)
    return make_decoder(contract_events.encode(event))(log)


def shown(kind: str, value: Any) -> Any:
    """Return a value in the form for handlers."""
    if kind.endswith("]"):
        return [shown(kind[: kind.rindex("[")], item) for item in value]
    if kind.startswith("("):
        kinds = split(kind[1:-1])
        return {f"arg{n}": shown(k, v) for n, (k, v) in enumerate(zip(kinds, value, strict=True))}
    if isinstance(value, bytes):
        return "0x" + value.hex()
    return value if isinstance(value, (bool, str)) else str(value)


def split(text: str) -> list[str]:
    """Return the parts of a list of types."""
    parts, depth, at = [], 0, 0
    for n, letter in enumerate(text + ","):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and not depth:
            parts.append(text[at:n])
            at = n + 1
    return parts


def values(kind: str) -> st.SearchStrategy[Any]:
    """Return a strategy for the values of a type."""
    if kind.endswith("]"):
        inner, digits = kind[: kind.rindex("[")], kind[kind.rindex("[") + 1 : -1]
        least, most = (int(digits), int(digits)) if digits else (0, 3)
        return st.lists(values(inner), min_size=least, max_size=most)
    if kind.startswith("("):
        return st.tuples(*(values(part) for part in split(kind[1:-1])))
    if kind.startswith("uint"):
        return st.integers(0, 2 ** int(kind[4:]) - 1)
    if kind.startswith("int"):
        half = 2 ** (int(kind[3:]) - 1)
        return st.integers(-half, half - 1)
    if kind == "bytes":
        return st.binary(max_size=70)
    if kind.startswith("bytes"):
        return st.binary(min_size=int(kind[5:]), max_size=int(kind[5:]))
    simple: dict[str, st.SearchStrategy[Any]] = {
        "bool": st.booleans(),
        "string": st.text(st.characters(codec="utf-8"), max_size=40),
        "address": st.binary(min_size=20, max_size=20).map(lambda b: "0x" + b.hex()),
    }
    return simple[kind]


SIMPLE = st.sampled_from(
    "bool string bytes address uint8 uint256 int24 int256 bytes1 bytes32".split()  # noqa: SIM905
)
KINDS = st.recursive(
    SIMPLE,
    lambda inner: (
        st.tuples(inner, st.sampled_from(["[]", "[2]"])).map("".join)
        | st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"({','.join(parts)})")
    ),
    max_leaves=5,
)


@given(st.data())
def test_what_is_encoded_is_read(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(KINDS, max_size=4))
    given_values = [data.draw(values(kind)) for kind in kinds]
    signature = f"E({','.join(kinds)})"
    expected = {f"arg{n}": shown(k, v) for n, (k, v) in enumerate(zip(kinds, given_values))}  # noqa: B905
    found = read(signature, encode(kinds, given_values))
    assert found == {"event": signature, "args": expected}


@given(KINDS, st.binary(max_size=400), st.data())
def test_any_data_is_read_or_said_not_to_fit(kind: str, noise: bytes, data: st.DataObject) -> None:
    good = encode([kind], [data.draw(values(kind))])
    at = data.draw(st.integers(0, len(good)))
    for changed in (noise, good[:at], good[:at] + noise, good[:at] + b"\xff" + good[at + 1 :]):
        found = read(f"E({kind})", changed)
        assert found["args"] is not None or found["argsError"] == DOES_NOT_FIT
        json.dumps(found)


def test_what_is_indexed_comes_from_the_topics_and_what_is_long_as_its_hash() -> None:
    minus = "0x" + "ff" * 32
    long = "0x" + "ab" * 32
    found = read(
        "E(int8 indexed a, string b, string indexed c, uint8[2] indexed d)",
        encode(["string"], ["x"]),
        *(minus, long, long),
    )
    assert found["args"] == {"a": "-1", "b": "x", "c": long, "d": long}


@pytest.mark.parametrize("name", ["abi", "address", "w3", "_events", "__class__", "Event"])
def test_logs_of_events_and_arguments_are_read_whatever_their_names_are(name: str) -> None:
    """web3 and Python have attributes of most of these names."""
    found = read(f"{name}(uint8 {name})", encode(["uint8"], [7]))
    assert found == {"event": f"{name}(uint8)", "args": {name: "7"}}


@pytest.mark.parametrize(
    ("signature", "data", "topics"),
    [
        ("E(uint256 indexed a)", b"", ()),
        ("E(uint256 a)", b"", ("0x" + "00" * 32,)),
        ("E(uint8 indexed a)", b"", ("0x" + "00" * 30 + "0100",)),
        ("E(bool a)", bytes(31) + b"\2", ()),
        ("E(address a)", b"\1" + bytes(31), ()),
        ("E(bytes4 a)", bytes(31) + b"\1", ()),
        ("E(uint256 a, uint256 b)", bytes(32), ()),
        ("E(string a)", bytes(31) + b"\x20" + b"\xff" * 32, ()),
    ],
)
def test_a_log_that_does_not_fit_its_declaration_is_said_to(
    signature: str, data: bytes, topics: tuple[str, ...]
) -> None:
    found = read(signature, data, *topics)
    assert (found["args"], found["argsError"]) == (None, DOES_NOT_FIT)


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_pointers_that_lead_to_the_same_place_again_and_again_end_soon(depth: int) -> None:
    count = 400
    text = (count * 32).to_bytes(32) + b"a" * 32 * count
    for _ in range(depth - 1):  # an array of as many pointers, all to the same inner array
        text = count.to_bytes(32) + (count * 32).to_bytes(32) * count + text
    started = time.process_time()
    found = read(f"E(string{'[]' * (depth - 1)})", (32).to_bytes(32) + text)
    assert found["args"] is None
    assert time.process_time() - started < 5


def test_arrays_of_nothing_are_no_types() -> None:
    for text in ("E(uint8[0])", "E(uint8[0][])", "E(()[])", "E(uint8[00])"):
        with pytest.raises(contract_events.EventError):
            contract_events.parse_signature(text)


@pytest.mark.parametrize("array", ["[]", "[1]", "[9999]"])
def test_a_declaration_of_an_earlier_version_that_is_nested_too_deeply_reads_nothing(
    array: str,
) -> None:
    declaration = {"name": "E", "inputs": [{"type": "uint256" + array * 300, "name": "a"}]}
    began = time.process_time()
    with pytest.raises(ValueError, match="more than 8 arrays"):
        make_decoder(json.dumps(declaration))
    assert time.process_time() - began < 1


@pytest.mark.parametrize("array", ["[]", "[1]"])
def test_arrays_in_arrays_of_large_tuples_are_read_in_time(array: str) -> None:
    members = ",".join(["uint8"] * 400)
    text = f"E(({members}){array * 8})"
    began = time.process_time()
    read(text, b"\0" * 31 + b"\x20" + (b"\0" * 31 + b"\1") * 30_000)
    assert time.process_time() - began < 5
