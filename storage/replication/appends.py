"""Appends to the subjects of a stream: decides what to send next, and interprets answers. No I/O.

A record counts as stored when the stream confirms it. Without an answer, or while the stream has no
leader, the same record is sent again with the same previous position, so the stream stores at most
one of the tries. If the stream answers that another record is the last one of the subject, this
last record is read: it may be the same record, stored by an earlier try; a later record of another
host means that this host is not the owner any more.
"""

from __future__ import annotations

import base64
import enum
import json
from collections.abc import Iterator
from typing import Any

import msgspec

from fieldbrook.core.errors import (
    JournalDamagedError,
    JournalFullError,
    NodeError,
    OwnerChangedError,
    StreamStalledError,
)
from fieldbrook.observability import metrics
from fieldbrook.storage.replication.connection import Outgoing
from fieldbrook.storage.replication.parser import Message
from fieldbrook.storage.replication.records import (
    FORMAT,
    Entry,
    Kind,
    decode_entry,
    encode_entry,
)

LIMIT_S = 10.0
"""For how long a record is sent again and again. An election of the stream's leader takes up to 9
s."""
ENTRY_BYTES = 7 << 20
"""The largest record; `connection.MESSAGE_BYTES` has room for its headers, too."""
# A leader that steps down drops records that it has not proposed yet, without an answer.
_FIRST_ANSWER_S, _LAST_ANSWER_S = 0.25, 1.0
_LARGE_BYTES = 256 << 10  # a record of this size is sent again only after `_LAST_ANSWER_S`
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.01, 0.2
_WRONG_LAST = (10071, 10164)  # the server's codes for an expected sequence that is not the last
_STORE_FULL = (10023, 10047, 10077)  # insufficient resources, storage exceeded, maximum bytes
_NO_MESSAGE = 10037
_RESULTS: dict[type[NodeError], str] = {  # labels of the metric
    OwnerChangedError: "fenced",
    JournalDamagedError: "damaged",
}


class Subject(msgspec.Struct):
    """A subject as its owner host sees it: where the next record goes.

    Attributes:
        stream: the name of the stream.
        name: the subject.
        last: the position of its last record.
        term: the term of the owner host.
        place: the number of records in this term.
    """

    stream: str
    name: str
    last: int = 0
    term: int = 0
    place: int = 0


class Step(enum.Enum):
    """The answer for which an append waits."""

    STORED = enum.auto()
    LAST = enum.auto()  # the subject's last record
    PAUSE = enum.auto()


class Append:
    """The append of one record to a stream.

    Attributes:
        subject: the subject to which the record is appended.
        began: when the append was made, in monotonic seconds.
        error: why the append failed; None if it has not failed.
        done: whether the record is stored, or the append has failed.
    """

    def __init__(self, subject: Subject, entry: Entry, now: float) -> None:
        """Prepare an append; `now` is the time in monotonic seconds.

        Raises:
            JournalFullError: the record is too large.
        """
        self.subject = subject
        self._entry = entry
        self._data = encode_entry(entry)
        if len(self._data) > ENTRY_BYTES:
            reason = f"a record has {len(self._data)} bytes; at most {ENTRY_BYTES} fit"
            raise JournalFullError(reason=reason)
        self.error: NodeError | None = None
        self.done = False
        self.began = now
        self._gives_up_at = now + LIMIT_S
        self._step = Step.PAUSE
        self._due = now
        self._pause_s = _FIRST_PAUSE_S
        self._answer_s = _FIRST_ANSWER_S if self.size < _LARGE_BYTES else _LAST_ANSWER_S
        self._full = False

    @property
    def due(self) -> float:
        """When the caller has to call `next`, unless an answer comes earlier."""
        return self._due

    @property
    def size(self) -> int:
        """The size of the record in bytes."""
        return len(self._data)

    def next(self, now: float) -> Outgoing | None:
        """Return the message to send at `due`; None when the append has failed."""
        if now >= self._gives_up_at:
            reason = f"{self.subject.name}: no quorum of hosts stored the record in {LIMIT_S:.0f} s"
            if self._full:
                reason = f"{self.subject.name}: the stream has no room for the record"
            self._fail(StreamStalledError(reason=reason))
            return None
        self._due = min(now + self._answer_s, self._gives_up_at)
        self._answer_s = min(2 * self._answer_s, _LAST_ANSWER_S)
        if self._step is Step.LAST:
            question = json.dumps({"last_by_subj": self.subject.name}).encode()
            return Outgoing(f"$JS.API.STREAM.MSG.GET.{self.subject.stream}", b"", question)
        self._step = Step.STORED
        expected = b"Nats-Expected-Last-Subject-Sequence: %d\r\n\r\n" % self._entry.previous
        return Outgoing(self.subject.name, b"NATS/1.0\r\n" + expected, self._data)

    def answered(self, message: Message, now: float) -> bool:
        """Process the answer to the last message; return whether the append is done."""
        if not self.done and self._step is not Step.PAUSE:
            self._take(message, now)
            self._count(now)
        return self.done

    def _take(self, message: Message, now: float) -> None:
        answer = _json(message)
        error = answer.get("error")
        if error is None and "seq" in answer:
            self._stored(int(answer["seq"]))  # maybe the late answer to an earlier try
        elif self._step is Step.LAST:
            self._compare(answer, now)
        elif message.status or error is None:
            self._pause(now)
        elif error.get("err_code") in _WRONG_LAST:
            self._step, self._due = Step.LAST, now
        else:  # no quorum, a new leader, no room on the disk
            self._full = error.get("err_code") in _STORE_FULL
            self._pause(now)

    def lost(self, now: float) -> None:
        """Note that the answer to the last message will not come."""
        if not self.done:
            self._pause(now)

    def _compare(self, answer: dict[str, Any], now: float) -> None:
        """Compare the last record of the subject with this one."""
        found = _stored_message(self.subject.name, answer)
        if isinstance(found, JournalDamagedError):
            self._fail(found)
        elif found is None or found[0] <= self._entry.previous:
            # A disconnected leader answers reads for up to 10 s, so the answer may be outdated.
            # Positions only grow: a later position proves that another host has written.
            self._pause(now)
        elif found[1] == self._entry:
            self._stored(found[0])
        else:
            other = found[1]
            reason = f"{self.subject.name}: host {other.host} took it over in term {other.term}"
            self._fail(OwnerChangedError(reason=reason))

    def _stored(self, position: int) -> None:
        self.subject.last = position
        self.done = True

    def _count(self, now: float) -> None:
        """Count a record that is stored."""
        if not self.done or self.error is not None:
            return
        metrics.add(metrics.APPENDS["stored"])
        metrics.APPEND_SECONDS.observe(now - self.began)
        if self._entry.kind is Kind.TAKEOVER:
            metrics.add(metrics.TAKEOVERS)

    def _fail(self, error: NodeError) -> None:
        self.error = error
        self.done = True
        result = _RESULTS.get(type(error), "stalled")
        if result == "fenced" and self._entry.kind is Kind.TAKEOVER:
            result = "contested"
        metrics.add(metrics.APPENDS[result])

    def _pause(self, now: float) -> None:
        self._step = Step.PAUSE
        self._due = min(now + self._pause_s, self._gives_up_at)
        self._pause_s = min(2 * self._pause_s, _LAST_PAUSE_S)


