"""Speculation: runs heavy handlers in several processes, with the results of a single one.

The project's process handles the events of a round in order. When handlers are heavy, it sends
later events to shards (`actors.project.shard`) in advance; within a round all events of a publisher
go to the same process. When it reaches an event that a shard has run, it validates the shard's
speculative run (`speculation.is_valid`). A valid one replaces the run. When it is invalid, or the
shard died or hangs, the project runs the handler itself. So the results are the same as without
shards.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from fieldbrook.actors.project.routing import Target
from fieldbrook.actors.project.shard import PART, PROJECT, READY, Setup
from fieldbrook.actors.project.speculation import SpeculativeRun, adopt, is_valid, pack, unpack
from fieldbrook.actors.project.speculation_policy import SpeculationPolicy
from fieldbrook.actors.supervisor.restarts import STEADY_S, Restarts
from fieldbrook.actors.wire import FRAME_BYTES, FrameReader, WireEvent, frame
from fieldbrook.core.errors import StoreError
from fieldbrook.core.model import Applet
from fieldbrook.observability import metrics, node_log
from fieldbrook.system.process import module_command
from fieldbrook.wasm.run import Run

log = logging.getLogger(__name__)

IDLE_S = 10.0
OVERTIME_S = 3.0  # a shard this long over the deadline hangs: the engine did not stop its run
_START_LIMIT_S = 20.0
_READ_BYTES = 1 << 16
_PART_S = 0.020  # of work for a shard at a time; more would make it read stale values
_PART_EVENTS = 64
_FLUSH_S = 0.005

Place = tuple[int, int]
"""The number of an event, and the index of a run among the runs of that event."""


class Readers(Protocol):
    """The part of the project's store that shards depend on."""

    def read(self, stored_key: bytes) -> bytes | None:
        """The value of a stored key, as the next run would see it."""
        ...

    def free_readers(self) -> None:
        """Free the reader slots of processes that have died."""
        ...


class ShardConnection:
    """The process of one shard and the connection to it. Only `receive` and `end` may block."""

    def __init__(self, setup: bytes) -> None:
        """Start the process.

        Raises:
            OSError: no process or no socket could be created.
        """
        self._socket, theirs = socket.socketpair()
        log_variable, log_descriptors = node_log.passed_on()
        with theirs:
            try:
                self.process = subprocess.Popen(
                    module_command("fieldbrook.actors.project.shard", str(theirs.fileno())),
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno(), *log_descriptors],
                    env={**os.environ, **log_variable},
                )
            except BaseException:
                self._socket.close()
                raise
        self._socket.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._reader = FrameReader()
        self._unsent = bytearray()
        self.found: dict[Place, SpeculativeRun | None] = {}
        self.settled = 0  # speculative runs for events up to this number are discarded
        self.project = -1  # the version of the project that it was sent last
        self.started = time.monotonic()
        self.ready = self.lost = False
        self.send(setup)

    @property
    def unsent(self) -> bool:
        """Whether data waits to be sent."""
        return bool(self._unsent)

    def send(self, data: bytes) -> None:
        """Send a packed frame; the rest that the socket does not accept waits for `flush`."""
        self._unsent += frame(data)
        self.flush()

    def flush(self) -> None:
        """Send as much of the waiting data as the socket accepts now."""
        try:
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            return
        except OSError:
            self.lost = True

    def receive(self, timeout_s: float) -> bool:
        """Wait for data and read once; return whether anything was read."""
        if not self._poll.poll(max(0, int(timeout_s * 1000) + (timeout_s > 0))):
            return False
        try:
            data = self._socket.recv(_READ_BYTES)
            frames = self._reader.feed(data)
        except (OSError, ValueError):
            data = b""
        if not data:
            self.lost = True
            return False
        for body in frames:
            value = unpack(body)
            if value[0] == READY:
                self.ready = True
            elif value[0] > self.settled:
                number, place, speculative = value
                self.found[number, place] = (
                    None if speculative is None else SpeculativeRun(*speculative)
                )
        return True

    def settle(self, number: int) -> None:
        """Discard the speculative runs for events up to `number`."""
        self.settled = number
        if self.found:
            self.found = {place: f for place, f in self.found.items() if place[0] > number}

    def end(self) -> None:
        """Kill the process at once; it holds no state that could be lost."""
        self._socket.close()
        self.process.kill()
        self.process.wait()


class _Planned(NamedTuple):
    link: ShardConnection
    places: Mapping[int, int]  # strategy id -> index of the run


