"""Handlers in several processes, results as from one.

The project's process goes through the events of a round in their order, as it always does.
Where handlers are heavy it first hands parts of what is to come to shards (`actors.project.shard`),
each publisher's events to the same one. When it comes to an event that a shard has run, it
looks whether the run would be told now what the shard has told it; then the run counts,
without having been made here. Otherwise, and when the shard has died or hangs, it is made
here, at its place. So the result is that of one process in any case.
"""

from __future__ import annotations

import logging
import select
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from fieldbrook.actors.project.routing import Target
from fieldbrook.actors.project.shard import PART, PROJECT, READY, Setup
from fieldbrook.actors.project.speculation import Finding, pack, still_so, take_over, unpack
from fieldbrook.actors.project.worth import Worth
from fieldbrook.actors.supervisor.restarts import STEADY_S, Restarts
from fieldbrook.actors.wire import FRAME_BYTES, FrameReader, WireEvent, frame
from fieldbrook.core.errors import StoreError
from fieldbrook.core.model import Applet
from fieldbrook.observability import metrics
from fieldbrook.system.process import own_program
from fieldbrook.wasm.run import Run

log = logging.getLogger(__name__)

IDLE_S = 10.0
OVERTIME_S = 3.0  # a run this far over its deadline was not stopped by the engine
_START_LIMIT_S = 20.0
_READ_BYTES = 1 << 16
_PART_S = 0.020  # of work for each shard at a time, so that what it reads is not old
_PART_EVENTS = 64
_FLUSH_S = 0.005

Place = tuple[int, int]
"""The number of an event, and the place of a run among those of the event."""


class Readers(Protocol):
    """What of the project's store shards depend on."""

    def read(self, stored_key: bytes) -> bytes | None:
        """The value of a stored key, as the next run would see it."""
        ...

    def free_readers(self) -> None:
        """A process that read the store has died."""
        ...


class ShardLink:
    """One shard's process and the connection to it. Nothing here blocks but `receive`."""

    def __init__(self, setup: bytes) -> None:
        """Start the process.

        Raises:
            OSError: the system gives no process or no socket.
        """
        self._socket, theirs = socket.socketpair()
        with theirs:
            try:
                self.process = subprocess.Popen(
                    own_program("fieldbrook.actors.project.shard", str(theirs.fileno())),
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                )
            except BaseException:
                self._socket.close()
                raise
        self._socket.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._reader = FrameReader()
        self._unsent = bytearray()
        self.found: dict[Place, Finding | None] = {}
        self.settled = 0  # what is found of events up to this number interests nobody
        self.project = -1  # the version of the project that it was told of last
        self.started = time.monotonic()
        self.ready = self.lost = False
        self.send(setup)

    @property
    def unsent(self) -> bool:
        """Whether it has not taken all that was sent."""
        return bool(self._unsent)

    def send(self, data: bytes) -> None:
        """Send a packed frame, or have it sent by a later `flush`."""
        self._unsent += frame(data)
        self.flush()

    def flush(self) -> None:
        """Send what it takes now of what waits."""
        try:
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            return
        except OSError:
            self.lost = True

    def receive(self, timeout_s: float) -> bool:
        """Take what one read gives, waiting for it; whether there was anything."""
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
                number, place, finding = value
                self.found[number, place] = None if finding is None else Finding(*finding)
        return True

    def settle(self, number: int) -> None:
        """Forget what was found of events up to `number`."""
        self.settled = number
        if self.found:
            self.found = {place: f for place, f in self.found.items() if place[0] > number}

    def end(self) -> None:
        """End the process, at once: it holds nothing."""
        self._socket.close()
        self.process.kill()
        self.process.wait()


class _Planned(NamedTuple):
    link: ShardLink
    places: Mapping[int, int]  # of the runs, by strategy


