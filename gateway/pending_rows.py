"""Have a project write what it has in memory to its store, before the store is read.

The store of a running project may lack the batches of the last seconds, which are in its worker's
journal, and its last log rows. A reader therefore asks for a checkpoint first: whoever reads pays
for it, and what was answered can be read.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

from fieldbrook.actors.wire import NOT_HERE, WRITE_LOG, frame, pack, worker_sockets
from fieldbrook.core.errors import UnavailableError
from fieldbrook.gateway.chain_client import read_frame

log = logging.getLogger(__name__)

_LIMIT_S = 2.0  # when a handler runs longer, the reader gets what is written already


class PendingRows:
    """Asks the workers for checkpoints; one question at a time for each project.

    A gateway does not know which worker runs a project that it sends no events to, so it asks all.
    There are few, and one that does not run the project answers at once.
    """

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._asked: dict[int, asyncio.Task[Any]] = {}
        self._next: dict[int, asyncio.Task[Any]] = {}

    async def flush(self, project_id: int) -> None:
        """Have a project write all that it has answered.

        Returns when it has done so, or after 2 s.
        """
        try:
            await self._state(project_id)
        except TimeoutError:
            log.debug("project %d is busy and did not write its rows in time", project_id)

    async def trace_state(self, project_id: int) -> Any:
        """Return the state of a project's trace (`Tracing.state`), None without one.

        The trace's rows are written by then. A project that does not run is not started.

        Raises:
            UnavailableError: the project is busy.
        """
        try:
            return await self._state(project_id)
        except TimeoutError:
            raise UnavailableError(what=f"project {project_id} is busy") from None

    async def _state(self, project_id: int) -> Any:
        """Join the next question about a project; the present one may be too early for us."""
        task = self._next.get(project_id)
        if task is None:
            before = self._asked.get(project_id)
            task = asyncio.create_task(self._ask_after(before, project_id))
            (self._next if before is not None else self._asked)[project_id] = task
        return await asyncio.shield(task)

    async def _ask_after(self, before: asyncio.Task[Any] | None, project_id: int) -> Any:
        if before is not None:
            await asyncio.wait([before])
            self._asked[project_id] = self._next.pop(project_id)
        try:
            asked = [_ask(path, project_id) for path in worker_sockets(self._run_dir)]
            answers = await asyncio.gather(*asked, return_exceptions=True)
        finally:
            del self._asked[project_id]
        for answer in answers:
            if isinstance(answer, TimeoutError):
                raise answer
            if isinstance(answer, BaseException):  # a worker that has ended, or ends
                log.debug("project %d: a worker did not answer: %s", project_id, answer)
        here = [a for a in answers if not isinstance(a, BaseException) and a != NOT_HERE]
        return here[0] if here else None


async def _ask(path: Path, project_id: int) -> Any:
    async with asyncio.timeout(_LIMIT_S):
        reader, writer = await asyncio.open_unix_connection(str(path))
        try:
            writer.write(frame(pack([(project_id, {WRITE_LOG: True})])))
            ((_, answer),) = await read_frame(reader)
            return answer
        finally:
            writer.close()
