"""The journal of a worker on a host of a cluster: batches of projects, in replicated streams.

The worker does not wait for a commit: while the hosts store the records of some projects, other
projects have their turns. One thread sends all records of the worker and receives the answers. If
it is certain or possible that a record is not stored, its project ends on this host; the next owner
host reads from the stream whether the record is stored.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from fieldbrook.actors.shared_journal import ProjectRecords
from fieldbrook.core.errors import EngineUnreachableError, JournalFullError, NodeError
from fieldbrook.observability import metrics
from fieldbrook.storage.journal.protocol import Record
from fieldbrook.storage.project.stored import stored_number
from fieldbrook.storage.replication import snapshots
from fieldbrook.storage.replication.appends import Append, Owner, Subject
from fieldbrook.storage.replication.connection import Connection, Endpoint
from fieldbrook.storage.replication.marks import Mark, read_mark, records_after, write_mark
from fieldbrook.storage.replication.records import Entry, Kind
from fieldbrook.storage.replication.streams import project_subject
from fieldbrook.storage.replication.takeover import TakenOver, carry_out, take_over

log = logging.getLogger(__name__)

SNAPSHOT_BYTES = 16 << 20
"""The size of a project's records in its stream, in bytes, above which it makes a snapshot."""
_QUIET_S = 1.0
_UNANSWERED = 64

Settled = Callable[[ProjectRecords, NodeError | None], None]
"""Called at the end of a commit with the project's records, and with the error if they are not
stored. The caller is a thread of the journal."""


