"""The messages of a stream: requests of clients, and rows for them."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from fieldbrook.core.errors import BadRequestError, FieldError
from fieldbrook.gateway import replies

ROWS_LIMIT = 40
"""The most rows of a message; four messages a second make 160 rows a second."""
INCOMING_LIMIT_BYTES = 16 << 10
TYPES_LIMIT = 64
_ID_LIMIT = 1 << 53  # larger numbers are not exact in JavaScript

Topic = Literal["series", "events", "logs", "health", "letters"]


class Follow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request to follow a topic. Messages have this `id`; `after` is the `place` of the last
    received message.

    `project` is the name of a project, `filter` has the filters of the topic.
    """

    id: int
    topic: Topic
    project: str = ""
    filter: dict[str, Any] = {}
    after: str = ""


class Incoming(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message of a client: exactly one of these."""

    token: str | None = None
    follow: Follow | None = None
    drop: int | None = None


_decode = msgspec.json.Decoder(Incoming).decode


def read_incoming(text: str) -> Incoming:
    """Decode a message of a client, whose size the connection has limited.

    Raises:
        BadRequestError: the text is no such message.
    """
    try:
        found = _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadRequestError(FieldError("message", str(error)[:500], "body")) from None
    given = [found.token, found.follow, found.drop]
    if sum(part is not None for part in given) != 1:
        reason = "expected exactly one of token, follow, drop"
        raise BadRequestError(FieldError("message", reason, "body"))
    if found.follow is not None and not 0 <= found.follow.id < _ID_LIMIT:
        reason = f"must be from 0 to {_ID_LIMIT - 1}"
        raise BadRequestError(FieldError("follow.id", reason, "body"))
    return found


class Rows(msgspec.Struct, kw_only=True, omit_defaults=False):
    """New rows, the oldest first, and exact counts: `total` = rows + `left_out`.

    For events: `failed` counts those that failed, `types` has the number of events and of failed
    ones by type for the most frequent types, and `slowest_ms` is the longest time to an answer.
    For dead letters, `stored` is the number of letters in the project now. `place` is where the
    next message continues.
    """

    rows: list[Any]
    total: int
    left_out: int
    place: str
    failed: int | UnsetType = UNSET
    types: dict[str, tuple[int, int]] | UnsetType = UNSET
    slowest_ms: int | UnsetType = UNSET
    stored: int | UnsetType = UNSET

    def folded(self, older: Rows) -> Rows:
        """Return this message for a client that never got the rows of an older message."""
        return msgspec.structs.replace(
            self,
            total=self.total + older.total,
            left_out=self.left_out + older.total,
            failed=_both(self.failed, older.failed, int.__add__),
            slowest_ms=_both(self.slowest_ms, older.slowest_ms, max),
            types=_both(self.types, older.types, add_types),
        )


def _both(newer: Any, older: Any, join: Any) -> Any:
    return newer if newer is UNSET or older is UNSET else join(newer, older)


def add_types(
    one: dict[str, tuple[int, int]], other: dict[str, tuple[int, int]]
) -> dict[str, tuple[int, int]]:
    """Return the sums of two counts by type; only the most frequent `TYPES_LIMIT` types are
    kept."""
    counts, failures = Counter[str](), Counter[str]()
    for part in (one, other):
        for name, (count, failed) in part.items():
            counts[name] += count
            failures[name] += failed
    return {name: (count, failures[name]) for name, count in counts.most_common(TYPES_LIMIT)}


class Snapshot:
    """A message that replaces all earlier ones: a sample of the time series, or the health."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def folded(self, older: Message) -> Snapshot:
        """Return this message, because a newer one replaces the older one."""
        return self


Message = Rows | Snapshot


class Prepared:
    """A message that is encoded once for all receivers."""

    __slots__ = ("_body", "message")

    def __init__(self, message: Message) -> None:
        self.message = message
        self._body = b""

    @property
    def body(self) -> bytes:
        """Return the message as a JSON object."""
        if not self._body:
            message = self.message
            value = message.value if isinstance(message, Snapshot) else message
            self._body = replies.to_json(value).rstrip()
        return self._body

    def addressed(self, number: int) -> bytes:
        """Return the message as JSON with the id of a follower."""
        return b'{"id":%d,%b' % (number, self.body[1:])

    def folded(self, older: Prepared) -> Prepared:
        """Return this message for a client that did not get an older message."""
        if isinstance(self.message, Rows) and isinstance(older.message, Rows):
            return Prepared(self.message.folded(older.message))
        return self
