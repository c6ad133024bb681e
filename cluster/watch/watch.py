"""Makes the heartbeats of this host, and evaluates those of the other hosts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from fieldbrook import __version__
from fieldbrook.actors.messages import ClusterCondition
from fieldbrook.actors.remote_path import FACTS
from fieldbrook.cluster.hosts_file import FOLDER
from fieldbrook.cluster.watch.conditions import STALLED_S, Since, conditions
from fieldbrook.cluster.watch.own import read_own
from fieldbrook.cluster.watch.streams import BEHIND_S, Streams, has_caught_up, read_streams
from fieldbrook.core.cluster.clock_difference import ClockDifference
from fieldbrook.core.cluster.facts import Beat, Facts, Known, Told
from fieldbrook.core.cluster.membership import Membership
from fieldbrook.core.cluster.outlook import outlook, spare_hosts
from fieldbrook.core.errors import EngineUnreachableError
from fieldbrook.observability import metrics, metrics_table

CHECK_S = 1.0
_ENGINE_S = 2.0
_CATCH_UP_S = 0.25
_UNREADY_S = 15.0  # after this time a host is ready, even if a stream still has no leader
_START_S = 10.0  # no conditions before this time, while a first heartbeat is missing


class _Host:
    """Another host: its last heartbeat, and the difference of its clock."""

    def __init__(self) -> None:
        self.told = Told()
        self.heard = 0.0
        self.mark = 0.0
        self.clock = ClockDifference()


class _Duration:
    """Measures how long a state has lasted."""

    def __init__(self) -> None:
        self._since: float | None = None

    def update(self, now: float, *, holds: bool) -> float | None:
        """Record whether the state holds now.

        Returns:
            For how many seconds the state has held; None if it does not.
        """
        if not holds:
            self._since = None
            return None
        if self._since is None:
            self._since = now
        return now - self._since


class Watch:
    """Monitors the hosts of a cluster. Use it in one event loop.

    Args:
        data: the data folder.
        run_dir: the folder of the file for the gateways.
        silence_s: after this time without a heartbeat a host counts as silent.
        monotonic: the clock for durations, in seconds.
        wall: the clock that is compared with those of other hosts, in Unix seconds.

    Attributes:
        serves: whether all processes of this host have started.
    """

    def __init__(
        self,
        data: Path,
        run_dir: Path,
        silence_s: float,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._engine, self._run_dir = data / FOLDER / "engine", run_dir
        self._silence_s, self._monotonic, self._wall = silence_s, monotonic, wall
        self._hosts: dict[str, _Host] = {}
        self._own, self._streams = read_own(metrics_table.shared.table), Streams()
        self._reading: asyncio.Future[Streams] | None = None
        self._next_check = self._next_reading = 0.0
        self._at_risk, self._stalled, self._behind = _Duration(), _Duration(), _Duration()
        self._is_at_risk = self._is_stalled = False
        self._fenced_at: float | None = None
        self._reported: tuple[ClusterCondition, ...] | None = None
        self._began = self._alone_at = monotonic()
        self.serves = self._is_ready = self._caught_up = False
        self._asking: asyncio.Future[bool] | None = None
        self._next_asking = 0.0

    # ---------------------------------------------------------------- heartbeats

    def beat(self, name: str, *, draining: bool) -> dict[str, Any]:
        """Return the next heartbeat for another host."""
        now = self._monotonic()
        host = self._hosts.get(name)
        echo = (host.mark, now - host.heard) if host is not None and host.heard else None
        told = msgspec.structs.asdict(self._told(draining=draining))
        beat = Beat(**told, clock=self._wall(), mark=now, echo=echo)
        return {"beat": msgspec.to_builtins(beat)}

    def heard(self, name: str, beat: object) -> None:
        """Process a heartbeat of another host."""
        host = self._hosts.setdefault(name, _Host())
        now = self._monotonic()
        try:
            told = msgspec.convert(beat, Beat)
        except msgspec.ValidationError:
            told = Beat()  # a heartbeat of an unknown version only proves that the host is up
        if now - host.heard > self._silence_s:
            host.clock.clear()
        host.told, host.heard, host.mark = told, now, told.mark
        if told.echo is not None and told.clock:
            mark, kept_s = told.echo
            host.clock.add(told.clock, self._wall(), now - mark - kept_s)

    def _told(self, *, draining: bool) -> Told:
        return Told(
            version=__version__,
            draining=draining,
            ready=self._is_ready,
            load=self._own.load,
            running=self._own.running,
            led=self._streams.led,
            held=self._streams.held,
            at_risk=self._streams.at_risk if self._is_at_risk else 0,
            stalled=self._streams.stalled if self._is_stalled else 0,
            lags=self._streams.lags,
            registry=self._own.registry,
        )

    # ---------------------------------------------------------------- checks

    def is_ready(self, known: Membership, *, alone: bool) -> bool:
        """Return whether this host may own projects.

        A host is ready when all its processes have started, and its replication engine has caught
        up with the other engines since the host was last without a majority. It stays ready during
        elections, because these delay all hosts alike.

        Args:
            known: the list of hosts.
            alone: whether this host sees no majority of the hosts now.
        """
        now = self._monotonic()
        if alone:
            self._alone_at = now
        if alone or not self._is_ready:
            caught_up = self._ask_caught_up(now, known)
            caught_up |= now - self._alone_at > _UNREADY_S
            self._is_ready = caught_up and self.serves
        return self._is_ready

    def _ask_caught_up(self, now: float, known: Membership) -> bool:
        """Return the engine's last answer; if the next request is due, start it in another
        thread."""
        if self._asking is not None and self._asking.done():
            self._caught_up, self._asking = self._asking.result(), None
        if known.formed and self._asking is None and now >= self._next_asking:
            self._next_asking = now + _CATCH_UP_S
            self._asking = asyncio.ensure_future(asyncio.to_thread(_has_caught_up, self._engine))
        return self._caught_up

    def check(self, known: Membership) -> tuple[ClusterCondition, ...] | None:
        """Check the state of the cluster, at most once a second, and write it for the gateways.

        Returns:
            All conditions if they have changed, otherwise None.
        """
        now = self._monotonic()
        if now < self._next_check:
            return None
        self._next_check = now + CHECK_S
        fenced = self._own.fenced
        self._own = read_own(metrics_table.shared.table)
        if self._own.fenced > fenced:
            self._fenced_at = now
        self._refresh_streams(now, known)
        silent = [
            host.name
            for host in known.others
            if now - self._hosts.setdefault(host.name, _Host()).heard > self._silence_s
        ]
        at_risk_s = self._at_risk.update(now, holds=self._streams.at_risk > 0)
        stalled_s = self._stalled.update(now, holds=self._streams.stalled > 0)
        self._is_at_risk = at_risk_s is not None and at_risk_s >= BEHIND_S
        self._is_stalled = stalled_s is not None and stalled_s >= STALLED_S
        facts = self._facts(known, silent)
        self._write(facts)
        if not known.formed:
            return None
        mine = next(host for host in facts.hosts if host.name == known.me)
        self._put(mine)
        since = Since(
            append_s=self._own.oldest_append_s,
            fenced_s=None if self._fenced_at is None else now - self._fenced_at,
            registry_s=self._behind.update(now, holds=mine.registry_lag > 0),
            stalled_s=stalled_s,
        )
        if now < self._began + _START_S and not all(self._hosts[name].heard for name in silent):
            return None
        found = conditions(facts, silent, since, self._silence_s)
        if found == self._reported:
            return None
        self._reported = found
        return found

    def _refresh_streams(self, now: float, known: Membership) -> None:
        """Use the engine's last answer; if the next request is due, start it in another thread."""
        if self._reading is not None and self._reading.done():
            self._streams, self._reading = self._reading.result(), None
        if known.formed and self._reading is None and now >= self._next_reading:
            self._next_reading = now + _ENGINE_S
            asked = asyncio.to_thread(_read_streams, self._engine, known.me)
            self._reading = asyncio.ensure_future(asked)

    def _facts(self, known: Membership, silent: list[str]) -> Facts:
        mine = self._told(draining=False)
        told = {name: host.told for name, host in self._hosts.items()}
        told[known.me] = mine
        here = [told[host.name] for host in known.hosts if host.name not in silent]
        spare = spare_hosts(
            len(known.hosts),
            len(here),
            stalled=any(one.stalled for one in here),
            at_risk=any(one.at_risk for one in here),
        )
        lags: dict[str, int] = {}
        for one in here:
            for name, records in one.lags.items():
                lags[name] = lags.get(name, 0) + records
        newest = max(one.registry for one in told.values())
        behind = [name for name in self._streams.behind if name not in silent]
        names = [host.name for host in known.hosts]
        return Facts(
            me=known.me,
            at=self._monotonic(),
            hosts=[
                self._known(name, told[name], lags, newest, is_me=name == known.me)
                for name in names
            ],
            spare=spare if known.formed else 0,
            outlook=outlook(names, silent, spare, behind if self._is_at_risk else ()),
        )

    def _known(
        self, name: str, told: Told, lags: dict[str, int], newest: int, *, is_me: bool
    ) -> Known:
        host = self._hosts.get(name)
        clock = None if host is None else host.clock.best
        return Known(
            name=name,
            told=told,
            heard=self._monotonic() if is_me else 0.0 if host is None else host.heard,
            clock_difference_s=0.0 if is_me else None if clock is None else clock.seconds,
            clock_error_s=0.0 if clock is None else clock.error_s,
            lag=lags.get(name),
            registry_lag=newest - told.registry if told.registry else 0,
        )

    def _put(self, mine: Known) -> None:
        streams = self._streams
        metrics.put(metrics.REGISTRY_LAG, mine.registry_lag)
        metrics.put(metrics.STREAM_BYTES, streams.used_bytes)
        metrics.put(metrics.STREAM_LIMIT_BYTES, streams.limit_bytes)
        for state, count in (
            ("held", streams.held),
            ("led", streams.led),
            ("at_risk", streams.at_risk),
            ("stalled", streams.stalled),
        ):
            metrics.put(metrics.STREAMS[state], count)

    def _write(self, facts: Facts) -> None:
        new = self._run_dir / f".{FACTS}"
        new.write_bytes(msgspec.json.encode(facts))
        new.replace(self._run_dir / FACTS)


def _read_streams(folder: Path, me: str) -> Streams:
    """Read the streams; an empty value while the engine does not run (another condition reports
    it)."""
    try:
        return read_streams(folder, me)
    except EngineUnreachableError:
        return Streams()


def _has_caught_up(folder: Path) -> bool:
    try:
        return has_caught_up(folder)
    except EngineUnreachableError:
        return False
