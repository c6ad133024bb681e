"""Reads the new events of a project. Only the events that are shown are decoded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from fieldbrook.core.errors import BadRequestError, FieldError
from fieldbrook.gateway.management.framework.context import ProjectStoreReader
from fieldbrook.gateway.management.live.messages import ROWS_LIMIT, TYPES_LIMIT, Rows
from fieldbrook.gateway.management.live.row_selection import RowSelection, last_without
from fieldbrook.gateway.management.routes.events.event_rows import EventRows
from fieldbrook.storage.project.history.chunks import PLACES, StoredChunk
from fieldbrook.storage.project.history.records import FAILED
from fieldbrook.storage.project.history.search import EventFilter, PlacedEvent
from fieldbrook.storage.registry.service import RegistryReader
from fieldbrook.system.loop_share import LoopShare

_CHUNKS_AT_ONCE = 4  # a chunk has up to 1,000 events
_EVENTS_AT_ONCE = 128  # decoding this many takes about 0.5 ms
_PLACE_LIMIT = 1 << 63
_ALL = EventFilter()


class EventsReader:
    """Reads the history of a project. Places are the places of events in the history."""

    def __init__(
        self,
        store: Callable[[], ProjectStoreReader | None],
        registry: RegistryReader,
        wanted: EventFilter,
        share: LoopShare,
    ) -> None:
        self._store, self._registry, self._wanted = store, registry, wanted
        self._share = share
        self._place = 0

    async def begin(self) -> None:
        """See `channels.Reader`."""
        store = self._store()
        chunks = store.events_after(-1, 1) if store else ()
        self._place = _last_place(chunks[-1]) if chunks else 0

    async def first(self, after: str) -> Rows:
        """See `channels.Reader`."""
        place = read_place(after) if after else self._place
        found = None
        if place < self._place:
            found = await self._between(place, self._place, max(0, place // PLACES - 1))
        return found or _Count(self._wanted, place).rows(self._registry, self._place)

    async def read(self) -> Rows | None:
        """See `channels.Reader`."""
        # The place is at the end of a chunk, which need not be read again.
        found = await self._between(self._place, _PLACE_LIMIT, self._place // PLACES)
        if found is None:
            return None
        self._place = int(found.place)
        return found if found.total else None

    async def _between(self, after: int, until: int, number: int) -> Rows | None:
        """Return the events above one place and up to another, in the chunks after a number.

        The result is None if there is no such chunk.
        """
        store = self._store()
        if store is None:
            return None
        count, place = _Count(self._wanted, after), 0
        more = True
        while more:
            async with self._share as share:
                chunks = store.events_after(number, _CHUNKS_AT_ONCE)
                for chunk in chunks:
                    if _last_place(chunk) > until:
                        return count.rows(self._registry, place) if place else None
                    number = chunk.number
                    if _last_place(chunk) > after:
                        place = _last_place(chunk)
                        await count.add(chunk, share)
            more = bool(chunks)
        return count.rows(self._registry, place) if place else None


def _last_place(chunk: StoredChunk) -> int:
    return chunk.place(chunk.head.count - 1)


def read_place(text: str) -> int:
    """Parse the place or the sequence that a client has sent.

    Raises:
        BadRequestError: the text is not a place.
    """
    if text.isascii() and text.isdecimal() and len(text) <= 19 and int(text) < _PLACE_LIMIT:
        return int(text)
    raise BadRequestError(FieldError("after", "must be a place of an earlier message", "body"))


class _Count:
    """Counts the events of chunks, and selects those to show."""

    def __init__(self, wanted: EventFilter, after: int) -> None:
        self._wanted, self._after = wanted, after
        self._total = self._failed = self._slowest_ms = 0
        self._types, self._failures = Counter[str](), Counter[str]()
        self._picker: RowSelection[tuple[StoredChunk, int]] = RowSelection()

    async def add(self, chunk: StoredChunk, share: LoopShare) -> None:
        """Count a chunk: by its head if all its events count, else event by event."""
        if self._wanted == _ALL and chunk.place(0) > self._after:
            self._add_whole(chunk)
        else:
            await self._add_matching(chunk, share)

    def _add_whole(self, chunk: StoredChunk) -> None:
        head = chunk.head
        self._total += head.count
        self._failed += len(head.failed)
        self._slowest_ms = max(self._slowest_ms, head.slowest_ms)
        for name, (events, failed) in head.types.items():
            self._types[name] += events
            self._failures[name] += failed
        for index in head.failed[-ROWS_LIMIT:]:
            self._picker.offer(chunk.place(index), (chunk, index), failed=True)
        for index in last_without(reversed(chunk.indexes), head.failed, ROWS_LIMIT):
            self._picker.offer(chunk.place(index), (chunk, index), failed=False)

    async def _add_matching(self, chunk: StoredChunk, share: LoopShare) -> None:
        for number, index in enumerate(self._wanted.candidates(chunk), 1):
            if number % _EVENTS_AT_ONCE == 0:
                await share.rest()
            place = chunk.place(index)
            record = chunk.record(index) if place > self._after else None
            if record is None or not self._wanted.matches(record):
                continue
            failed = record.outcome == FAILED
            self._total += 1
            self._failed += failed
            self._slowest_ms = max(self._slowest_ms, record.handled_at - record.received_at)
            self._types[record.event_type] += 1
            self._failures[record.event_type] += failed
            self._picker.offer(place, (chunk, index), failed=failed)

    def rows(self, registry: RegistryReader, place: int) -> Rows:
        """Return the message with all events up to a place."""
        rows, views = [], EventRows(registry)
        for at, (chunk, index) in self._picker.chosen():
            record = chunk.record(index)
            if record is not None:
                rows.append(views.row(PlacedEvent(at, record)))
        return Rows(
            rows=rows,
            total=self._total,
            left_out=self._total - len(rows),
            place=str(place),
            failed=self._failed,
            types={
                name: (events, self._failures[name])
                for name, events in self._types.most_common(TYPES_LIMIT)
            },
            slowest_ms=self._slowest_ms,
        )
