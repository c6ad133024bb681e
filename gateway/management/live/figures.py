"""Reads the time series of the node for each second, and its health."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

from fieldbrook.core.errors import UnavailableError
from fieldbrook.core.model import Project
from fieldbrook.gateway.management.framework.context import ManagementContext
from fieldbrook.gateway.management.live.messages import Snapshot
from fieldbrook.gateway.management.routes.node.health import current_health
from fieldbrook.gateway.management.routes.node.series import project_rates, rounded
from fieldbrook.gateway.metrics.series_client import SeriesQuery

_PERIOD_S = 0.75


class SeriesReader:
    """Reads each new sample of the time series: of the node, an account, or a project."""

    def __init__(
        self,
        context: ManagementContext,
        names: Sequence[str],
        account_id: int | None = None,
        project: Project | None = None,
    ) -> None:
        self._context, self._names = context, names
        self._account_id, self._project = account_id, project
        self._sampled = time.time()
        self._due = 0.0
        self._latest: Snapshot | None = None

    async def begin(self) -> None:
        """See `channels.Reader`."""

    async def first(self, after: str) -> Snapshot | None:
        """See `channels.Reader`; returns the last sample, regardless of `after`."""
        return self._latest

    async def read(self) -> Snapshot | None:
        """See `channels.Reader`."""
        if time.monotonic() < self._due:
            return None
        project = self._project
        begin = math.nextafter(self._sampled, math.inf)
        query = SeriesQuery(
            names=self._names,
            begin=begin,
            end=begin + 900,
            step_s=1,
            project_id=None if project is None else project.project_id,
            account_id=self._account_id,
        )
        try:
            found = await self._context.series.read(query)
        except UnavailableError:
            # The process that takes the samples restarts; its next samples are new ones.
            self._due = time.monotonic() + _PERIOD_S
            return None
        if not found.columns[0]:
            return None
        self._sampled = found.columns[0][-1]
        self._due = time.monotonic() + _PERIOD_S
        value = {
            "names": list(self._names),
            "columns": [rounded(column) for column in found.columns],
            "projects": project_rates(self._context.reader, found.rates, self._account_id, project),
        }
        self._latest = Snapshot(value)
        return self._latest


class HealthReader:
    """Reads the health of the node after changes."""

    def __init__(self, context: ManagementContext) -> None:
        self._context = context
        self._known: Any = None

    async def begin(self) -> None:
        """See `channels.Reader`."""
        self._known = self._state()

    async def first(self, after: str) -> Snapshot | None:
        """See `channels.Reader`; always returns the present state."""
        return Snapshot(current_health(self._context))

    async def read(self) -> Snapshot | None:
        """See `channels.Reader`."""
        now = self._state()
        if now == self._known:
            return None
        self._known = now
        return Snapshot(current_health(self._context))

    def _state(self) -> Any:
        found = self._context.health()
        shown = found.all_conditions, found.recent, found.more
        return shown, dict(found.parts), dict(found.projects)
