"""Logs read by the declaration of their event."""

from __future__ import annotations

import json
from typing import Any

import pytest
from eth_abi.abi import encode

from fieldbrook.chain.decode import DOES_NOT_FIT, make_decoder
from fieldbrook.chain.logs import Log
from fieldbrook.wasm.crypto import keccak256

SENDER = "0xF39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
SIGNATURE = "Read(address,string,(uint256,bytes4)[],bool,string,int8)"
INPUTS: list[dict[str, Any]] = [
    {"type": "address", "name": "sender", "indexed": True},
    {"type": "string", "indexed": True},
    {
        "type": "tuple[]",
        "name": "rows",
        "components": [{"type": "uint256", "name": "value"}, {"type": "bytes4"}],
    },
    {"type": "bool", "name": "good"},
    {"type": "string", "name": "text"},
    {"type": "int8", "name": "change"},
]
DATA = encode(
    ["(uint256,bytes4)[]", "bool", "string", "int8"],
    [[(2**256 - 1, b"abcd"), (0, b"\xff\0\0\0")], True, SENDER, -3],
)
TOPICS = (
    "0x" + keccak256(SIGNATURE.encode()).hex(),
    "0x" + "00" * 12 + SENDER[2:].lower(),
    "0x" + "33" * 32,
)


def log(topics: tuple[str, ...] = TOPICS, data: bytes = DATA) -> Log:
    return Log(
        address="0x" + "11" * 20,
        topics=topics,
        data="0x" + data.hex(),
        block=7,
        block_hash="0x" + "22" * 32,
        transaction_hash="0x" + "44" * 32,
        transaction_index=0,
        index=0,
    )


def test_every_kind_of_argument_becomes_json() -> None:
    read = make_decoder(json.dumps({"name": "Read", "inputs": INPUTS}))
    assert read(log()) == {
        "event": SIGNATURE,
        "args": {
            "sender": SENDER.lower(),
            "arg1": "0x" + "33" * 32,
            "rows": [
                {"value": str(2**256 - 1), "arg1": "0x61626364"},
                {"value": "0", "arg1": "0xff000000"},
            ],
            "good": True,
            "text": SENDER,
            "change": "-3",
        },
    }
    json.dumps(read(log()))


@pytest.mark.parametrize(
    "other",
    [
        log(topics=TOPICS[:2]),
        log(topics=(*TOPICS, TOPICS[2])),
        log(data=b""),
        log(data=DATA[:-32]),
        log(data=b"\xff" * len(DATA)),
        log(topics=(TOPICS[0], "0x" + "ff" * 32, TOPICS[2])),
    ],
    ids=["a topic less", "a topic more", "no data", "cut", "nonsense", "no address"],
)
def test_a_log_that_does_not_fit_is_told_so(other: Log) -> None:
    read = make_decoder(json.dumps({"name": "Read", "inputs": INPUTS}))
    assert read(other) == {"event": SIGNATURE, "args": None, "argsError": DOES_NOT_FIT}
