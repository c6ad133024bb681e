"""The speculation of one look-ahead round: other threads run later events ahead of their turn.

A thread takes one event at a time. The events of a publisher run one after another, because an
event often reads what the previous one wrote. Look-ahead threads leave the first waiting event to
the project's own thread, as long as other events wait. When that thread comes to an event:

* no thread has begun the event: the project's thread runs the handlers itself.
* another thread is running the event: the project's thread waits, but not longer than runs usually
  take.
* another thread has run the event: the project's thread validates the runs. It uses valid runs; it
  drops the others and runs their handlers.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from fieldbrook.actors.project.look_ahead.policy import SpeculationPolicy
from fieldbrook.actors.project.look_ahead.run import SpeculativeRun, adopt, is_valid, speculate
from fieldbrook.actors.project.look_ahead.tasks import Step, Task
from fieldbrook.actors.project.look_ahead.threads import LookAheadThreads
from fieldbrook.actors.project.routing import Target
from fieldbrook.actors.wire import WireEvent
from fieldbrook.core.errors import NodeError
from fieldbrook.observability import metrics
from fieldbrook.storage.project import kv
from fieldbrook.wasm.run import Capabilities, Run

log = logging.getLogger(__name__)

HELD_BYTES = 16 << 20  # limit of waiting results, above which no thread begins another event
_AHEAD_S = 0.020  # planned work per thread; later runs would often read outdated values
_AHEAD_EVENTS = 64
# How long the project's thread waits for a run in another thread: a fixed time, plus the mean time
# of so many runs.
_WAIT_S = 0.050
_WAIT_RUNS = 10

Plan = Callable[[WireEvent], Sequence[Target]]


class Basis(NamedTuple):
    """The common inputs of all runs of a round.

    Attributes:
        read: returns the value that a stored key had at the last commit; thread-safe.
        env: the environment of the project.
        capabilities: the capabilities of the project; thread-safe.
        scopes: the scope of each applet's keys.
        own: the set to which ids of applets are added whose handlers must not run ahead.
        running: called with 1 and -1 when an event begins and ends in another thread.
    """

    read: Callable[[bytes], bytes | None]
    env: Mapping[str, str]
    capabilities: Capabilities
    scopes: Mapping[int, bytes]
    own: set[int]
    running: Callable[[int], None]


class Speculation:
    """The speculation of one round.

    The look-ahead threads call only `help`; the project's thread calls all other methods. `seconds`
    is the CPU time of all valid runs, of other threads and of the project's thread.

    Args:
        threads: the threads that help.
        policy: has the mean duration of runs; gets the results of validations.
        basis: what the runs have in common.
        events: the events of the round.
        steps: returns the handlers of an event, or none if it has to wait for its turn.
    """

    def __init__(
        self,
        threads: LookAheadThreads,
        policy: SpeculationPolicy,
        basis: Basis,
        events: Sequence[WireEvent],
        steps: Callable[[WireEvent], Sequence[Step]],
    ) -> None:
        self._threads, self._policy, self._basis = threads, policy, basis
        self._events, self._steps = events, steps
        # The round holds references to its events, so their `id()` stays unique.
        self._index = {id(event): index for index, event in enumerate(events)}
        self._planned = 1  # the first event that is not planned yet
        self._turn = 0  # the event whose turn it is
        self._task: Task | None = None  # the task of this event, if another thread has run it
        self._publisher: int | None = events[0][1]  # of the event in this thread
        self._scope = b""  # the scope of the applet that the project's thread runs
        self.seconds = 0.0
        # The attributes below are changed only under the lock. Tasks are stored by the index of
        # their event.
        self._changed = threading.Condition(threading.Lock())
        self._waiting: dict[int, Task] = {}  # in order
        self._begun: dict[int, Task] = {}
        self._running: set[int] = set()  # the publishers whose events other threads run
        self._helpers = 0
        self._held_bytes = 0
        # By stored key: the value since the last commit, and the index of the event that wrote it.
        # Values of events up to the present one are final, later ones are speculative. Reads need
        # no lock.
        self._writes: dict[bytes, tuple[int, bytes]] = {}
        self._plan()

    # ---------------------------------------------------------------- the project's thread

    def result(self, event: WireEvent, target: Target, run: Run) -> tuple[int, str] | None:
        """Apply a valid speculative run to `run`, and return its code and error.

        None means that the project's thread has to run the handler.

        Raises:
            NodeError: the store cannot be read.
        """
        index = self._index.get(id(event))
        if index is None:
            return None
        if index != self._turn:
            self._come_to(index)
        speculative = None if self._task is None else self._task.runs.get(target.strategy_id)
        if speculative is not None:
            kept = is_valid(speculative, run)
            self._policy.add_result(time.monotonic(), kept=kept)
            metrics.add(metrics.LOOK_AHEAD_RUNS["kept" if kept else "dropped"])
            if kept:
                self.seconds += speculative.seconds
                return adopt(speculative, run)
        self._publisher, self._scope = event[1], self._basis.scopes[target.applet_id]
        return None

    def add_own_run(self, run: Run, seconds: float, *, failed: bool) -> None:
        """Record the writes and the CPU time of a run that the project's thread made."""
        self.seconds += seconds
        if run.writes and not failed:
            with self._changed:
                self._note(self._turn, self._scope, run)

    def settle(self) -> None:
        """Forget the writes of events up to the present one: they are in the store, or were
        undone."""
        with self._changed:
            self._writes = {k: held for k, held in self._writes.items() if held[0] > self._turn}

    def forget(self) -> None:
        """Drop all speculative runs, and begin no further ones."""
        self._index.clear()
        self._task = None
        with self._changed:
            self._waiting.clear()
            self._begun.clear()

    def _come_to(self, index: int) -> None:
        """Take the task of the next event, if another thread has run the event or is running it."""
        with self._changed:
            for passed in range(self._turn, index):
                self._drop(passed)
            self._turn, self._publisher = index, None
            self._waiting.pop(index, None)
            task = self._begun.get(index)
            if task is not None and not task.done:
                limit_s = _WAIT_S + _WAIT_RUNS * self._policy.mean_s
                if not self._changed.wait_for(lambda: task.done, limit_s):
                    metrics.add(metrics.LOOK_AHEAD_RUNS["late"])
            self._task = task if task is not None and task.done else None
            self._drop(index)
            if self._task is None:
                self._publisher = self._events[index][1]
        self._plan()

    def _drop(self, index: int) -> None:
        self._waiting.pop(index, None)
        task = self._begun.pop(index, None)
        if task is not None and task.done:
            self._held_bytes -= task.size

    def _plan(self) -> None:
        """Make tasks of the next events, and wake a look-ahead thread if it can begin one of
        them."""
        each = min(max(int(_AHEAD_S / max(self._policy.mean_s, 1e-6)), 2), _AHEAD_EVENTS)
        end = min(self._turn + each * (self._threads.count + 1), len(self._events))
        events = self._events
        tasks = {}
        for index in range(max(self._planned, self._turn + 1), end):
            steps = self._steps(events[index])
            if steps:
                tasks[index] = Task(index, events[index], steps)
        self._planned = max(self._planned, end)
        with self._changed:
            self._waiting.update(tasks)
            self._invite()

    def _note(self, index: int, scope: bytes, run: Run) -> None:
        for key, value in run.writes.items():
            self._writes[kv.stored_key(scope, key)] = index, value

    # ---------------------------------------------------------------- look-ahead threads

    def help(self) -> None:
        """Run events before their turn, until no event can be begun, or other work waits."""
        while (task := self._begin_next()) is not None:
            try:
                self._run(task)
            except Exception:
                log.exception("the speculative run of an event's handlers failed")
            self._end(task)
            if self._threads.awaited:
                self._threads.put(self)
                return

    def _begin_next(self) -> Task | None:
        with self._changed:
            task = self._next_task()
            if task is None:
                self._helpers -= 1
            else:
                del self._waiting[task.index]
                self._begun[task.index] = task
                self._running.add(task.publisher_id)
                self._basis.running(1)
                self._invite()
            return task

    def _end(self, task: Task) -> None:
        with self._changed:
            task.done = True
            self._basis.running(-1)
            self._running.discard(task.publisher_id)
            if self._begun.get(task.index) is task:
                self._held_bytes += task.size
            self._changed.notify()

    def _invite(self) -> None:
        """Let one more thread help, if there is a task for it. The caller holds the lock."""
        if self._helpers < self._threads.count and self._next_task() is not None:
            self._helpers += 1
            self._threads.put(self)

    def _next_task(self) -> Task | None:
        """Return the task to begin next. The caller holds the lock."""
        if self._held_bytes >= HELD_BYTES:
            return None
        busy = {*self._running, self._publisher}
        first: Task | None = None
        for task in self._waiting.values():
            if first is None:
                first = task
            elif task.publisher_id not in busy and task.publisher_id != first.publisher_id:
                return task
        return None if first is None or first.publisher_id in busy else first

    def _run(self, task: Task) -> None:
        """Run the handlers of an event; stop at a handler that must not run ahead."""
        event, basis = task.event, self._basis
        for step in task.steps:
            read = self._reader(task.index, step.scope)
            run = Run(event[3], event[0], basis.env, read, basis.capabilities)
            speculative = self._run_step(step, run)
            if speculative is None:
                basis.own.add(step.applet_id)
                return
            task.runs[step.strategy_id] = speculative
            task.size += speculative.size
            if run.writes and not speculative.error:
                with self._changed:
                    if self._begun.get(task.index) is task:  # its turn has not passed
                        self._note(task.index, step.scope, run)

    def _run_step(self, step: Step, run: Run) -> SpeculativeRun | None:
        try:
            host = step.hosts.take()
            try:
                return speculate(host, step.handler, run)
            finally:
                step.hosts.give_back(host)
        except NodeError as reason:
            log.debug("applet %d: %s cannot run ahead: %s", step.applet_id, step.handler, reason)
            return None

    def _reader(self, index: int, scope: bytes) -> Callable[[bytes], bytes | None]:
        """Return a function that reads keys with the values that the event with this index would
        read."""
        committed = self._basis.read

        def read(key: bytes) -> bytes | None:
            stored = kv.stored_key(scope, key)
            held = self._writes.get(stored)
            if held is not None and held[0] <= index:
                return held[1]
            return committed(stored)

        return read
