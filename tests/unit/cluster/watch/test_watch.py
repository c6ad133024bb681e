"""Heartbeats between hosts, and their effects on each, with simulated clocks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from fieldbrook.actors.remote_path import FACTS
from fieldbrook.cluster.watch.own import read_own
from fieldbrook.cluster.watch.watch import Watch
from fieldbrook.core.cluster.facts import Facts
from fieldbrook.core.cluster.membership import Host, Membership
from fieldbrook.observability import health, metrics, metrics_table
from fieldbrook.observability.metrics_table import Table

SILENCE_S = 1.5
HOSTS = tuple(Host(name, "127.0.0.1", 1, 2) for name in ("h1", "h2", "h3"))


class Clock:
    """The time of one host: `wall` may be wrong."""

    def __init__(self, start: float, wrong_s: float = 0.0) -> None:
        self.at, self._wrong_s = start, wrong_s

    def monotonic(self) -> float:
        return self.at

    def wall(self) -> float:
        return 1_000_000.0 + self.at + self._wrong_s


class Pair:
    """Two hosts whose heartbeats take `way_s`."""

    def __init__(self, folder: Path, wrong_s: float = 0.0) -> None:
        self.clocks = {"h1": Clock(100.0), "h2": Clock(100.0, wrong_s)}
        self.watches = {}
        for name, clock in self.clocks.items():
            run = folder / name
            run.mkdir()
            self.watches[name] = Watch(folder, run, SILENCE_S, clock.monotonic, clock.wall)

    def wait(self, seconds: float) -> None:
        for clock in self.clocks.values():
            clock.at += seconds

    def beat(self, sender: str, receiver: str, way_s: float = 0.01) -> None:
        beat = self.watches[sender].beat(receiver, draining=False)["beat"]
        self.wait(way_s)
        self.watches[receiver].heard(sender, beat)

    def talk(self, way_s: float = 0.01) -> None:
        self.beat("h1", "h2", way_s)
        self.beat("h2", "h1", way_s)
        self.beat("h1", "h2", way_s)


def membership(count: int = 3) -> Membership:
    return Membership("c", "h1", HOSTS[:count], formed=False)  # its engine is not queried


def written(folder: Path) -> Facts:
    return msgspec.json.decode((folder / "h1" / FACTS).read_bytes(), type=Facts)


@pytest.mark.parametrize("way_s", [0.01, 2.0])
def test_the_difference_of_clocks_is_measured_however_long_beats_take(
    tmp_path: Path, way_s: float
) -> None:
    pair = Pair(tmp_path, wrong_s=5.0)
    pair.talk(way_s)
    pair.watches["h1"].check(membership(2))
    other = written(tmp_path).hosts[1]
    assert other.clock_difference_s == pytest.approx(5.0)
    assert other.clock_error_s == pytest.approx(way_s)


def test_the_file_for_gateways_has_what_each_host_has_told(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.talk()
    pair.wait(0.5)
    pair.watches["h1"].check(membership())
    facts = written(tmp_path)
    assert [host.name for host in facts.hosts] == ["h1", "h2", "h3"]
    mine, other, never = facts.hosts
    assert mine.told.version == other.told.version != ""
    assert mine.clock_difference_s == 0.0
    assert pair.clocks["h1"].at - other.heard == pytest.approx(0.51)
    assert (never.heard, never.clock_difference_s) == (0.0, None)


def test_it_looks_once_a_second(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.watches["h1"].check(membership())
    before = (tmp_path / "h1" / FACTS).stat().st_ino
    pair.wait(0.5)
    pair.watches["h1"].check(membership())
    assert (tmp_path / "h1" / FACTS).stat().st_ino == before
    pair.wait(0.5)
    pair.watches["h1"].check(membership())
    assert (tmp_path / "h1" / FACTS).stat().st_ino != before


@pytest.mark.parametrize("beat", [{"version": 3}, "no beat", {"registry": "x"}])
def test_a_beat_of_another_form_means_that_the_host_is_there(tmp_path: Path, beat: object) -> None:
    pair = Pair(tmp_path)
    pair.watches["h1"].heard("h2", beat)
    pair.watches["h1"].check(membership())
    assert written(tmp_path).hosts[1].heard == pair.clocks["h1"].at


@pytest.fixture
def table() -> Iterator[Table]:
    before = metrics_table.shared.table
    made = metrics_table.shared.table = Table(rows=8)
    for slot, part in enumerate(("supervisor", "registry", "worker:0", "worker:1")):
        made.name(slot, part)
    yield made
    metrics_table.shared.table = before


def test_a_host_tells_what_its_processes_count(table: Table, tmp_path: Path) -> None:
    table.row(0)[metrics.PROJECT_STATES["up"]] = 7
    table.row(1)[metrics.REGISTRY_POSITION] = 41
    table.row(2)[metrics.APPEND_OLDEST] = 0.5
    table.row(3)[metrics.APPEND_OLDEST] = 2.5
    table.row(3)[metrics.APPENDS["fenced"]] = 2
    own = read_own(table)
    assert own[:4] == (7, 41, 2.5, 2)
    pair = Pair(tmp_path)
    pair.talk()
    pair.watches["h1"].check(membership())
    assert [host.told.running for host in written(tmp_path).hosts] == [7, 7, 0]


def test_a_registry_that_lacks_changes_is_reported_after_some_seconds(
    table: Table, tmp_path: Path
) -> None:
    formed = Membership("c", "h1", HOSTS[:1], formed=True)
    formed = msgspec.structs.replace(formed, hosts=HOSTS)
    pair = Pair(tmp_path)
    watch = pair.watches["h1"]
    watch._next_reading = float("inf")  # there is no engine
    reported = []
    for second in range(9):
        table.row(1)[metrics.REGISTRY_POSITION] = 40 if second < 7 else 42
        for name in ("h2", "h3"):
            watch.heard(name, {"registry": 42})
        found = watch.check(formed)
        if found is not None:
            reported.append((second, [one.state for one in found]))
        pair.wait(1.0)
    assert reported == [(0, []), (5, [health.REGISTRY_BEHIND]), (7, [])]


def test_refused_records_are_reported_from_then_on(table: Table, tmp_path: Path) -> None:
    formed = Membership("c", "h1", HOSTS, formed=True)
    table.row(2)[metrics.APPENDS["fenced"]] = 3  # count of an earlier process
    pair = Pair(tmp_path)
    watch = pair.watches["h1"]
    watch._next_reading = float("inf")
    seen = []
    for second in range(3):
        for name in ("h2", "h3"):
            watch.heard(name, {})
        found = watch.check(formed)
        seen.append(None if found is None else [one.state for one in found])
        table.row(2)[metrics.APPENDS["fenced"]] += second == 0
        pair.wait(1.0)
    assert seen == [[], [health.FENCED], None]


def test_hosts_that_start_together_have_some_seconds_before_they_are_missed(
    table: Table, tmp_path: Path
) -> None:
    formed = Membership("c", "h1", HOSTS, formed=True)
    pair = Pair(tmp_path)
    watch = pair.watches["h1"]
    watch._next_reading = float("inf")
    reported = {}
    for second in range(13):
        watch.heard("h2", {})
        found = watch.check(formed)
        if found is not None:
            reported[second] = {one.part for one in found}
        pair.wait(1.0)
    assert reported == {10: {"host:h3", "cluster"}}


def test_a_host_is_ready_for_projects_when_all_its_parts_have_started(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    watch = pair.watches["h1"]
    pair.wait(60.0)  # a stream without a leader is no reason any more
    assert not watch.is_ready(membership(), alone=False)
    watch.serves = True
    assert watch.is_ready(membership(), alone=False)