class Shards:
    """The shards of one project: started when they pay off, ended after `IDLE_S` without use.

    Args:
        most: the largest number of processes beside the project's own.
        setup: the configuration of the shards.
        store: the project's store.
        policy: decides whether shards are used.
    """

    def __init__(
        self, most: int, setup: Setup, store: Readers, policy: SpeculationPolicy | None = None
    ) -> None:
        self._most = most
        self._setup = msgspec.msgpack.encode(setup)
        self._limit_s = setup.limits.deadline_ms / 1000 + OVERTIME_S
        self.store = store
        self.policy = policy or SpeculationPolicy()
        self._links: list[ShardConnection] = []
        self._restarts = Restarts()
        self._not_before = 0.0
        self._version = 0
        self._project = b""
        self._number = 0  # of the last event of a round for which shards were used
        self._speculation: Speculation | None = None
        self.own: set[int] = set()  # applets that only the project can run
        self._used = time.monotonic()  # of the last round that needed shards
        self.failure = ""  # why shards are missing; cleared once all are stable again
        self.kept = self.dropped = 0  # valid and invalid speculative runs

    @property
    def pids(self) -> list[int]:
        """The process ids of the present shards."""
        return [link.process.pid for link in self._links]

    def use(self, env: Mapping[str, str], applets: Iterable[Applet]) -> None:
        """Use a changed environment and applets; earlier speculative runs are discarded."""
        self._version += 1
        self.own.clear()
        self._project = pack((PROJECT, env, msgspec.msgpack.encode(list(applets))))
        if self._speculation is not None:
            self._speculation.forget()

    # ---------------------------------------------------------------- a round

    @property
    def wanted(self) -> bool:
        """Whether shards are enabled and pay off at present."""
        return self._most > 0 and self.policy.use_shards(time.monotonic())

    def speculate(
        self, events: Sequence[WireEvent], plan: Callable[[WireEvent], Sequence[Target]]
    ) -> Speculation | None:
        """Begin to run the events of a round in shards. Check `wanted` first.

        Args:
            events: the events of one round, in order. They are recognised by identity, so the
                caller must not copy them during the round.
            plan: returns the handlers of an event, or none if it must not run in a shard.

        Returns:
            The speculation of this round, valid until `end_requests`; None when the project has
            to run everything itself.
        """
        if len(events) < 2:
            return None
        now = self._used = time.monotonic()  # needed, even where none is ready yet
        if not self.start(now):
            return None
        self._speculation = Speculation(self, events, plan, self._number + 1)
        self._number += len(events)
        return self._speculation

    def end_requests(self, seconds: float, events: int) -> None:
        """End a round of `events` events; `seconds` is the CPU time of the project's thread."""
        speculation, self._speculation = self._speculation, None
        if speculation is None:
            self.policy.add_cpu_time(seconds, events)
        else:
            self.policy.add_cpu_time(speculation.seconds, events)
            self.settle(self._number)
        self.rest()

    def rest(self) -> None:
        """End shards that were idle for `IDLE_S`; this also clears `failure`."""
        if (self._links or self.failure) and time.monotonic() - self._used >= IDLE_S:
            self.close()

    def close(self) -> None:
        """End all shards."""
        self.failure = ""
        if self._links:
            for link in self._links:
                link.end()
            self._links.clear()
            self._free_readers()

    def settle(self, number: int) -> None:
        """Discard speculative runs up to this event, whose batch is committed or dropped."""
        for link in self._links:
            link.settle(number)

    # ---------------------------------------------------------------- processes

    def start(self, now: float) -> bool:
        """Start missing shards; return whether any shard is ready."""
        for link in self._links[:]:
            if not link.ready:
                link.flush()
                link.receive(0)
            if link.lost:
                self._lose(link, "died")
            elif not link.ready and now - link.started > _START_LIMIT_S:
                self._lose(link, "did not start")
        if len(self._links) < self._most and now >= self._not_before:
            try:
                while len(self._links) < self._most:
                    self._links.append(ShardConnection(self._setup))
            except OSError as error:
                log.warning("cannot start a process for a shard: %s", error.strerror)
                self.failure = f"cannot start a process for a shard: {error.strerror}"
                self._restarts = self._restarts.after_exit(0)
                self._not_before = now + self._restarts.delay_s
        if self.failure and self._last(now):
            self.failure = ""
        return any(link.ready for link in self._links)

    def _last(self, now: float) -> bool:
        """Whether all shards are ready and have lived for at least `STEADY_S`."""
        return len(self._links) == self._most and all(
            link.ready and now - link.started >= STEADY_S for link in self._links
        )

    def _lose(self, link: ShardConnection, why: str) -> None:
        if link not in self._links:
            return
        now = time.monotonic()
        metrics.add(metrics.SHARDS_LOST)
        pid = link.process.pid
        link.lost = True
        link.end()
        self._links.remove(link)
        self._restarts = self._restarts.after_exit(now - link.started)
        self._not_before = now + self._restarts.delay_s
        self.failure = f"shard {pid} {why}, the {self._restarts.failures}. in a row"
        log.warning("shard %d %s: the project's process runs its events", pid, why)
        self._free_readers()

    def _free_readers(self) -> None:
        try:
            self.store.free_readers()
        except StoreError as error:
            log.warning("the reader slots of dead shards are not freed: %s", error)

    # ---------------------------------------------------------------- for `Speculation`

    @property
    def ready(self) -> list[ShardConnection]:
        """The shards that can be sent events."""
        return [link for link in self._links if link.ready and not link.lost]

    def send(self, link: ShardConnection, part: Sequence[Any]) -> None:
        """Send events to a shard, and before them the project if it changed since."""
        if link.project != self._version:
            link.project = self._version
            link.send(self._project)
        link.send(pack((PART, link.settled, part)))

    def result(self, link: ShardConnection, place: Place) -> SpeculativeRun | None:
        """Wait for a shard's run; None when the shard has none, died or hangs."""
        limit = time.monotonic() + self._limit_s
        while place not in link.found:
            left = limit - time.monotonic()
            if link.lost or left <= 0:
                silent = f"gave no answer for {self._limit_s:g} s"
                self._lose(link, "died" if link.lost else silent)
                return None
            waiting = False
            for other in self._links:
                other.flush()
                waiting = waiting or other.unsent
            if link.receive(min(left, _FLUSH_S) if waiting else left):
                limit = time.monotonic() + self._limit_s
        return link.found.pop(place)


