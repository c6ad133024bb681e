"""The Bloom filters of blocks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.chain.blocks.bloom import bits_of, bits_of_filter, bloom_of, holds
from fieldbrook.chain.blocks.logs import Log, matches
from fieldbrook.chain.rpc.answers import FULL_BLOOM, read_bloom
from fieldbrook.security.keccak import keccak256

ADDRESSES = st.integers(0, 30).map(lambda n: f"0x{n:040x}")
TOPICS = st.integers(0, 30).map(lambda n: f"0x{n:064x}")
HASH = "0x" + "00" * 32


@st.composite
def logs(draw: st.DrawFn) -> Log:
    topics = tuple(draw(st.lists(TOPICS, max_size=4)))
    return Log(draw(ADDRESSES), topics, "0x", 1, HASH, HASH, 0, draw(st.integers(0, 99)))


def test_the_bits_are_those_that_go_ethereum_sets() -> None:
    # Source: go-ethereum, core/types/bloom9_test.go, TestBloomExtensively.
    bits = 0
    for n in range(100):
        bits |= bits_of("0x" + f"xxxxxxxxxx data {n} yyyyyyyyyyyyyy".encode().hex())
    expected = "c8d3ca65cdb4874300a9e39475508f23ed6da09fdbc487f89a2dcf50b09eb263"
    assert keccak256(bits.to_bytes(256)).hex() == expected


@given(st.lists(logs(), max_size=20), ADDRESSES, st.lists(TOPICS | st.just(""), max_size=4))
def test_a_block_that_has_a_log_has_the_bits_of_each_filter_that_the_log_matches(
    found: list[Log], address: str, topics: list[str]
) -> None:
    if any(matches(log, address, topics) for log in found):
        assert holds(bloom_of(found), bits_of_filter(address, topics))


@given(logs())
def test_a_block_without_logs_has_the_bits_of_none(log: Log) -> None:
    assert bloom_of([]) == 0
    assert not holds(0, bits_of_filter(log.address, log.topics))


@given(st.integers(0, FULL_BLOOM - 1))
def test_what_a_header_says_is_read_as_it_is(bits: int) -> None:
    assert read_bloom(f"0x{bits:0512x}") == bits
    assert read_bloom(f"0x{bits:0512X}") == bits


@pytest.mark.parametrize(
    "raw",
    [
        *(None, 5, "", "0x", "0x00", "0x" + "zz" * 256, "0x" + "00" * 257, ["0x"], "00" * 257),
        *("0x" + "ff" * 256, "0x" + " 1" * 256, "0x" + "é" * 512),
    ],
)
def test_what_tells_nothing_is_no_filter(raw: Any) -> None:
    assert read_bloom(raw) == 0
