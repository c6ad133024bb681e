"""Dead letters: events whose handler failed; part of a project's store.

There is one letter per event and strategy, because another handler of the same event may have
succeeded. The oldest letters are dropped when the limits are reached. The newest one stays, however
large it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import TYPE_CHECKING, NamedTuple

import lmdb
import msgspec

from fieldbrook.storage.lmdb.ids import from_key, to_key
from fieldbrook.storage.lmdb.rows import table_bytes
from fieldbrook.storage.project.commit.numbers import first_number

if TYPE_CHECKING:
    Transaction = lmdb.Transaction[bytes]

LETTERS_LIMIT = 10_000
DATABASE = b"dead_letters"


class DeadLetter(msgspec.Struct, array_like=True, frozen=True):
    """An event that one handler could not handle.

    Times are Unix milliseconds: `time_ms` of the last attempt, `received_at` of the event.
    `version` is that of the applet, 0 in letters of early versions of the node.
    """

    time_ms: int
    event_id: str
    event_type: str
    publisher_id: int
    payload: bytes
    received_at: int
    strategy_id: int
    applet_id: int
    applet_name: str
    handler: str
    reason: str
    attempts: int = 1
    version: int = 0


class NumberedDeadLetter(NamedTuple):
    """A letter and its number, which is its id; numbers increase and are never reused."""

    number: int
    letter: DeadLetter


class LetterFilter(NamedTuple):
    """A filter for dead letters; None accepts all. `reason` is compared exactly."""

    reason: str | None = None
    applet_id: int | None = None
    handler: str | None = None
    event_type: str | None = None
    version: int | None = None

    def matches(self, letter: DeadLetter) -> bool:
        """Return whether the filter selects a letter."""
        return (
            (self.reason is None or letter.reason == self.reason)
            and (self.applet_id is None or letter.applet_id == self.applet_id)
            and (self.handler is None or letter.handler == self.handler)
            and (self.event_type is None or letter.event_type == self.event_type)
            and (self.version is None or letter.version == self.version)
        )


ANY_LETTER = LetterFilter()

NewLetter = tuple[int, DeadLetter]
"""A letter to be added, and the offset of its number from the first number of the last batch in the
store."""


class LetterRange(NamedTuple):
    """Letters with numbers above `after`, and up to `until` unless that is 0."""

    after: int = 0
    until: int = 0


class LetterGroup(NamedTuple):
    """Letters with the same reason, applet and handler, and the times of the first and last
    failure."""

    reason: str
    applet_id: int
    applet_name: str
    handler: str
    letters: int
    oldest: int
    newest: int


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(DeadLetter).decode


class DeadLetters:
    """The dead letters of one open project store; its owner is the only writer."""

    def __init__(self, environment: lmdb.Environment, limit_bytes: int) -> None:
        """Open the table; `limit_bytes` limits the size of its pages."""
        self._limit_bytes = limit_bytes
        self._database = environment.open_db(DATABASE)
        with environment.begin(db=self._database) as txn:
            keys = txn.cursor().iternext(values=False)
            self._numbers = dict.fromkeys(map(from_key, keys))  # an ordered set, oldest first

    def __len__(self) -> int:
        return len(self._numbers)

    def count_after(self, added: int, resolved: Iterable[int]) -> int:
        """Return the number of letters after adding some and removing `resolved`."""
        gone = sum(number in self._numbers for number in resolved)
        return min(len(self._numbers) + added - gone, LETTERS_LIMIT)

    def add(
        self,
        txn: Transaction,
        letters: Sequence[NewLetter],
        resolved: Iterable[int],
        number: int,
    ) -> DeadLetterChange:
        """Add letters and remove those in `resolved`, inside a batch's transaction.

        `number` is that of the last batch in the store. Call `committed` with the returned change
        once the transaction is on disk.
        """
        first = first_number(number)
        added = [first + offset for offset, _ in letters]
        removed = {one for one in resolved if one in self._numbers}
        removed.update(set(added).intersection(resolved))  # repeated batches may do both
        encoded = [_encode(letter) for _, letter in letters]
        unwritten = len(letters) - self._fitting(encoded)
        for one, data in zip(added[unwritten:], encoded[unwritten:], strict=True):
            txn.put(to_key(one), data, db=self._database, append=True)
        for one in removed:
            txn.delete(to_key(one), db=self._database)
        removed.update(added[:unwritten])
        removed |= self._drop_old(txn)
        return DeadLetterChange(added, removed)

    def committed(self, change: DeadLetterChange) -> None:
        """Note that the transaction with this change is on disk."""
        self._numbers |= dict.fromkeys(change.added)
        for number in change.removed:
            self._numbers.pop(number, None)

    def _fitting(self, encoded: Sequence[bytes]) -> int:
        """Return how many of the newest letters fit into the limits; others need not be written."""
        size = 0
        for count, data in enumerate(reversed(encoded[-LETTERS_LIMIT:])):
            size += len(data)
            if size > self._limit_bytes and count:
                return count
        return min(len(encoded), LETTERS_LIMIT)

    def _drop_old(self, txn: Transaction) -> set[int]:
        """Delete the oldest letters until the rest is within the limits; return the deleted
        numbers."""
        dropped: set[int] = set()
        cursor = txn.cursor(db=self._database)
        more = cursor.first()
        while more and (count := int(txn.stat(self._database)["entries"])) > 1:
            size = table_bytes(txn, self._database)
            if count <= LETTERS_LIMIT and size <= self._limit_bytes:
                break
            dropped.add(from_key(cursor.key()))
            more = cursor.delete()
        return dropped

    def get(self, txn: Transaction, number: int) -> DeadLetter | None:
        """Return the letter with this number, or None."""
        return read_letter(txn, self._database, number)


class DeadLetterChange(NamedTuple):
    """The numbers of added and of removed letters; a letter that did not fit is in both."""

    added: Sequence[int]
    removed: Set[int]


NO_CHANGE = DeadLetterChange((), frozenset())


def read_letter(txn: Transaction, database: lmdb._Database, number: int) -> DeadLetter | None:
    """Return the letter with this number, or None; for readers."""
    data = txn.get(to_key(number), db=database)
    return None if data is None else _decode(data)


def newest_letter(txn: Transaction, database: lmdb._Database) -> tuple[int, int]:
    """Return the number of the newest letter, 0 without one, and the count of all."""
    cursor = txn.cursor(db=database)
    number = from_key(cursor.key()) if cursor.last() else 0
    return number, int(txn.stat(database)["entries"])


def read_letters(
    txn: Transaction,
    database: lmdb._Database,
    before: int | None,
    limit: int,
    wanted: LetterFilter = ANY_LETTER,
) -> tuple[Sequence[NumberedDeadLetter], int]:
    """Return matching letters with numbers below `before`, newest first, and the count of all."""
    cursor = txn.cursor(db=database)
    found: list[NumberedDeadLetter] = []
    if before is None:
        more = cursor.last()
    else:
        more = cursor.prev() if cursor.set_range(to_key(before)) else cursor.last()
    while more and len(found) < limit:
        letter = _decode(cursor.value())
        if wanted.matches(letter):
            found.append(NumberedDeadLetter(from_key(cursor.key()), letter))
        more = cursor.prev()
    return found, int(txn.stat(database)["entries"])


def select_letters(
    txn: Transaction,
    database: lmdb._Database,
    wanted: LetterFilter,
    selected: LetterRange,
    limit: int,
) -> tuple[list[int], int]:
    """Return the numbers of the oldest matching letters in a range, and the range's last number.

    A range without an end ends with the newest letter there is.
    """
    cursor = txn.cursor(db=database)
    until = selected.until or (from_key(cursor.key()) if cursor.last() else 0)
    found: list[int] = []
    more = cursor.set_range(to_key(selected.after + 1))
    while more and len(found) < limit:
        number = from_key(cursor.key())
        if number > until:
            break
        if wanted.matches(_decode(cursor.value())):
            found.append(number)
        more = cursor.next()
    return found, until


def group_letters(
    txn: Transaction, database: lmdb._Database, wanted: LetterFilter
) -> list[LetterGroup]:
    """Count matching letters by reason, applet and handler; the largest groups come first."""
    groups: dict[tuple[str, int, str], LetterGroup] = {}
    for value in txn.cursor(db=database).iternext(keys=False, values=True):
        letter = _decode(value)
        if not wanted.matches(letter):
            continue
        key = letter.reason, letter.applet_id, letter.handler
        time_ms = letter.time_ms
        known = groups.get(key)
        groups[key] = LetterGroup(
            letter.reason,
            letter.applet_id,
            letter.applet_name,  # the newest name: letters come in the order of their failures
            letter.handler,
            1 + (known.letters if known else 0),
            min(time_ms, known.oldest) if known else time_ms,
            max(time_ms, known.newest) if known else time_ms,
        )
    return sorted(groups.values(), key=lambda group: group.letters, reverse=True)