class ReplicatedJournal:
    """Commits the records of the projects of one worker; any thread may use it.

    Args:
        endpoint: returns where the replication engine of this host listens.
        host: the name of this host.
        name: the name of the worker, for the monitoring of nats-server.
        settled: called at the end of each commit.
    """

    is_complete = True

    def __init__(
        self, endpoint: Callable[[], Endpoint], host: str, name: str, settled: Settled
    ) -> None:
        self._endpoint, self._host, self._name = endpoint, host, name
        self._owners: dict[int, Owner] = {}
        self._bytes: collections.Counter[int] = collections.Counter()
        self._folders: dict[int, Path] = {}
        self._lock = threading.Lock()  # for the connection of takeovers, which blocks
        self._connection = Connection(endpoint, f"{name} takeovers")
        self._sender = _Sender(Connection(endpoint, name), self._settle)
        self._settled = settled
        self._sender.start()

    # ---------------------------------------------------------------- ownership

    def take_over(self, project_id: int, folder: Path) -> list[Record]:
        """Make this host the owner of a project whose store is closed.

        Returns:
            The batches that the store lacks.

        Raises:
            OwnerChangedError: another host has taken the project over at the same time.
            StreamStalledError: the stream of the project has no quorum of hosts.
            JournalDamagedError: records are missing or damaged.
            StoreError: the store cannot be read, or a snapshot cannot be written to it.
        """
        subject, stored = project_subject(project_id), stored_number(folder)
        mark = read_mark(folder, stored)
        with self._lock:
            taken = take_over(self._connection, subject, self._host)
            began = time.monotonic()
            records, size = self._missing(subject, taken, mark)
        todo = snapshots.plan(project_id, records, stored, taken.number)
        if todo.snapshot is not None:
            with self._own_connection("snapshot") as connection:
                snapshots.download(connection, subject, todo.snapshot, folder)
        metrics.REPLAY_SECONDS.observe(time.monotonic() - began)
        self._owners[project_id] = taken.owner
        self._bytes[project_id] = size
        self._folders[project_id] = folder
        self._mark(project_id, taken.owner, taken.number)
        return todo.batches

    def _missing(
        self, subject: Subject, taken: TakenOver, mark: Mark | None
    ) -> tuple[list[tuple[int, Entry]], int]:
        """Return the records that a store may lack, and the size of all records since the last
        snapshot."""
        found = None
        if mark is not None:
            found = records_after(self._connection, subject, mark, taken.position)
        records = list(taken.records) if found is None else found
        before = 0 if mark is None or found is None else mark.size
        return records, before + sum(len(entry.body) for _, entry in records)

    def _mark(self, project_id: int, owner: Owner, number: int) -> None:
        """Write the mark that a store has all batches up to `number`; call it when that is true."""
        mark = Mark(owner.subject.last, owner.subject.term, number, self._bytes[project_id])
        folder = self._folders[project_id]
        if folder.is_dir():  # the folder of a new project does not exist yet
            write_mark(folder, mark)

    def give_up(self, project_id: int, number: int) -> None:
        """Give up a project that has retired; `number` is its last batch."""
        owner = self._owners.pop(project_id, None)
        if owner is None:
            return
        with self._lock:
            try:
                record = owner.append(Kind.RELEASE, number, b"", time.monotonic())
                carry_out(self._connection, record)
            except NodeError as error:
                log.warning("project %d: its release is not in the stream: %s", project_id, error)
            else:
                self._mark(project_id, owner, number)
        del self._bytes[project_id], self._folders[project_id]

    # ---------------------------------------------------------------- committing

    def commit(self, records: Iterable[ProjectRecords]) -> set[int]:
        """Send the records of these projects; `settled` is called when each is stored or has
        failed.

        Returns:
            The ids of the projects whose record is too large.
        """
        full: set[int] = set()
        appends: list[tuple[Append, ProjectRecords]] = []
        now = time.monotonic()
        for project in records:
            waiting, project.waiting = project.waiting, []
            for number, batch in waiting:
                owner = self._owners[project.project_id]
                try:
                    appends.append((owner.append(Kind.BATCH, number, batch, now), project))
                except JournalFullError:
                    full.add(project.project_id)
                else:
                    project.in_flight = True
        self._sender.send(appends)
        return full

    def commit_now(self, project: ProjectRecords) -> None:
        """Commit the record of one project, and wait until it is stored.

        Raises:
            NodeError: the record is not stored, or may not be stored.
        """
        ((number, batch),) = project.waiting
        project.waiting = []
        owner = self._owners[project.project_id]
        with self._lock:
            append = owner.append(Kind.BATCH, number, batch, time.monotonic())
            carry_out(self._connection, append)
        self._bytes[project.project_id] += append.size

    def _settle(self, append: Append, project: ProjectRecords) -> None:
        if append.error is None:
            self._bytes[project.project_id] += append.size
        else:
            self._forget(project.project_id, append.subject)
        self._settled(project, append.error)

    def _forget(self, project_id: int, subject: Subject) -> None:
        """Forget the `Owner` of a project after a failure, unless the project has a new one
        already."""
        owner = self._owners.get(project_id)
        if owner is not None and owner.subject is subject:
            del self._owners[project_id]

    def await_answers(self, limit_s: float) -> None:
        """Wait until no record is in flight."""
        self._sender.await_answers(limit_s)

    # ---------------------------------------------------------------- snapshots

    def wants_snapshot(self, project_id: int, used_bytes: int) -> bool:
        """Whether the records of a project need more space than a snapshot of its store would
        need."""
        return self._bytes[project_id] > max(SNAPSHOT_BYTES, used_bytes)

    def snapshot(self, project_id: int, number: int, folder: Path) -> None:
        """Store the copy of a store in a folder as the snapshot of the project.

        `number` is that of its last batch.

        Raises:
            NodeError: it could not be stored; earlier records and snapshots stay valid.
        """
        owner = self._owners[project_id]
        position, before = owner.subject.last, self._bytes[project_id]
        with self._own_connection("snapshot") as connection:
            earlier = snapshots.names(connection, owner.subject)
            made = snapshots.upload(connection, owner.subject, folder)
            body = snapshots.encode(made)
            record = owner.append(Kind.SNAPSHOT, number, body, time.monotonic())
            carry_out(connection, record)
            self._bytes[project_id] -= before
            try:
                snapshots.remove_before(connection, owner.subject, position, earlier)
            except NodeError as error:
                log.warning("%s: old records stay in the stream: %s", owner.subject.name, error)

    @contextlib.contextmanager
    def _own_connection(self, purpose: str) -> Iterator[Connection]:
        """A separate connection for a long operation, so that other projects do not wait for it."""
        connection = Connection(self._endpoint, f"{self._name} {purpose}")
        try:
            yield connection
        finally:
            connection.close()

    # ---------------------------------------------------------------- as a journal of files

    def release(self, project_id: int, number: int) -> None:
        """Do nothing: records stay until a snapshot contains them."""

    def must_release(self) -> Mapping[int, int]:
        """Return nothing: streams have no segments."""
        return {}

    def close(self) -> None:
        """Close the connections, after `await_answers`."""
        self._sender.close()
        self._connection.close()