class Shards:
    """The shards of one project, started when they are worth it and ended when they are not.

    Args:
        most: how many processes there may be beside the project's own.
        setup: what they have to know.
        store: the project's store.
        worth: decides whether they are used.
    """

    def __init__(self, most: int, setup: Setup, store: Readers, worth: Worth | None = None) -> None:
        self._most = most
        self._setup = msgspec.msgpack.encode(setup)
        self._limit_s = setup.limits.deadline_ms / 1000 + OVERTIME_S
        self.store = store
        self.worth = worth or Worth()
        self._links: list[ShardLink] = []
        self._restarts = Restarts()
        self._not_before = 0.0
        self._version = 0
        self._project = b""
        self._number = 0  # that of the last event of a round for which shards were used
        self._ahead: Ahead | None = None
        self.own: set[int] = set()  # applets that only the project can run
        self._used = time.monotonic()  # when they were needed last
        self.trouble = ""  # why there are fewer than there should be, until they last again
        self.kept = self.dropped = 0  # findings that counted, and that did not

    @property
    def pids(self) -> list[int]:
        """Of the shards there are now."""
        return [link.process.pid for link in self._links]

    def use(self, env: Mapping[str, str], applets: Iterable[Applet]) -> None:
        """The project has changed: what was found before does not count any more."""
        self._version += 1
        self.own.clear()
        self._project = pack((PROJECT, env, msgspec.msgpack.encode(list(applets))))
        if self._ahead is not None:
            self._ahead.forget()

    # ---------------------------------------------------------------- a round

    @property
    def wanted(self) -> bool:
        """Whether they are worth it."""
        return self._most > 0 and self.worth.good(time.monotonic())

    def look_ahead(
        self, events: Sequence[WireEvent], plan: Callable[[WireEvent], Sequence[Target]]
    ) -> Ahead | None:
        """Have shards run what is to come. Ask `wanted` first.

        Args:
            events: of one round, in order. They must not be copied while it lasts.
            plan: the handlers of an event, or none if it is not for shards.

        Returns:
            Where to ask for results, until `round_over`; None when all is to be run here.
        """
        if len(events) < 2:
            return None
        now = self._used = time.monotonic()  # needed, even where none is ready yet
        if not self.start(now):
            return None
        self._ahead = Ahead(self, events, plan, self._number + 1)
        self._number += len(events)
        return self._ahead

    def round_over(self, seconds: float, events: int) -> None:
        """All events of a round are handled, which cost so much computing."""
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            self.worth.spent(seconds, events)
        else:
            self.worth.spent(ahead.seconds, events)
            self.settle(self._number)
        self.rest()

    def rest(self) -> None:
        """End shards that nobody has needed for a while; what ailed them is over then."""
        if (self._links or self.trouble) and time.monotonic() - self._used >= IDLE_S:
            self.close()

    def close(self) -> None:
        """End all shards."""
        self.trouble = ""
        if self._links:
            for link in self._links:
                link.end()
            self._links.clear()
            self._free_readers()

    def settle(self, number: int) -> None:
        """What was handled up to the event of this number is committed, or was dropped."""
        for link in self._links:
            link.settle(number)

    # ---------------------------------------------------------------- processes

    def start(self, now: float) -> bool:
        """Start what is missing; whether there is any shard that is ready."""
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
                    self._links.append(ShardLink(self._setup))
            except OSError as error:
                log.warning("no process for a shard: %s", error.strerror)
                self.trouble = f"no process for a shard: {error.strerror}"
                self._restarts = self._restarts.after_exit(0)
                self._not_before = now + self._restarts.delay_s
        if self.trouble and self._last(now):
            self.trouble = ""
        return any(link.ready for link in self._links)

    def _last(self, now: float) -> bool:
        """Whether all are there, and have been for long enough to be trusted."""
        return len(self._links) == self._most and all(
            link.ready and now - link.started >= STEADY_S for link in self._links
        )

    def _lose(self, link: ShardLink, why: str) -> None:
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
        self.trouble = f"shard {pid} {why}, the {self._restarts.failures}. in a row"
        log.warning("shard %d %s: the project's process runs its events", pid, why)
        self._free_readers()

    def _free_readers(self) -> None:
        try:
            self.store.free_readers()
        except StoreError as error:
            log.warning("what a shard read is still held: %s", error)

    # ---------------------------------------------------------------- for `Ahead`

    @property
    def ready(self) -> list[ShardLink]:
        """Those that can be told of events."""
        return [link for link in self._links if link.ready and not link.lost]

    def tell(self, link: ShardLink, part: Sequence[Any]) -> None:
        """Have a shard run events, on the project as it is now."""
        if link.project != self._version:
            link.project = self._version
            link.send(self._project)
        link.send(pack((PART, link.settled, part)))

    def finding(self, link: ShardLink, place: Place) -> Finding | None:
        """What a shard has found, waiting for it; None when it found nothing, died or hangs."""
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