class Speculation:
    """The speculation of one round: sends later events to shards and validates their runs.

    Events are numbered from `number` on. `seconds` is the CPU time of all runs that count, those
    of the shards and those of the project.
    """

    def __init__(
        self,
        shards: Shards,
        events: Sequence[WireEvent],
        plan: Callable[[WireEvent], Sequence[Target]],
        number: int,
    ) -> None:
        self._shards = shards
        self._events = events
        self._plan = plan
        # The round holds references to its events, so their `id()` stays unique.
        self._index = {id(event): index for index, event in enumerate(events)}
        self._planned: dict[int, _Planned] = {}
        self._number = number
        self._slots: dict[int, int] = {}  # by publisher
        self._given = [0] * (len(shards.ready) + 1)
        self._next = 0  # the first event that is not assigned to a process yet
        self._at = 0
        self.seconds = 0.0
        self._feed()

    def result(self, event: WireEvent, target: Target, run: Run) -> tuple[int, str] | None:
        """Apply a shard's valid run to `run`, and return its code and error.

        None means that the project has to make the run.

        Raises:
            NodeError: the store cannot be read.
        """
        index = self._index.get(id(event))
        if index is None:
            return None
        self._at = index
        self._feed()
        planned = self._planned.get(index)
        if planned is None or target.strategy_id not in planned.places:
            return None
        place = self._number + index, planned.places[target.strategy_id]
        speculative = self._shards.result(planned.link, place)
        if speculative is None:
            if not planned.link.lost:
                self._shards.own.add(target.applet_id)
            return None
        kept = is_valid(speculative, self._shards.store.read, run.capabilities)
        self._shards.policy.add_result(time.monotonic(), kept=kept)
        if not kept:
            self._shards.dropped += 1
            metrics.add(metrics.SHARD_RUNS["dropped"])
            return None
        self._shards.kept += 1
        metrics.add(metrics.SHARD_RUNS["kept"])
        self.seconds += speculative.seconds
        return adopt(speculative, run)

    def add_own_run(self, seconds: float) -> None:
        """Record the CPU time of a run that the project made itself."""
        self.seconds += seconds

    def settle(self) -> None:
        """Discard the runs for events whose batch is committed or dropped by now."""
        self._shards.settle(self._number + self._at)

    def forget(self) -> None:
        """Discard all speculative runs so far."""
        self._planned.clear()

    def _feed(self) -> None:
        """Send shards the events that follow the project's current one."""
        links = self._shards.ready
        slots = len(links) + 1
        each = min(max(int(_PART_S / max(self._shards.policy.mean_s, 1e-6)), 2), _PART_EVENTS)
        if not links or self._next - self._at > each * slots:
            return
        first = max(self._next, self._at)
        self._next = min(len(self._events), self._at + 2 * each * slots)
        parts: dict[int, list[int]] = {}
        for index in range(first, self._next):
            parts.setdefault(self._slot_of(self._events[index][1], slots), []).append(index)
        if len(parts) > 1:  # a single part is done as soon by the project
            for slot, indices in parts.items():
                if slot:  # slot 0 is the project's process
                    self._hand_over(links[slot - 1], indices)

    def _slot_of(self, publisher_id: int, slots: int) -> int:
        """Return the process for a publisher's events in this round; 0 is the project's.

        A new publisher gets the process with the fewest events so far. Assignments do not carry
        over from earlier rounds, because the writes of those are in the store.
        """
        slot = self._slots.get(publisher_id, slots)
        if slot >= slots:  # a new publisher, or there are fewer shards than before
            slot = min(range(slots), key=lambda n: self._given[n])
            self._slots[publisher_id] = slot
        self._given[slot] += 1
        return slot

    def _hand_over(self, link: ShardConnection, indices: Sequence[int]) -> None:
        part: list[Any] = []
        size = 0
        for index in indices:
            event = self._events[index]
            targets = self._plan(event)
            if not targets or any(target.applet_id in self._shards.own for target in targets):
                continue
            places = {target.strategy_id: place for place, target in enumerate(targets)}
            self._planned[index] = _Planned(link, places)
            handlers = [(target.applet_id, target.handler) for target in targets]
            part.append((self._number + index, event[0], event[3], handlers))
            size += len(event[3])
            if size >= FRAME_BYTES:
                self._shards.send(link, part)
                part, size = [], 0
        if part:
            self._shards.send(link, part)
