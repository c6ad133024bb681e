"""The data of an append, and the meaning of answers, with a simulated clock."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from fieldbrook.core.errors import (
    JournalDamagedError,
    JournalFullError,
    OwnerChangedError,
    StreamStalledError,
)
from fieldbrook.observability import metrics
from fieldbrook.storage.replication.appends import (
    ENTRY_BYTES,
    LIMIT_S,
    Append,
    Owner,
    Subject,
    check_chain,
)
from fieldbrook.storage.replication.parser import Message
from fieldbrook.storage.replication.records import FORMAT, Entry, Kind, encode_entry

NAME = "fb.j.0.7"
WRONG_LAST, NO_QUORUM, NO_ROOM = 10071, 10008, 10047


def owner(last: int = 0, term: int = 0) -> Owner:
    return Owner(Subject("J0", NAME, last, term), "h1")


def answer(**fields: Any) -> Message:
    return Message(b"i", b"", json.dumps(fields).encode())


def error(code: int) -> Message:
    return answer(error={"err_code": code, "description": "as the server says"})


def last_is(position: int, entry: Entry) -> Message:
    data = base64.b64encode(encode_entry(entry)).decode()
    return answer(message={"seq": position, "data": data})


def sent(append: Append, now: float = 0.0) -> tuple[str, bytes, bytes]:
    message = append.next(now)
    assert message is not None
    return message


def test_a_record_names_the_position_before_it_and_moves_on_when_it_is_stored() -> None:
    host = owner(last=4, term=1)
    append = host.append(Kind.BATCH, 9, b"x", 0.0)
    subject, headers, _ = sent(append)
    assert (subject, headers) == (
        NAME,
        b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: 4\r\n\r\n",
    )
    append.answered(answer(stream="J0", seq=6), 0.1)
    assert (append.done, append.error, host.subject.last) == (True, None, 6)


def test_a_takeover_begins_a_term() -> None:
    host = owner(last=4, term=1)
    append = host.append(Kind.TAKEOVER, 3, b"", 0.0)
    append.next(0.0)
    append.answered(answer(seq=5), 0.0)
    assert (host.subject.term, host.subject.place, host.subject.last) == (2, 1, 5)


@pytest.mark.parametrize("first", [None, error(NO_QUORUM), Message(b"i", b"NATS/1.0 503\r\n", b"")])
def test_without_an_answer_that_counts_the_same_record_is_sent_again(
    first: Message | None,
) -> None:
    append = owner().append(Kind.BATCH, 1, b"x", 0.0)
    before = sent(append)
    if first is None:
        append.lost(0.0)
    else:
        append.answered(first, 0.0)
    assert 0.0 < append.due < 1.0
    assert sent(append, append.due) == before
    append.answered(answer(seq=1), 1.0)
    assert append.error is None


@pytest.mark.parametrize(("size", "soon"), [(1, True), (1 << 20, False)])
def test_a_small_record_that_a_leader_has_dropped_is_sent_again_soon(size: int, soon: bool) -> None:
    append = owner().append(Kind.BATCH, 1, bytes(size), 0.0)
    waits = []
    for _ in range(4):
        now = append.due
        append.next(now)
        waits.append(append.due - now)
    assert waits == ([0.25, 0.5, 1.0, 1.0] if soon else [1.0] * 4)


def test_a_record_that_an_earlier_try_has_stored_is_recognised() -> None:
    host = owner(last=4, term=2)
    append = host.append(Kind.BATCH, 9, b"x", 0.0)
    sent(append)
    append.answered(error(WRONG_LAST), 0.0)
    subject, _, question = sent(append, append.due)
    assert (subject, json.loads(question)) == ("$JS.API.STREAM.MSG.GET.J0", {"last_by_subj": NAME})
    append.answered(last_is(5, Entry(FORMAT, Kind.BATCH, 4, 2, "h1", 9, b"x", 1)), 0.0)
    assert (append.error, host.subject.last) == (None, 5)


def test_a_later_record_of_another_host_means_that_the_owner_has_changed() -> None:
    append = owner(last=4, term=2).append(Kind.BATCH, 9, b"x", 0.0)
    sent(append)
    append.answered(error(WRONG_LAST), 0.0)
    sent(append, append.due)
    append.answered(last_is(5, Entry(FORMAT, Kind.TAKEOVER, 4, 3, "h2", 8, b"", 1)), 0.0)
    assert isinstance(append.error, OwnerChangedError)
    assert "host h2 took it over in term 3" in str(append.error)


def test_an_old_answer_of_a_leader_that_is_cut_off_decides_nothing() -> None:
    append = owner(last=4, term=2).append(Kind.BATCH, 9, b"x", 0.0)
    sent(append)
    append.answered(error(WRONG_LAST), 0.0)
    sent(append, append.due)
    append.answered(last_is(4, Entry(FORMAT, Kind.BATCH, 3, 2, "h1", 8, b"", 7)), 0.0)
    assert not append.done
    assert sent(append, append.due)[0] == NAME


def test_the_late_answer_to_an_earlier_try_counts() -> None:
    append = owner(last=4, term=2).append(Kind.BATCH, 9, b"x", 0.0)
    sent(append)
    append.answered(error(WRONG_LAST), 0.0)
    sent(append, append.due)
    append.answered(answer(seq=5), 0.0)
    assert append.done
    assert append.error is None


def test_a_damaged_last_record_is_reported() -> None:
    append = owner(last=4).append(Kind.BATCH, 1, b"x", 0.0)
    sent(append)
    append.answered(error(WRONG_LAST), 0.0)
    sent(append, append.due)
    append.answered(answer(message={"seq": 5, "data": "AAAAAAAA"}), 0.0)
    assert isinstance(append.error, JournalDamagedError)


@pytest.mark.parametrize(
    ("code", "words"), [(NO_QUORUM, "no quorum of hosts"), (NO_ROOM, "no room")]
)
def test_an_append_gives_up_in_time_and_says_why(code: int, words: str) -> None:
    append = owner().append(Kind.BATCH, 1, b"x", 0.0)
    now, tries = 0.0, 0
    while append.next(now) is not None:
        append.answered(error(code), now)
        now, tries = append.due, tries + 1
    assert now == LIMIT_S
    assert 40 < tries < 200
    assert isinstance(append.error, StreamStalledError)
    assert words in str(append.error)


def test_a_record_that_is_too_large_is_refused_before_it_is_sent() -> None:
    with pytest.raises(JournalFullError, match=r"at most"):
        owner().append(Kind.BATCH, 1, bytes(ENTRY_BYTES), 0.0)


def chain(*links: tuple[int, int, int]) -> list[tuple[int, Entry]]:
    return [
        (position, Entry(FORMAT, Kind.BATCH, previous, term, "h", 0, b"", 0))
        for position, previous, term in links
    ]


@pytest.mark.parametrize("after", [0, -1])
def test_a_whole_chain_is_passed_on(after: int) -> None:
    records = chain((3, 0, 1), (5, 3, 1), (9, 5, 4))
    assert list(check_chain(NAME, iter(records), after)) == records


@pytest.mark.parametrize(
    "links",
    [
        [(3, 0, 1), (9, 5, 1)],  # lost
        [(3, 0, 1), (5, 3, 1), (5, 3, 1)],  # doubled
        [(3, 0, 1), (9, 5, 1), (5, 3, 1)],  # reordered
        [(3, 0, 2), (5, 3, 1)],  # an older term follows
    ],
)
def test_a_broken_chain_is_reported(links: list[tuple[int, int, int]]) -> None:
    with pytest.raises(JournalDamagedError):
        list(check_chain(NAME, iter(chain(*links)), 0))


class Counts:
    """The counts of appends since this object was made."""

    def __init__(self) -> None:
        self._before = self._now()

    def _now(self) -> dict[str, float]:
        row = metrics.here.row
        counted = {name: row[column] for name, column in metrics.APPENDS.items()}
        return {**counted, "takeovers": row[metrics.TAKEOVERS]}

    def __call__(self) -> dict[str, float]:
        new = self._now()
        return {name: new[name] - old for name, old in self._before.items() if new[name] != old}


def test_what_became_of_a_record_is_counted_once() -> None:
    counts = Counts()
    append = owner().append(Kind.BATCH, 1, b"x", 0.0)
    append.next(0.0)
    append.answered(answer(seq=1), 0.3)
    append.answered(answer(seq=1), 0.4)
    assert counts() == {"stored": 1}


def test_a_takeover_that_is_stored_is_counted_as_such() -> None:
    counts = Counts()
    append = owner(last=4, term=1).append(Kind.TAKEOVER, 3, b"", 0.0)
    append.next(0.0)
    append.answered(answer(seq=5), 0.0)
    assert counts() == {"stored": 1, "takeovers": 1}


@pytest.mark.parametrize(("kind", "result"), [(Kind.BATCH, "fenced"), (Kind.TAKEOVER, "contested")])
def test_a_record_that_another_host_has_forestalled_is_counted(kind: Kind, result: str) -> None:
    counts = Counts()
    append = owner(last=4, term=1).append(kind, 5, b"x", 0.0)
    append.next(0.0)
    append.answered(error(WRONG_LAST), 0.1)
    append.next(0.1)
    other = Entry(FORMAT, Kind.TAKEOVER, 4, 2, "h2", 4, b"", 1)
    append.answered(last_is(6, other), 0.2)
    assert isinstance(append.error, OwnerChangedError)
    assert counts() == {result: 1}


def test_a_record_that_nobody_stores_is_counted_as_stalled() -> None:
    counts = Counts()
    append = owner().append(Kind.BATCH, 1, b"x", 0.0)
    assert append.next(LIMIT_S) is None
    assert counts() == {"stalled": 1}