class Ahead:
    """One round, seen from both ends: shards run what is to come, the project takes up what
    it has come to. Events are numbered from `number` on; `seconds` is what all runs took
    that count.
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
        # The round keeps its events, so no other object can have their identity.
        self._index = {id(event): index for index, event in enumerate(events)}
        self._planned: dict[int, _Planned] = {}
        self._number = number
        self._slots: dict[int, int] = {}  # by publisher
        self._given = [0] * (len(shards.ready) + 1)
        self._next = 0  # the first event that no shard was thought of for
        self._at = 0
        self.seconds = 0.0
        self._feed()

    def result(self, event: WireEvent, target: Target, run: Run) -> tuple[int, str] | None:
        """Make `run` what a shard has found of it, if it still is so; its code and error.
        None: it is to be made here.

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
        finding = self._shards.finding(planned.link, place)
        if finding is None:
            if not planned.link.lost:
                self._shards.own.add(target.applet_id)
            return None
        kept = still_so(finding, self._shards.store.read, run.surroundings)
        self._shards.worth.tried(time.monotonic(), kept=kept)
        if not kept:
            self._shards.dropped += 1
            metrics.add(metrics.AHEAD["dropped"])
            return None
        self._shards.kept += 1
        metrics.add(metrics.AHEAD["kept"])
        self.seconds += finding.seconds
        return take_over(finding, run)

    def ran_here(self, seconds: float) -> None:
        """A run was made by the project itself."""
        self.seconds += seconds

    def settle(self) -> None:
        """What was handled so far is committed, or was dropped."""
        self._shards.settle(self._number + self._at)

    def forget(self) -> None:
        """Nothing that was found so far counts."""
        self._planned.clear()

    def _feed(self) -> None:
        """Keep shards at work on what follows the event that the project has come to."""
        links = self._shards.ready
        slots = len(links) + 1
        each = min(max(int(_PART_S / max(self._shards.worth.mean_s, 1e-6)), 2), _PART_EVENTS)
        if not links or self._next - self._at > each * slots:
            return
        first = max(self._next, self._at)
        self._next = min(len(self._events), self._at + 2 * each * slots)
        parts: dict[int, list[int]] = {}
        for index in range(first, self._next):
            parts.setdefault(self._slot_of(self._events[index][1], slots), []).append(index)
        if len(parts) > 1:  # one alone is done as soon here
            for slot, indices in parts.items():
                if slot:  # the first is the project's own
                    self._hand_over(links[slot - 1], indices)

    def _slot_of(self, publisher_id: int, slots: int) -> int:
        """Who runs a publisher's events in this round: one that had little to do so far. An
        earlier round is no reason for anything, what it wrote is in the store."""
        slot = self._slots.get(publisher_id, slots)
        if slot >= slots:  # it is new, or there are fewer shards than there were
            slot = min(range(slots), key=lambda n: self._given[n])
            self._slots[publisher_id] = slot
        self._given[slot] += 1
        return slot

    def _hand_over(self, link: ShardLink, indices: Sequence[int]) -> None:
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
                self._shards.tell(link, part)
                part, size = [], 0
        if part:
            self._shards.tell(link, part)
