"""Flush a project's pending log rows and event records before they are read.

Log rows and event records wait up to 0.2 s for the next commit, because an fsync for each of
them would slow down every event. A reader therefore requests a flush first: the reader pays the
cost, and a row is visible as soon as its event was answered.
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

_LIMIT_S = 2.0  # when a handler runs longer, the reader gets the rows that are written already


async def flush_pending_rows(run_dir: Path, project_id: int) -> None:
    """Ask the processes of a project to write their pending rows.

    Returns when they have done so, or after 2 s for each process that does not answer.
    """
    for path in worker_sockets(run_dir):
        try:
            await _flush(path, project_id)
        except (OSError, EOFError, ValueError) as error:
            # The process has ended and wrote its rows before, or it is busy (TimeoutError).
            log.debug("project %d did not write its log: %s", project_id, error)


async def trace_state(run_dir: Path, project_id: int) -> Any:
    """Return the state of a project's trace (`Tracing.state`), None without one.

    The trace's rows are written by then. A project without a process is not started.

    Raises:
        UnavailableError: the project's process is busy.
    """
    state = None
    for path in worker_sockets(run_dir):
        try:
            state = await _flush(path, project_id) or state
        except TimeoutError:
            raise UnavailableError(what=f"project {project_id} is busy") from None
        except (OSError, EOFError, ValueError) as error:
            log.debug("project %d has no process: %s", project_id, error)
    return state


async def _flush(path: Path, project_id: int) -> Any:
    async with asyncio.timeout(_LIMIT_S):
        reader, writer = await asyncio.open_unix_connection(str(path))
        try:
            writer.write(frame(pack([(project_id, {WRITE_LOG: True})])))
            ((_, answer),) = await read_frame(reader)
            return None if answer == NOT_HERE else answer
        finally:
            writer.close()
