"""The core of a worker: decides which project has the next turn, and when turns are committed.

It has no thread, no socket and no clock of its own; `runners` drives it in production, and a
simulation in tests. A worker has several threads. One thread at a time holds the *execution lock*:
it distributes frames and starts turns.
"""

from __future__ import annotations

import collections
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from fieldbrook.actors.frame_server import Connection
from fieldbrook.actors.project.actor import ProjectActor
from fieldbrook.actors.shared_journal import ProjectRecords, WorkerJournal
from fieldbrook.actors.wire import NODE_COMMAND, NOT_HERE, RESUME, WireEvent, unpack
from fieldbrook.core.errors import JournalDamagedError, NodeError
from fieldbrook.observability import fault_points, metrics
from fieldbrook.observability.health import CANNOT_START, CHAIN_BROKEN
from fieldbrook.observability.metrics import here

log = logging.getLogger(__name__)

_ANSWERS_S = 3.0  # how long the end of the worker waits for commits in flight
CARE_S = 0.25  # how often all projects are asked whether they need a turn without events


class WorkerCore:
    """The projects of a worker, in the order in which they get their turns.

    Only the thread with the execution lock uses it, with two exceptions: any thread may use `call`,
    and the thread that runs the turn of a project may use `run`, `commit` and `done` for this
    project.

    Args:
        journal: where batches are committed.
        post: hands a message to the supervisor, from any thread.
    """

    def __init__(self, journal: WorkerJournal, post: Callable[[object], None]) -> None:
        self.journal = journal
        self.ready: collections.deque[ProjectActor] = collections.deque()
        self._post = post
        self._calls: collections.deque[Callable[[], None]] = collections.deque()
        self._projects: dict[int, ProjectActor] = {}
        # Connections whose lists of events for a project are refused until a `RESUME`.
        self._refused: set[tuple[Connection, int]] = set()
        self._next_care = 0.0
        self._settling = threading.Lock()  # for commits that are settled before their turn is over

    def call(self, action: Callable[[], None]) -> None:
        """Have the thread with the execution lock call `action` before its next turn."""
        self._calls.append(action)

    def host(self, actor: ProjectActor) -> None:
        """Take a project over; its first turn opens it. A repeated `RunProject` changes nothing."""
        known = self._projects.get(actor.project_id)
        if known is not None and known.generation == actor.generation:
            return
        self._projects[actor.project_id] = actor
        self.schedule(actor)

    def others_wait(self) -> bool:
        """Whether another project or a call may need the execution lock; any thread may ask."""
        return bool(self._calls) or len(self._projects) > 1

    def retire(self, project_id: int) -> None:
        """Close a project once it has handled its queued bodies."""
        actor = self._projects.get(project_id)
        if actor is not None and not actor.closed:
            actor.retiring = True
            self.schedule(actor)

    def yield_process(self, project_id: int) -> None:
        """See `ProjectActor.yield_process`."""
        actor = self._projects.get(project_id)
        if actor is not None:
            actor.yield_process()

    # ---------------------------------------------------------------- what arrives

    def arrive(self, requests: Iterable[tuple[Connection, bytes]]) -> None:
        """Distribute the frames of one poll to the projects."""
        for connection, data in requests:
            absent = []
            for project_id, body in unpack(data):
                key = connection, project_id
                if key in self._refused and not isinstance(body, dict):
                    if not _is_resume(body):
                        absent.append((project_id, NOT_HERE))
                        continue
                    self._refused.discard(key)
                actor = self._projects.get(project_id)
                taken = None if actor is None else actor.take(actor.link(connection), body)
                if taken is None:
                    absent.append((project_id, NOT_HERE))
                    self._refused.add(key)
                elif actor is not None and taken:
                    self.ready.append(actor)
            if absent:
                connection.answer(absent)

    def schedule(self, actor: ProjectActor) -> None:
        """Give a project a turn, unless it waits for one already."""
        if actor.claim_turn():
            self.ready.append(actor)

    def care(self, now: float) -> None:
        """Carry out calls, and give turns to projects that need one without events.

        The projects are asked only every `CARE_S`.
        """
        while self._calls:
            self._calls.popleft()()
        if now < self._next_care:
            return
        self._next_care = now + CARE_S
        self._refused = {key for key in self._refused if not key[0].closed}
        wanted = self.journal.must_release()
        for project_id, actor in list(self._projects.items()):
            if actor.gone:
                del self._projects[project_id]
                continue
            if project_id in wanted:
                actor.checkpoint_wanted = True
            if actor.wants_turn(now):
                self.schedule(actor)
            actor.forget_closed_links()

    # ---------------------------------------------------------------- turns

    def run(self, actor: ProjectActor, slice_s: float) -> None:
        """Give a project its turn; `commit` follows."""
        row = here.row = actor.row
        row[metrics.IN_TURN] = 1.0
        began = time.monotonic()
        try:
            actor.turn(slice_s)
        except NodeError as error:
            if actor.opened:
                self._fail(actor, error)
            else:
                broken = self.journal.is_complete and isinstance(error, JournalDamagedError)
                actor.give_up(str(error), CHAIN_BROKEN if broken else CANNOT_START)
        except Exception as error:  # noqa: BLE001 - the project starts again
            self._fail(actor, error)
        finally:
            row[metrics.IN_TURN] = 0.0
            row[metrics.BUSY_SECONDS] += time.monotonic() - began

    def commit(self, actors: Sequence[ProjectActor]) -> None:
        """Commit what these projects have prepared in their turns, and send the answers."""
        prepared = [actor.records for actor in actors if actor.records.waiting]
        full = self.journal.commit(prepared) if prepared else ()
        self._finish([actor for actor in actors if not actor.records.in_flight], full)

    def settled(self, records: ProjectRecords, error: NodeError | None) -> None:
        """End a commit that was in flight, and the turn to which it belongs; from any thread."""
        self.call(lambda: self._settle(records, error))

    def _settle(self, records: ProjectRecords, error: NodeError | None) -> None:
        actor = self._projects[records.project_id]
        with self._settling:
            records.outcome = (error,)
            if not records.turn_is_over:
                return  # the thread that has committed it is about to call `done`
        self._end_commit(actor, error)
        self.done(actor)

    def _end_commit(self, actor: ProjectActor, error: NodeError | None) -> None:
        """Send the answers of a commit that was in flight, or end the actor."""
        records = actor.records
        records.in_flight = records.turn_is_over = False
        records.outcome = None
        if error is not None:
            # Only the next owner host can find out whether the batch is stored: this actor drops
            # it.
            log.warning("%s stops, because its batch was not committed: %s", actor.part, error)
            actor.fail(blamed=False)
        self._finish([actor], ())

    def _finish(self, actors: Sequence[ProjectActor], full: Collection[int]) -> None:
        """Answer the events of committed turns."""
        answers: dict[Connection, list[tuple[int, Any]]] = {}
        handled = False
        for actor in actors:
            here.row = actor.row
            if not actor.closed:
                try:
                    actor.finish(full=actor.project_id in full)
                except Exception as error:  # noqa: BLE001 - the project starts again
                    self._fail(actor, error)
            if actor.answers:
                handled = True
                for connection, answer in actor.answers:
                    answers.setdefault(connection, []).append(answer)
                actor.answers.clear()
        for connection, frame in answers.items():
            connection.answer(frame)
        if handled:
            fault_points.hit("project.events_answered")

    def done(self, actor: ProjectActor) -> bool:
        """End a project's turn; return whether it got another one at once.

        A turn whose commit is in flight ends when the commit is settled.
        """
        records = actor.records
        if records.in_flight:
            with self._settling:
                outcome = records.outcome
                records.turn_is_over = outcome is None
            if outcome is None:
                return False
            self._end_commit(actor, *outcome)
        again = actor.end_turn()
        if again:
            self.ready.append(actor)
        elif actor.gone:
            self._refuse_later(actor)
        return again

    def _refuse_later(self, actor: ProjectActor) -> None:
        """Refuse requests for an actor that is gone, until the gateways know that it is gone."""
        for link, _ in actor.outside:
            link.connection.answer([(actor.project_id, NOT_HERE)])
            actor.notified.add(link.connection)
        actor.outside.clear()
        # A thread without the execution lock may run this.
        notified = [(connection, actor.project_id) for connection in actor.notified]
        self.call(lambda: self._refused.update(notified))
        if actor.ended is not None:
            self._post(actor.ended)  # from now on the supervisor may start the project again

    def _fail(self, actor: ProjectActor, error: Exception) -> None:
        log.error("%s failed and will be restarted", actor.part, exc_info=error)
        actor.fail()

    def close(self, in_turn: Collection[ProjectActor] = ()) -> bool:
        """Close all projects but those in a turn, whose waiting batches stay in the journal.

        Returns:
            Whether everything that waited is in the stores.
        """
        self.journal.await_answers(_ANSWERS_S)
        while self._calls:
            self._calls.popleft()()
        saved = not in_turn
        for actor in self._projects.values():
            if actor in in_turn:
                continue
            try:
                saved = actor.stop() and saved
            except Exception:
                log.exception("%s could not be closed", actor.part)
                saved = False
        return saved


def _is_resume(events: Sequence[WireEvent]) -> bool:
    return bool(events) and events[0][1] == NODE_COMMAND and events[0][0] == RESUME
