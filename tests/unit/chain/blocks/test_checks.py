"""Ranges of old blocks whose logs an endpoint omits: which omissions are detected, and with which
probability."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec
import pytest

from fieldbrook.chain.blocks import checks
from fieldbrook.chain.blocks.bloom import bloom_of
from fieldbrook.chain.blocks.checks import BLOCKS_PER_HEADER, SECOND_OPINIONS, Range, RangeChecks
from fieldbrook.chain.blocks.logs import Log
from fieldbrook.chain.blocks.omissions import Block, IsComplete, LogFilter, OmissionDetector
from fieldbrook.chain.errors import IncompleteAnswerError
from fieldbrook.chain.rpc.client import ChainClient
from fieldbrook.chain.rpc.endpoint import Endpoint
from fieldbrook.chain.rpc.request import Request
from fieldbrook.chain.rpc.search import Answer
from fieldbrook.chain.rpc.transport import make_transport

ADDRESS, TOPIC = "0x" + "c0" * 20, "0x" + "ee" * 32
WANTED = LogFilter.for_contract(ADDRESS, (TOPIC,))
FILTER = {"address": [ADDRESS]}
SIZE = 100  # blocks of a range

Shows = Callable[[Log], bool]


def _hash(number: int) -> str:
    return f"0x{number:064x}"


def log_at(number: int, index: int = 0) -> Log:
    place = (number, _hash(number), _hash(number), 0, index)
    return Log(ADDRESS, (TOPIC,), "0x", *place)


class World:
    """A chain whose every `every`th block has a log, and two endpoints that show some of them."""

    def __init__(
        self, first: Shows, second: Shows | None, *, every: int = 10, salt: int = 1
    ) -> None:
        self.every = every
        self.endpoints = [Endpoint(url, make_transport(url)) for url in ("http://a", "http://b")]
        self.shows = {self.endpoints[0]: first, self.endpoints[1]: second or (lambda _log: True)}
        self.alone = second is None
        self.reported: list[tuple[Endpoint, str]] = []
        self.headers: list[int] = []
        self.made_up: list[Log] = []  # logs that the second endpoint has invented
        client = cast(ChainClient, self)
        detector = OmissionDetector("dev")
        self.checks = RangeChecks(
            "dev", client, detector, self._request, self._fetch_all, salt=salt
        )

    def logs(self, first: int, last: int) -> list[Log]:
        numbers = range(first, last + 1)
        return [log_at(number) for number in numbers if number % self.every == 0]

    def shown(self, endpoint: Endpoint, first: int, last: int) -> list[Log]:
        made_up = self.made_up if endpoint is self.endpoints[1] else []
        found = [log for log in self.logs(first, last) if self.shows[endpoint](log)]
        return found + [log for log in made_up if first <= log.block <= last]

    def read(self, first: int, endpoint: int = 0) -> list[int]:
        """Read a range through an endpoint; return the blocks of its logs."""
        asked = Range(FILTER, [WANTED], first, first + SIZE - 1)
        source = self.endpoints[endpoint]
        request = self._request(FILTER, asked.first, asked.last, source)
        answer = Answer(self.shown(source, asked.first, asked.last), source, request)
        return sorted(log.block for log in asyncio.run(self.checks.complete(asked, answer)))

    def noticed_within(self, ranges: int) -> bool:
        for number in range(ranges):
            try:
                self.read(number * SIZE)
            except IncompleteAnswerError:
                return True
        return False

    # ---------------------------------------------------------------- the client

    def has_other_than(self, endpoint: Endpoint) -> bool:
        return not self.alone

    async def answer(self, make: Callable[[Endpoint], Request], *, other_than: Endpoint) -> Answer:
        (other,) = [e for e in self.endpoints if e is not other_than]
        request = make(other)
        first, last = (int(request.params[0][key], 16) for key in ("fromBlock", "toBlock"))
        return Answer(self.shown(other, first, last), other, request)

    async def call(self, method: str, params: list[Any], *, read: Callable[[Any], Any]) -> Any:
        number = int(params[0], 16)
        self.headers.append(number)
        bloom = f"0x{bloom_of(self.logs(number, number)):0512x}"
        parent = _hash(number - 1) if number else _hash(0)
        raw = {"number": hex(number), "hash": _hash(number), "parentHash": parent}
        return read({**raw, "logsBloom": bloom})

    def report_omission(self, endpoint: Endpoint, reason: str) -> None:
        self.reported.append((endpoint, reason))

    def _request(
        self, filter_: Mapping[str, Any], first: int, last: int, _endpoint: Endpoint
    ) -> Request:
        return Request("eth_getLogs", [{"fromBlock": hex(first), "toBlock": hex(last), **filter_}])

    async def _fetch_all(
        self, block: Block, _receipts: bool, _is_complete: IsComplete, _other_than: Endpoint
    ) -> list[Log]:
        return self.logs(block.number, block.number)


def nothing(_log: Log) -> bool:
    return False


def everything(_log: Log) -> bool:
    return True


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Call another endpoint for each range."""
    monkeypatch.setattr(checks, "SECOND_OPINIONS", {True: 1.0, False: 1.0})


