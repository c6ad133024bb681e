"""Takes the samples of the series once a second, in one gateway process."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from fieldbrook.core.errors import StoreError
from fieldbrook.gateway.metrics.series import Series
from fieldbrook.observability import metrics_table
from fieldbrook.storage.registry.service import RegistryReader

log = logging.getLogger(__name__)

_PERIOD_S = 1.0


def node_series(reader: RegistryReader) -> Series:
    """Return the series of a node, from its metrics table."""
    return Series(lambda: metrics_table.shared.table, Accounts(reader))


class Accounts:
    """The accounts that own projects; cached, because the owner of a project never changes."""

    def __init__(self, reader: RegistryReader) -> None:
        self._reader = reader
        self._known: dict[int, int] = {}

    def __call__(self, project_id: int) -> int | None:
        """Return the account of a project; None if the project does not exist any more, or the
        registry cannot be read."""
        known = self._known.get(project_id)
        if known is None:
            with contextlib.suppress(StoreError):
                project = self._reader.project(project_id)
                if project is not None:
                    known = self._known[project_id] = project.account_id
        return known


def start_sampling(series: Series) -> asyncio.Task[None]:
    """Sample until the task is cancelled."""
    task = asyncio.get_running_loop().create_task(_sample(series))
    task.add_done_callback(_ended)
    return task


async def _sample(series: Series) -> None:
    loop = asyncio.get_running_loop()
    due = loop.time()
    while True:
        series.sample()
        # The duration of a sample does not change the period.
        due = max(due + _PERIOD_S, loop.time())
        await asyncio.sleep(due - loop.time())


def _ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("the sampling of metrics for the dashboard has failed", exc_info=error)
