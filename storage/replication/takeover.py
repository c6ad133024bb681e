"""Takes a subject over from another host, or from an earlier process of this one.

The takeover is a record of its own. Once the stream has stored it, the stream refuses all records
of the previous owner. Only then are the records before it read. The order follows from positions in
the stream; clocks do not matter.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from fieldbrook.core.errors import (
    EngineUnreachableError,
    JournalDamagedError,
    NodeError,
    StreamStalledError,
)
from fieldbrook.storage.replication.appends import (
    LIMIT_S,
    Append,
    Owner,
    Subject,
    check_chain,
    last_entry,
)
from fieldbrook.storage.replication.connection import Connection
from fieldbrook.storage.replication.records import Entry, Kind, decode_entry

_PART = 256  # records in one request
# A disconnected or stopped replica does not answer; after this time another one is asked.
_PART_S = 0.2
_QUESTION_S = 1.0
_RETRY_S = 0.05


class TakenOver(NamedTuple):
    """A takeover that the stream has stored.

    Attributes:
        owner: makes the next records.
        number: the number of the last batch before the takeover.
        position: the position of the last record before the takeover; 0 if there is none.
        records: the records before it, in their order, from the last snapshot on. Reading them
            raises JournalDamagedError and StreamStalledError.
    """

    owner: Owner
    number: int
    position: int
    records: Iterator[tuple[int, Entry]]


def take_over(
    connection: Connection,
    subject: Subject,
    host: str,
    now: Callable[[], float] = time.monotonic,
) -> TakenOver:
    """Make this host the owner of a subject.

    Args:
        connection: to the replication engine of this host.
        subject: the subject.
        host: the name of this host.
        now: the clock, monotonic seconds.

    Raises:
        OwnerChangedError: another host has taken the subject over at the same time.
        StreamStalledError: the stream has no quorum of hosts.
        JournalDamagedError: the last record of the subject is damaged.
    """
    found = last(connection, subject, now)
    position, number = 0, 0
    if found is not None:
        position, entry = found
        number = entry.number
        subject.last, subject.term = position, entry.term
    owner = Owner(subject, host)
    carry_out(connection, owner.append(Kind.TAKEOVER, number, b"", now()), now)
    return TakenOver(owner, number, position, read(connection, subject, 0, position, now))


def last(
    connection: Connection, subject: Subject, now: Callable[[], float] = time.monotonic
) -> tuple[int, Entry] | None:
    """Return the last record of a subject with its position; None when there is none.

    Raises:
        StreamStalledError: the stream's leader does not answer in time.
        JournalDamagedError: the record is damaged.
    """
    deadline = now() + LIMIT_S
    question = {"last_by_subj": subject.name}
    while True:
        try:
            api = f"$JS.API.STREAM.MSG.GET.{subject.stream}"
            return last_entry(subject.name, connection.request(api, question, _QUESTION_S))
        except (EngineUnreachableError, StreamStalledError) as error:
            if now() > deadline:
                raise StreamStalledError(reason=str(error)) from error
        time.sleep(_RETRY_S)


def carry_out(
    connection: Connection, append: Append, now: Callable[[], float] = time.monotonic
) -> int:
    """Append one record, and wait until it is stored; returns its position.

    Raises:
        NodeError: the record is not stored, or may not be; see `Append`.
    """
    while not append.done:
        time.sleep(max(0.0, append.due - now()))
        message = append.next(now())
        if message is None:
            break
        try:
            (answer,) = connection.ask_many([message], append.due - now())
        except EngineUnreachableError:
            answer = None
        if answer is None:
            append.lost(now())
        else:
            append.answered(answer, now())
    if append.error is not None:
        raise append.error
    return append.subject.last


def read(
    connection: Connection,
    subject: Subject,
    after: int,
    upto: int,
    now: Callable[[], float] = time.monotonic,
) -> Iterator[tuple[int, Entry]]:
    """Iterate over the records of a subject after position `after`, up to `upto`.

    Args:
        connection: to the replication engine of this host; any replica may answer.
        subject: the subject.
        after: a position; 0 begins with the oldest record that is kept.
        upto: the position of a record, 0 when there is none.
        now: the clock, monotonic seconds.

    Raises:
        JournalDamagedError: a record is damaged, or one is missing.
        StreamStalledError: no replica has the records in time.
    """
    known = after or -1
    return check_chain(subject.name, read_unchecked(connection, subject, after, upto, now), known)


def read_unchecked(
    connection: Connection, subject: Subject, after: int, upto: int, now: Callable[[], float]
) -> Iterator[tuple[int, Entry]]:
    """`read`, for a caller that checks the chain itself."""
    at, deadline = after, now() + LIMIT_S
    while at < upto:
        reason: NodeError | str = "records are missing"
        question = {"seq": at + 1, "batch": _PART, "next_by_subj": subject.name}
        try:
            part = list(_part(connection, subject, question))
        except EngineUnreachableError as error:
            part, reason = [], error
        for position, entry in part:
            if position > upto:
                return  # at the takeover, or at a later record
            at, deadline = position, now() + LIMIT_S
            yield position, entry
        if not part:
            if now() > deadline:
                raise StreamStalledError(reason=f"{subject.name}: {reason}")
            time.sleep(_RETRY_S)


def _part(
    connection: Connection, subject: Subject, question: dict[str, object]
) -> Iterator[tuple[int, Entry]]:
    answers = connection.stream(f"$JS.API.DIRECT.GET.{subject.stream}", question, _PART_S)
    for message in itertools.islice(answers, _PART + 1):
        try:
            position = int(message.header(b"Nats-Sequence"))
        except ValueError as error:
            raise JournalDamagedError(
                reason=f"{subject.name}: nats-server sent a record without a position"
            ) from error
        yield position, decode_entry(subject.name, position, message.body)