class _Sender(threading.Thread):
    """Sends appends and receives their answers, in a thread of its own."""

    def __init__(
        self, connection: Connection, settle: Callable[[Append, ProjectRecords], None]
    ) -> None:
        super().__init__(name="journal", daemon=True)
        self._connection, self._settle = connection, settle
        self._new: collections.deque[tuple[Append, ProjectRecords]] = collections.deque()
        self._active: dict[Append, ProjectRecords] = {}
        self._asked: dict[int, Append] = {}  # unanswered ones, by message number
        self._woken, self._wake = socket.socketpair()
        self._woken.setblocking(False)
        self._wake.setblocking(False)
        self._idle = threading.Condition()
        self._count = 0
        self._ends = False

    def send(self, appends: list[tuple[Append, ProjectRecords]]) -> None:
        """Send records, from any thread."""
        if not appends:
            return
        with self._idle:
            self._count += len(appends)
        self._new.extend(appends)
        self._notify()

    def await_answers(self, limit_s: float) -> None:
        """Wait until all records are stored or have failed."""
        with self._idle:
            self._idle.wait_for(lambda: not self._count, limit_s)

    def close(self) -> None:
        """End the thread."""
        self._ends = True
        self._notify()
        self.join(_QUIET_S)

    def _notify(self) -> None:
        with contextlib.suppress(OSError):  # full: `run` wakes up anyway; closed: it has ended
            self._wake.send(b"!")

    def run(self) -> None:
        """Send and receive until `close`."""
        try:
            self._work()
        except BaseException:
            # Without this thread the worker cannot commit. The supervisor starts the worker again.
            log.exception("the journal's thread failed")
            os._exit(70)
        self._connection.close()
        self._woken.close()
        self._wake.close()

    def _work(self) -> None:
        while not self._ends:
            with contextlib.suppress(BlockingIOError):
                self._woken.recv(4_096)
            while self._new:
                append, project = self._new.popleft()
                self._active[append] = project
            now = time.monotonic()
            oldest = min((append.began for append in self._active), default=now)
            metrics.put(metrics.APPEND_OLDEST, now - oldest)
            self._send_due(now)
            due = min((append.due for append in self._active), default=float("inf"))
            wait_s = min(_QUIET_S, max(0.0, due - time.monotonic()))
            self._receive(wait_s)

    def _send_due(self, now: float) -> None:
        messages, appends = [], []
        for append in list(self._active):
            if append.due <= now:
                message = append.next(now)
                if message is None:
                    self._finish(append)
                else:
                    messages.append(message)
                    appends.append(append)
        if not messages:
            return
        try:
            numbers = self._connection.send(messages, _QUIET_S)
        except EngineUnreachableError as error:
            self._lose(error)
            for append in appends:
                append.lost(time.monotonic())
        else:
            self._asked.update(zip(numbers, appends, strict=True))

    def _receive(self, limit_s: float) -> None:
        if not self._connection.is_open:
            poll = select.poll()  # `select` refuses descriptors above 1,023
            poll.register(self._woken, select.POLLIN)
            poll.poll(limit_s * 1_000)
            return
        try:
            answers = self._connection.receive(limit_s, self._woken.fileno())
        except EngineUnreachableError as error:
            self._lose(error)
            return
        now = time.monotonic()
        for number, message in answers:
            append = self._asked.pop(number, None)
            if append is not None and append.answered(message, now):
                self._finish(append)

    def _lose(self, error: EngineUnreachableError) -> None:
        """Note that the sent records will get no answers."""
        if self._asked:
            log.info("the connection to nats-server was lost: %s", error)
        now = time.monotonic()
        for append in self._asked.values():
            append.lost(now)
        self._asked.clear()

    def _finish(self, append: Append) -> None:
        project = self._active.pop(append, None)
        if project is None:
            return
        if append.error is not None:
            log.error("%s", append.error)
        if len(self._asked) > 2 * len(self._active) + _UNANSWERED:
            # nats-server has dropped messages, so their answers never come.
            self._asked = {number: one for number, one in self._asked.items() if not one.done}
        self._settle(append, project)
        with self._idle:
            self._count -= 1
            if not self._count:
                self._idle.notify_all()
