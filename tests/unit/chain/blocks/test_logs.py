"""Logs and transactions in the form of endpoints and in the form for handlers."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from fieldbrook.chain.blocks.logs import matches, read_log, transaction_json
from fieldbrook.chain.errors import MalformedAnswerError
from fieldbrook.chain.rpc.answers import read_header

RAW: dict[str, Any] = {
    "address": "0x" + "AB" * 20,
    "topics": ["0x" + "CD" * 32],
    "data": "0xEF",
    "blockNumber": "0x0010",
    "transactionHash": "0x" + "12" * 32,
    "transactionIndex": "0x0",
    "blockHash": "0x" + "34" * 32,
    "blockTimestamp": "0x6553f100",
    "logIndex": "0x7",
    "removed": False,
}


def test_a_log_is_the_same_whichever_endpoint_wrote_it() -> None:
    other = {key: RAW[key] for key in reversed(RAW) if key != "blockTimestamp"} | {
        "address": RAW["address"].lower(),
        "data": "0xef",
        "blockNumber": "0x10",
    }
    assert read_log(RAW) == read_log(other)
    assert read_log(RAW).as_json()["blockNumber"] == "0x10"


@pytest.mark.parametrize(
    "change",
    [
        {"address": "0x12"},
        {"address": None},
        {"topics": "0x"},
        {"topics": ["0x12"]},
        {"data": "0x1"},
        {"data": 5},
        {"blockNumber": "16"},
        {"blockNumber": None},
        {"blockHash": None},
        {"logIndex": "0x"},
        {"logIndex": "0x" + "f" * 80},
    ],
)
def test_a_log_that_is_none_is_not_taken(change: dict[str, Any]) -> None:
    with pytest.raises(MalformedAnswerError):
        read_log({**RAW, **change})


@pytest.mark.parametrize("raw", [None, [], "x", {}, {"number": "0x1"}])
def test_a_block_that_is_none_is_not_taken(raw: Any) -> None:
    with pytest.raises(MalformedAnswerError):
        read_header(raw)


def test_a_transaction_keeps_what_geth_writes_and_nothing_else() -> None:
    raw: dict[str, Any] = {
        "hash": "0xAB",
        "to": None,
        "nonce": "0x1",
        "publicKey": "0x04",
        "accessList": [],
    }
    assert transaction_json(raw) == {"hash": "0xab", "to": None, "nonce": "0x1", "accessList": []}


def test_a_log_with_fewer_topics_than_are_asked_for_does_not_match() -> None:
    found = read_log(RAW)
    address = RAW["address"].lower()
    assert matches(found, address, ("", "", "", ""))
    assert matches(found, address, ("0x" + "cd" * 32, "", "", ""))
    assert not matches(found, address, ("", "0x" + "cd" * 32, "", ""))
    assert not matches(found, "0x" + "00" * 20, ("", "", "", ""))


def test_the_libraries_of_chains_are_imported_by_no_other_process() -> None:
    script = (
        "import sys, fieldbrook.node.main as n, fieldbrook.gateway.http.tornado.applications,"
        "fieldbrook.gateway.mqtt.gateway, fieldbrook.gateway.schedule.ticker,"
        "fieldbrook.chain.process, fieldbrook.actors.project.actor;"
        "print([m for m in ('aiohttp', 'eth_abi', 'eth_account', 'web3') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_no_library_lets_json_recurse_until_the_process_ends() -> None:
    script = (
        "import sys; before = sys.getrecursionlimit();"
        "import fieldbrook.chain.blocks.decode, fieldbrook.chain.rpc.client;"
        "print(sys.getrecursionlimit() == before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "True"
