"""The time series for any HTTP gateway process: from its own memory, or from the process
`http:0`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from fieldbrook.core.errors import UnavailableError
from fieldbrook.gateway.metrics.series import Series
from fieldbrook.gateway.peers import ask_peer

SAMPLER = "http:0"
"""The gateway process that takes the samples."""
SERIES = "series"
"""The name of the request for the series."""


class SeriesQuery(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A query of the series; times are Unix seconds.

    `step_s` 0 is the finest step that reaches back to `begin`. The figures are those of a project
    or the sums of an account if one is given, else those of the node.
    """

    names: Sequence[str]
    begin: float
    end: float
    step_s: int = 0
    project_id: int | None = None
    account_id: int | None = None


class SeriesAnswer(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Times in Unix seconds and one column per name, and the latest rates by project id.

    The rates are events and failed runs per second.
    """

    step_s: int
    columns: list[list[float]]
    rates: dict[int, tuple[float, float]]


def read_series(series: Series, query: SeriesQuery) -> SeriesAnswer:
    """Read the series in this process's memory."""
    step_s = query.step_s or series.fitting(query.begin, time.time())
    step = series.step(step_s)
    span = query.names, query.begin, query.end
    if query.project_id is not None:
        columns = step.of_project(query.project_id, *span)
    elif query.account_id is not None:
        columns = step.of_account(query.account_id, *span)
    else:
        columns = step.of_node(*span)
    return SeriesAnswer(step_s=step_s, columns=columns, rates=series.rates())


class LocalSeries:
    """The series of the gateway process that takes the samples."""

    def __init__(self, series: Series) -> None:
        self._series = series

    async def read(self, query: SeriesQuery) -> SeriesAnswer:
        """See `read_series`."""
        return read_series(self._series, query)

    async def answer(self, argument: Any) -> Any:
        """Answer the request `SERIES` of another process."""
        query = msgspec.convert(argument, SeriesQuery)
        return msgspec.to_builtins(await self.read(query), str_keys=False)


class RemoteSeries:
    """The series for a gateway process that takes no samples: requests them from the process that
    does."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir

    async def read(self, query: SeriesQuery) -> SeriesAnswer:
        """Request the series.

        Raises:
            UnavailableError: the gateway process that takes the samples does not answer.
        """
        argument = msgspec.to_builtins(query)
        found = await ask_peer(self._run_dir, SAMPLER, SERIES, argument)
        return msgspec.convert(found, SeriesAnswer)


class NoSeries:
    """The client of a gateway without samples, if no other gateway has any."""

    async def read(self, query: SeriesQuery) -> SeriesAnswer:
        """Raises: UnavailableError."""
        raise UnavailableError(what=f"this node takes no samples of {', '.join(query.names)}")