class Owner:
    """A host as the owner of one subject: makes the records of the subject, one after the other.

    Args:
        subject: the subject; its `last` and `term` are the values before the takeover.
        host: the name of the host.
    """

    def __init__(self, subject: Subject, host: str) -> None:
        self.subject = subject
        self.host = host

    def append(self, kind: Kind, number: int, body: bytes, now: float) -> Append:
        """Make the next record. No other record of the subject may be in flight.

        Raises:
            JournalFullError: it is too large.
        """
        subject = self.subject
        if kind is Kind.TAKEOVER:
            subject.term, subject.place = subject.term + 1, 0
        subject.place += 1
        entry = Entry(
            FORMAT, kind, subject.last, subject.term, self.host, number, body, subject.place
        )
        return Append(subject, entry, now)


def last_entry(subject: str, answer: dict[str, Any]) -> tuple[int, Entry] | None:
    """Decode the answer of a stream to a request for the last record of a subject.

    Returns:
        The position and the record; None when the subject has no record.

    Raises:
        JournalDamagedError: the record is damaged.
        StreamStalledError: the stream does not answer the request.
    """
    error = answer.get("error")
    if error is not None and error.get("err_code") != _NO_MESSAGE:
        raise StreamStalledError(reason=f"{subject}: {error.get('description', 'no answer')}")
    found = _stored_message(subject, answer)
    if isinstance(found, JournalDamagedError):
        raise found
    return found


def _stored_message(
    subject: str, answer: dict[str, Any]
) -> tuple[int, Entry] | JournalDamagedError | None:
    message = answer.get("message")
    if message is None:
        return None
    position = int(message["seq"])
    try:
        return position, decode_entry(subject, position, base64.b64decode(message["data"]))
    except JournalDamagedError as error:
        return error


def _json(message: Message) -> dict[str, Any]:
    try:
        answer = json.loads(message.body) if message.body else {}
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def check_chain(
    subject: str, records: Iterator[tuple[int, Entry]], after: int
) -> Iterator[tuple[int, Entry]]:
    """Yield records, and check that each follows the previous one.

    Args:
        subject: their subject.
        records: records with their positions, as the stream gives them.
        after: the position of the record before the first one; -1 if it is unknown, because older
            records were removed after a snapshot.

    Raises:
        JournalDamagedError: the stream has lost, doubled or reordered a record.
    """
    term = 0
    for position, entry in records:
        if after >= 0 and entry.previous != after:
            raise JournalDamagedError(
                reason=f"{subject}: record {position} follows record {entry.previous}, "
                f"and record {after} was read before it"
            )
        if entry.term < term:
            raise JournalDamagedError(
                reason=f"{subject}: record {position} is of term {entry.term}, after term {term}"
            )
        after, term = position, entry.term
        yield position, entry