@pytest.mark.usefixtures("always")
def test_what_an_endpoint_left_out_is_noticed_and_from_then_on_added(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(lambda log: log.block < SIZE or log.block % 20 == 0, everything)
    assert world.read(0) == list(range(0, SIZE, 10))
    with pytest.raises(IncompleteAnswerError, match="it omitted logs of blocks 110 to 190"):
        world.read(SIZE)
    assert world.read(SIZE) == list(range(SIZE, 2 * SIZE, 10))
    assert [endpoint for endpoint, _ in world.reported] == [world.endpoints[0]]
    assert "blocks 0 to 99" in caplog.text
    assert "fieldbrook monitor rewind" in caplog.text


@pytest.mark.usefixtures("always")
def test_another_endpoint_that_has_less_is_the_one_that_left_something_out() -> None:
    world = World(everything, nothing)
    for first in (0, SIZE):
        assert world.read(first) == list(range(first, first + SIZE, 10))
    assert [endpoint for endpoint, _ in world.reported] == [world.endpoints[1]]


@pytest.mark.usefixtures("always")
def test_logs_that_a_header_does_not_announce_are_made_up() -> None:
    world = World(everything, everything)
    world.made_up = [msgspec.structs.replace(log_at(30, 1), topics=("0x" + "dd" * 32,))]
    assert world.read(0) == list(range(0, SIZE, 10))
    assert world.reported == [(world.endpoints[1], "it invented logs of blocks 30 to 30")]


def test_the_only_endpoint_is_compared_with_headers_and_with_all_of_them_once_it_was_wrong(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(checks, "BLOCKS_PER_HEADER", 10)
    world = World(nothing, None, every=2)
    with pytest.raises(IncompleteAnswerError, match="it omitted logs"):
        world.read(0)
    assert 10 <= len(world.headers) <= 11
    assert world.checks.most_blocks(world.endpoints[0]) == checks.SUSPECT_BLOCKS
    assert world.read(0) == list(range(0, SIZE, 2))
    assert len(world.headers) >= SIZE
    assert not caplog.records, "nothing was used before"


@pytest.mark.usefixtures("always")
def test_an_endpoint_is_trusted_again_when_enough_of_its_answers_were_right() -> None:
    world = World(lambda log: log.block >= SIZE, everything)
    with pytest.raises(IncompleteAnswerError):
        world.read(0)
    assert world.endpoints[0] in world.checks._suspects
    for number in range(40):
        world.read((number + 1) * SIZE)
    assert world.endpoints[0] not in world.checks._suspects


@pytest.mark.parametrize(("shows", "empty"), [(nothing, True), (lambda log: log.index, False)])
@pytest.mark.parametrize("ranges", [3, 10])
def test_an_endpoint_is_noticed_as_likely_as_is_stated_when_there_is_another_one(
    shows: Shows,
    empty: bool,
    ranges: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(checks, "BLOCKS_PER_HEADER", 1 << 60)
    monkeypatch.setattr(
        World, "logs", lambda _self, first, _last: [log_at(first), log_at(first, 1)]
    )
    runs = 400
    found = sum(World(shows, everything, salt=salt).noticed_within(ranges) for salt in range(runs))
    _assert_likely(found, runs, 1 - (1 - SECOND_OPINIONS[empty]) ** ranges)
    assert "it omitted logs" in caplog.text


@pytest.mark.parametrize(("every", "ranges"), [(2, 10), (20, 40)])
@pytest.mark.thorough("20-40")
def test_the_only_endpoint_is_noticed_as_likely_as_is_stated(
    every: int, ranges: int, caplog: pytest.LogCaptureFixture
) -> None:
    runs = 400
    found = sum(
        World(nothing, None, every=every, salt=salt).noticed_within(ranges) for salt in range(runs)
    )
    blocks = ranges * SIZE // every  # blocks whose logs it omits
    _assert_likely(found, runs, 1 - (1 - 1 / BLOCKS_PER_HEADER) ** blocks)
    assert "it omitted logs" in caplog.text


def _assert_likely(found: int, runs: int, chance: float) -> None:
    """Check a frequency; the salts are fixed, so the result is always the same."""
    deviation = math.sqrt(chance * (1 - chance) / runs)
    assert abs(found / runs - chance) < 3 * deviation + 0.02, (found / runs, chance)
