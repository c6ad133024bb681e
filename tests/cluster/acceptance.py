"""Tests and measurements of the promises of a cluster of three hosts: one line for each promise."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measure import cpu_s
from tests.cluster.sql_rows import Inserts, Rows
from tests.support.applets import TALLY
from tests.support.hosts import NAMES, Cluster, Host, Senders
from tests.support.networks import Network
from tests.support.nodes import message, named, part_of, until

PROJECT = "room"
_SETTLED_EVENTS = 30
_QUIET_S, _IDLE_S = 5.0, 20.0
_SHORT_PAUSE_S = 3.0
NOT_TRIED = (
    "a power cut, in which what was not synced is lost; and 30 minutes of faults at the engines",
    "the share of a single node's rate that a host keeps",
)


@dataclass(frozen=True)
class Plan:
    """How often each fault or operation happens.

    Attributes:
        kills: of the host that owns the project, with SIGKILL.
        cuts: of that host from the others, for `cut_s` seconds each.
        pauses: of that host, for `pause_s` seconds each.
        drains: of that host.
        moves: of the project, to each of the two other hosts and back.
        crashes: all processes of all hosts are killed at the same time.
        engine_kills: of the replication engine of one host after the other, with SIGKILL.
        sql_faults: faults of six kinds while a project of its own writes rows of an SQL table.
        restarts: all hosts are stopped and started, one after the other.
        other_version: the folder of the source of another version; each host is then stopped and
            started with that version, and afterwards with this one again.
        projects: of a second cluster, all but one without events.
    """

    kills: int = 20
    cuts: int = 20
    cut_s: float = 30.0
    pauses: int = 3
    pause_s: float = 20.0
    drains: int = 5
    moves: int = 5
    crashes: int = 3
    engine_kills: int = 9
    sql_faults: int = 24
    restarts: int = 1
    other_version: str = ""
    projects: int = 10_000


@dataclass(frozen=True)
class Line:
    """A promise, the measurement, and whether the promise held."""

    promise: str
    found: str
    holds: bool

    def __str__(self) -> str:
        return f"{'holds' if self.holds else 'FAILS'}  {self.promise}: {self.found}"


class Acceptance:
    """Three hosts, and the tests on them.

    Args:
        folder: the parent of the hosts' data folders.
        plan: how often each test is made.
    """

    def __init__(self, folder: Path, plan: Plan) -> None:
        self._folder, self._plan = folder, plan
        self._number = 0

    def run(self) -> Iterator[Line]:
        """Run all tests and return the lines."""
        began = time.monotonic()
        with Network(NAMES) as network:
            self._network = network
            yield from self._lines(began)

    def _lines(self, began: float) -> Iterator[Line]:
        self._cluster = Cluster(self._folder, self._prepare, self._network)
        try:
            host = self._cluster.hosts[2]
            until(lambda: self._is_taken(host), "the first event is acknowledged")
            formed_s = time.monotonic() - began
            yield Line(
                "three empty folders to the first 201 in 10 s", f"{formed_s:.1f} s", formed_s <= 10
            )
            yield self._kills()
            yield self._cuts()
            yield self._pauses()
            yield self._drains()
            yield self._moves()
            yield self._crashes()
            yield self._engine_kills()
            yield self._sql_faults()
            yield self._restarts("", self._plan.restarts)
            if self._plan.other_version:
                yield self._restarts(self._plan.other_version, 1)
                yield self._restarts("", 1)
            yield self._revocations()
            yield self._revocation_at_a_cut_host()
        finally:
            self._cluster.kill()
        yield from self._many_projects()

    def _many_projects(self) -> Iterator[Line]:
        """Form a cluster of a node with many projects; a host of it dies, and comes back."""
        made_at = [0.0]

        def prepare(host: Host) -> None:
            self._prepare(host)
            for number in range(self._plan.projects - 1):
                answer = host.call("POST", "/project", {"name": f"idle_{number}"})
                assert answer.status == 201, answer
            made_at[0] = time.monotonic()

        folder = self._folder / "many"
        folder.mkdir()
        self._cluster = Cluster(folder, prepare, self._network)
        try:
            hosts, owner = self._cluster.hosts, self._owner
            until(lambda: self._is_taken(hosts[2]), "an event is acknowledged")
            formed_s = time.monotonic() - made_at[0]
            idle = _cores(hosts)
            owner.kill()
            killed_at = time.monotonic()
            left = self._cluster.others(owner)
            until(lambda: self._is_taken(left[0]), "another host has its project")
            dead_s = time.monotonic() - killed_at
            started_at = time.monotonic()
            owner.start(ready=False)
            self._cluster.await_up()
            until(lambda: _projects(owner)[owner.name] > 0, "it owns projects again")
            until(lambda: self._is_taken(owner), "it acknowledges events")
            back_s = time.monotonic() - started_at
        finally:
            self._cluster.kill()
        yield Line(
            f"{self._plan.projects:,} projects on three hosts: forming, one death and one return "
            "each below 60 s",
            f"{formed_s:.1f} s, {dead_s:.1f} s, {back_s:.1f} s",
            max(formed_s, dead_s, back_s) < 60,
        )
        yield Line(
            f"{self._plan.projects:,} projects without events take less than 0.05 cores of a host",
            " ".join(f"{each:.3f}" for each in idle),
            max(idle) < 0.05,
        )

    def _prepare(self, host: Host) -> None:
        self._project: Any = host.create_project(PROJECT)
        self._applet: str = host.deploy(PROJECT, TALLY)["appletID"]
        self._publisher: Any = host.add_publisher(PROJECT, "first")

    def _is_taken(self, host: Host) -> bool:
        try:
            return host.send(PROJECT, message(self._publisher)).status == 201
        except OSError:
            return False

    @property
    def _owner(self) -> Host:
        return self._cluster.owner(self._project)

    @contextmanager
    def _load(self, hosts: Sequence[Host]) -> Iterator[Senders]:
        """Send events of three devices to hosts; in the end each must be counted once."""
        self._number += 1
        publisher = self._cluster.hosts[0].add_publisher(PROJECT, f"load {self._number}")
        before = self._counts()
        with Senders(hosts, PROJECT, publisher) as senders:
            senders.await_more(_SETTLED_EVENTS)
            yield senders
            senders.await_more(_SETTLED_EVENTS)
        self._wrong += abs(before + len(senders.acknowledged) - self._counts())
        self._sent += len(senders.acknowledged)

    def _counts(self) -> int:
        counts = {host.count(PROJECT, self._applet) for host in self._cluster.hosts}
        assert len(counts) == 1, counts
        return counts.pop()

    def _with_load(
        self, times: int, fault: Callable[[], None], hosts: Sequence[Host] = ()
    ) -> Senders:
        """Do an operation several times under load on hosts, by default on those that do not own
        the project; return what was sent."""
        self._wrong = self._sent = 0
        with self._load(hosts or self._cluster.others(self._owner)) as senders:
            for _ in range(times):
                fault()
                senders.await_more(_SETTLED_EVENTS)
        return senders

    def _ledger(self) -> str:
        return f"{self._sent} acknowledged, {self._wrong} lost or run twice"

    # ---------------------------------------------------------------- what is tried

    def _kills(self) -> Line:
        survivor = self._cluster.others(self._owner)[0]

        def kill() -> None:
            self._owner.kill()
            until(lambda: survivor.states()[self._owner.name] == "silent", "it is silent")
            self._owner.start(ready=False)
            self._cluster.await_up()

        senders = self._with_load(self._plan.kills, kill)
        gaps = sorted(senders.gaps())[-self._plan.kills :]
        longest = gaps[-1] if gaps else 0.0
        middle = gaps[len(gaps) // 2] if gaps else 0.0
        return Line(
            f"the owner's host is killed {self._plan.kills} times under load: none lost, none "
            "twice, no event above 10 s",
            f"{self._ledger()}; of the {len(gaps)} slowest events the median took {middle:.1f} s, "
            f"and the last {longest:.1f} s",
            not self._wrong and longest <= 10,
        )

    def _cuts(self) -> Line:
        late, back_s = 0, [0.0]
        host = self._owner
        publisher = self._cluster.hosts[0].add_publisher(PROJECT, "beside the owner")
        before = self._counts()
        with Senders([host], PROJECT, publisher, 1) as beside:

            def cut() -> None:
                nonlocal late
                self._network.cut(host.name)
                cut_at = time.monotonic()
                try:
                    moved_at = until(lambda: _first_after(load.times, cut_at + 1), "another owner")
                    time.sleep(max(0.0, cut_at + self._plan.cut_s - time.monotonic()))
                finally:
                    mended_at = time.monotonic()
                    self._network.mend(host.name)
                late += sum(moved_at < at < mended_at for at in beside.times)
                again_at = until(lambda: _first_after(beside.times, mended_at), "it serves again")
                back_s.append(again_at - mended_at)
                self._cluster.await_up()
                until(lambda: _projects(host)[host.name] == 1, "it has its project again")

            with Senders(self._cluster.others(host), PROJECT, self._publisher) as load:
                load.await_more(_SETTLED_EVENTS)
                for _ in range(self._plan.cuts):
                    cut()
                    load.await_more(_SETTLED_EVENTS)
            beside.await_more(_SETTLED_EVENTS)
        sent = len(load.acknowledged) + len(beside.acknowledged)
        wrong = abs(before + sent - self._counts())
        return Line(
            f"the owner's host is cut off {self._plan.cuts} times for {self._plan.cut_s:.0f} s, "
            "devices on both sides: none lost, none twice, no 201 from its side after another host "
            "runs the project, and again within 5 s after mending",
            f"{sent} acknowledged, {wrong} lost or run twice; {late} answers 201 too late; served "
            f"again after {max(back_s):.1f} s at most",
            not wrong and not late and max(back_s) <= 5,
        )

    def _pauses(self) -> Line:
        survivor = self._cluster.others(self._owner)[0]

        def pause() -> None:
            self._owner.pause()
            try:
                until(lambda: survivor.states()[self._owner.name] == "silent", "it is silent")
                time.sleep(self._plan.pause_s)
            finally:
                self._owner.go_on()
            self._cluster.await_up()

        self._with_load(self._plan.pauses, pause)
        return Line(
            f"the owner's host is paused for {self._plan.pause_s:.0f} s {self._plan.pauses} times "
            "under load: none lost, none twice",
            self._ledger(),
            not self._wrong,
        )

    def _drains(self) -> Line:
        other = self._cluster.others(self._owner)[0]
        path = f"/cluster/hosts/{self._owner.name}/drain"

        def drain() -> None:
            assert other.call("POST", path).status == 204
            until(lambda: _projects(other)[self._owner.name] == 0, "its project has moved")
            assert other.call("DELETE", path).status == 204
            until(lambda: _projects(other)[self._owner.name] == 1, "it has its project again")

        senders = self._with_load(self._plan.drains, drain)
        longest = max(senders.gaps(), default=0.0)
        return Line(
            f"the owner's host is drained {self._plan.drains} times under load: no answer but 201, "
            "no event above 1 s",
            f"{self._ledger()}, {_refused(senders)}, slowest {longest:.2f} s",
            not (self._wrong or senders.refused) and longest <= 1,
        )

    def _moves(self) -> Line:
        owner, *others = self._owner, *self._cluster.others(self._owner)
        path = f"/cluster/projects/{PROJECT}/pin"

        def move() -> None:
            for host in others:
                assert owner.call("PUT", path, {"host": host.name}).status == 204
                until(partial(_has_it, owner, host.name), "it has moved")
            assert owner.call("DELETE", path).status == 204
            until(partial(_has_it, owner, owner.name), "it is where it was")

        senders = self._with_load(self._plan.moves, move, self._cluster.hosts)
        longest = max(senders.gaps(), default=0.0)
        return Line(
            f"the project moves to each other host and back {self._plan.moves} times under load: "
            "no answer but 201, no event above 1 s",
            f"{self._ledger()}, {_refused(senders)}, slowest {longest:.2f} s",
            not (self._wrong or senders.refused) and longest <= 1,
        )

    def _crashes(self) -> Line:
        senders = self._with_load(self._plan.crashes, self._cluster.crash)
        longest = max(senders.gaps(), default=0.0)
        return Line(
            f"all processes of all hosts are killed at the same time {self._plan.crashes} times "
            "under load: none lost, none twice",
            f"{self._ledger()}, slowest {longest:.1f} s",
            not self._wrong,
        )

    def _engine_kills(self) -> Line:
        hosts = itertools.cycle(self._cluster.hosts)

        def kill() -> None:
            host = next(hosts)
            before = host.engine()
            os.kill(before, signal.SIGKILL)
            until(lambda: host.engine() not in (0, before), "another engine runs")
            self._cluster.await_up()

        senders = self._with_load(self._plan.engine_kills, kill, self._cluster.hosts)
        longest = max(senders.gaps(), default=0.0)
        return Line(
            f"the engine of one host after the other is killed {self._plan.engine_kills} times "
            "under load: none lost, none twice, no event above 10 s",
            f"{self._ledger()}, {_refused(senders)}, slowest {longest:.1f} s",
            not self._wrong and longest <= 10,
        )

    def _sql_faults(self) -> Line:
        """Break hosts while rows are inserted; count the rows after each fault, at another host."""
        rows, hosts, wrong = Rows(), self._cluster.hosts, 0
        rows.prepare(hosts[0])
        for number in range(self._plan.sql_faults):
            victim = hosts[number % len(hosts)]
            beside = self._cluster.others(victim)[0]
            rows.move(hosts[number // 2 % len(hosts)])
            with Inserts(rows, beside) as inserts:
                inserts.await_more(5)
                self._break(number % 6, victim, rows)
                inserts.await_more(5)
            self._cluster.await_up()
            wrong += rows.counts(beside) != (rows.inserted, rows.inserted)
        pages = []
        for host in hosts:
            rows.move(host)
            pages.append(rows.page(host))
        same = all(page == pages[0] for page in pages)
        return Line(
            f"hosts break {self._plan.sql_faults} times while rows of SQL are inserted: none lost, "
            "none twice, the same rows on all hosts",
            f"{rows.inserted} rows, wrong counts after {wrong} faults, "
            f"{'the same' if same else 'other'} rows on all hosts",
            not wrong and same,
        )

    def _break(self, kind: int, victim: Host, rows: Rows) -> None:
        match kind:
            case 0:
                victim.kill()
                victim.start(ready=False)
            case 1:
                os.kill(victim.engine(), signal.SIGKILL)
            case 2:
                victim.pause()
                time.sleep(_SHORT_PAUSE_S)
                victim.go_on()
            case 3:
                self._cluster.crash()
            case 4:
                for pid in victim.processes():
                    if part_of(pid).startswith("fb-worker"):
                        os.kill(pid, signal.SIGKILL)
            case _:
                for host in self._cluster.hosts:
                    rows.move(host)

    def _restarts(self, source: str, rounds: int) -> Line:
        """Stop and start all hosts, with the source in a folder if one is given."""

        def restart() -> None:
            for host in self._cluster.hosts:
                host.stop(signal.SIGTERM)
                host.environment = {**os.environ, "PYTHONPATH": source} if source else None
                host.start(ready=False)
                self._cluster.await_up()
                until(lambda: _projects(self._owner)[self._owner.name] == 1, "it is where it was")

        senders = self._with_load(rounds, restart, self._cluster.hosts)
        longest = max(senders.gaps(), default=0.0)
        what = f" with {Path(source).name}" if source else ""
        return Line(
            f"all hosts are stopped and started{what}, one after the other, under load: none lost, "
            "none twice, no answer but 201, no event above 1 s",
            f"{self._ledger()}, {_refused(senders)}, slowest {longest:.2f} s",
            not (self._wrong or senders.refused) and longest <= 1,
        )

    def _revocations(self) -> Line:
        accepted = 0
        for number, host in enumerate(self._cluster.hosts):
            publisher = host.add_publisher(PROJECT, f"guest {number}")
            for other in self._cluster.hosts:
                assert other.send(PROJECT, message(publisher)).status == 201
            host.call("DELETE", f"/publisher/data/{publisher['publisherID']}")
            for at, other in enumerate(self._cluster.hosts):
                event = named(message(publisher), f"after-{number}-{at}")
                accepted += other.send(PROJECT, event).status == 201
        return Line(
            "a revoked token is refused on every host that is there, from the answer on",
            f"{accepted} of 9 events taken",
            not accepted,
        )

    def _revocation_at_a_cut_host(self) -> Line:
        cut = self._cluster.others(self._owner)[0]
        publisher = self._cluster.hosts[0].add_publisher(PROJECT, "guest of a cut host")
        assert cut.send(PROJECT, message(publisher)).status == 201
        self._network.cut(cut.name)
        try:
            until(lambda: self._owner.states()[cut.name] == "silent", "it is silent")
            path = f"/publisher/data/{publisher['publisherID']}"
            assert self._owner.call("DELETE", path).status in (200, 204)
            tries = [cut.send(PROJECT, message(publisher)).status for _ in range(3)]
        finally:
            self._network.mend(cut.name)
        self._cluster.await_up()
        tries += [host.send(PROJECT, message(publisher)).status for host in self._cluster.hosts]
        return Line(
            "a revoked token is refused on every host, with one host cut off, too",
            f"{tries.count(201)} of {len(tries)} events taken",
            201 not in tries,
        )


def _first_after(times: list[float], begin: float) -> float:
    """Return the first of these times after a given time; 0 if there is none."""
    return next((at for at in list(times) if at > begin), 0.0)


def _projects(host: Host) -> dict[str, int]:
    rows = host.call("GET", "/cluster").json["data"]
    return {row["name"]: row["projects"] for row in rows}


def _has_it(asked: Host, name: str) -> bool:
    return _projects(asked)[name] == 1


def _cores(hosts: Sequence[Host]) -> list[float]:
    """Return how many cores the processes of each host use while idle."""
    time.sleep(_QUIET_S)  # what the start has left over is done
    before, began = [cpu_s([host.process.pid]) for host in hosts], time.monotonic()
    time.sleep(_IDLE_S)
    passed_s = time.monotonic() - began
    after = [cpu_s([host.process.pid]) for host in hosts]
    return [(end - start) / passed_s for start, end in zip(before, after, strict=True)]


def _refused(senders: Senders) -> str:
    """Return how many answers were not 201, and the most frequent reason."""
    reasons = Counter(str(answer.json.get("desc", "")) for answer in senders.refused)
    worst = "".join(f" ({count} of them: {reason})" for reason, count in reasons.most_common(1))
    return f"{len(senders.refused)} refused{worst}"
