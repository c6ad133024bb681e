"""Reads the applet log of a project as it is written."""

from __future__ import annotations

from collections.abc import Callable

from fieldbrook.gateway.management.framework.context import ProjectStoreReader
from fieldbrook.gateway.management.live.events import read_place
from fieldbrook.gateway.management.live.messages import Rows
from fieldbrook.gateway.management.live.row_selection import RowSelection
from fieldbrook.gateway.management.routes.events.log_lines import log_line
from fieldbrook.storage.project.log_search import LogFilter
from fieldbrook.storage.project.rows import LogRow
from fieldbrook.system.loop_share import LoopShare
from fieldbrook.wasm.module.abi import LOG_ERROR

_LINES_AT_ONCE = 200
_FOREVER = 1 << 63


class LogsReader:
    """Reads the log of a project. Places are sequences; errors are shown first."""

    def __init__(
        self,
        store: Callable[[], ProjectStoreReader | None],
        wanted: LogFilter,
        share: LoopShare,
    ) -> None:
        self._store, self._wanted, self._share = store, wanted, share
        self._sequence = 0

    async def begin(self) -> None:
        """See `channels.Reader`."""
        store = self._store()
        rows = store.logs(-1, 1) if store else ()
        self._sequence = rows[-1].sequence if rows else 0

    async def first(self, after: str) -> Rows:
        """See `channels.Reader`."""
        sequence = read_place(after) if after else self._sequence
        found = await self._between(sequence, self._sequence) if sequence < self._sequence else None
        place = str(self._sequence)
        return found or Rows(rows=[], total=0, left_out=0, place=place, failed=0)

    async def read(self) -> Rows | None:
        """See `channels.Reader`."""
        found = await self._between(self._sequence, _FOREVER)
        if found is None:
            return None
        self._sequence = int(found.place)
        return found if found.total else None

    async def _between(self, after: int, until: int) -> Rows | None:
        store = self._store()
        if store is None:
            return None
        picker, total, failed, place = RowSelection[LogRow](), 0, 0, after
        more = True
        while more:
            async with self._share:
                lines = store.logs(place, _LINES_AT_ONCE)
                for sequence, row in ((line.sequence, line.row) for line in lines):
                    if sequence > until:
                        break
                    place = sequence
                    if self._wanted.matches(row):
                        is_error = row.level <= LOG_ERROR
                        total, failed = total + 1, failed + is_error
                        picker.offer(sequence, row, failed=is_error)
            more = len(lines) == _LINES_AT_ONCE and place < until
        rows = [log_line(row, sequence) for sequence, row in picker.chosen()]
        if place == after:
            return None
        left_out = total - len(rows)
        return Rows(rows=rows, total=total, left_out=left_out, place=str(place), failed=failed)
