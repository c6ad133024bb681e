"""Pending rows: makes projects write rows from memory to their stores before the stores are read.

A batch of events is durable in the journal of its worker, and reaches the store of its project
seconds later, by a checkpoint. Log rows and event records wait up to 0.2 s even for the journal.
Therefore a reader in another process requests a checkpoint first: the reader pays the cost, and
finds every event that was answered before.

Readers of approximate figures do not need this: a checkpoint hardly changes sizes and quotas.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from fieldbrook.actors.wire import FOLLOWED, LOST, NOT_HERE, WRITE_LOG, frame, pack, worker_sockets
from fieldbrook.core.errors import UnavailableError
from fieldbrook.gateway.chain_client import read_frame

log = logging.getLogger(__name__)

_AGAIN_S = 0.02
_LIMIT_S = 2.0  # if a handler runs longer, the reader gets only the rows that are written already
_FOLLOWED_S = 0.25  # shortest interval of requests to a project that pages follow


class PendingRows:
    """Requests checkpoints, for all requests and pages of one gateway."""

    def __init__(self, run_dir: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._run_dir, self._clock = run_dir, clock
        self._locks: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        self._next: dict[int, asyncio.Task[bool]] = {}  # checkpoints that are not requested yet
        self._followed: dict[int, float] = {}

    async def flush(self, project_id: int) -> bool:
        """Request a checkpoint of a project.

        While a checkpoint is in progress, all later callers share the next one.

        Returns:
            True when the checkpoint is done; False when the project does not run, or after 2 s if
            its worker does not answer.
        """
        shared = self._next.get(project_id)
        if shared is None:
            shared = asyncio.get_running_loop().create_task(self._flush_next(project_id))
            self._next[project_id] = shared
        return await asyncio.shield(shared)

    async def _flush_next(self, project_id: int) -> bool:
        lock = self._locks.setdefault(project_id, asyncio.Lock())
        async with lock:
            del self._next[project_id]  # later callers need a later checkpoint
            answers, _ = await _ask_all(self._run_dir, [project_id], _LIMIT_S)
            return project_id in answers

    async def flush_followed(self, project_id: int) -> None:
        """Do the same for pages that show rows as they arrive, at most four times a second.

        A page within 0.25 s after another one gets the rows of the same checkpoint. A project with
        many events answers without a new checkpoint if the last one is recent.
        """
        now = self._clock()
        if now - self._followed.get(project_id, 0.0) < _FOLLOWED_S:
            return
        for followed, asked_at in list(self._followed.items()):
            if now - asked_at >= _FOLLOWED_S:
                del self._followed[followed]
        self._followed[project_id] = now
        lock = self._locks.setdefault(project_id, asyncio.Lock())
        async with lock:
            await _ask_all(self._run_dir, [project_id], _LIMIT_S, FOLLOWED)

    async def trace_state(self, project_id: int) -> Any:
        """Request a checkpoint, and return the state of a project's trace (`Tracing.state`).

        The state is None without a trace. A project that does not run is not started.

        Raises:
            UnavailableError: the project's worker is busy.
        """
        states, late = await _ask_all(self._run_dir, [project_id], _LIMIT_S)
        if late and project_id not in states:
            raise UnavailableError(what=f"project {project_id} is busy")
        return states.get(project_id)


async def flush_projects(
    run_dir: Path, project_ids: Collection[int], limit_s: float = _LIMIT_S
) -> bool:
    """Request checkpoints of projects; projects that do not run need none.

    Returns:
        Whether all workers have answered within `limit_s`.
    """
    _, late = await _ask_all(run_dir, project_ids, limit_s)
    return not late


async def _ask_all(
    run_dir: Path, project_ids: Collection[int], limit_s: float, by: Any = True
) -> tuple[dict[int, Any], bool]:
    """Send the request to all workers; a project runs in at most one of them. `by` is the value of
    `WRITE_LOG`.

    A dead worker leaves its socket and its journal. The next worker reads the journal before it
    removes the socket, so the request to such a worker is repeated for a short time.

    Returns:
        The answers by project, and whether a worker did not answer in time.
    """
    answers: dict[int, Any] = {}
    ends_at = asyncio.get_running_loop().time() + limit_s

    async def ask(path: Path) -> bool:
        try:
            await _ask(path, project_ids, answers, limit_s, by)
        except TimeoutError:
            log.debug("%s did not answer in time", path)
            return False
        except (OSError, EOFError, ValueError) as error:
            log.debug("%s: no checkpoint: %s", path, error)
            return False
        return True

    while True:
        answered = await asyncio.gather(*map(ask, worker_sockets(run_dir)))
        if all(answered) or answers.keys() >= set(project_ids):
            return answers, False
        if asyncio.get_running_loop().time() >= ends_at:
            return answers, True
        await asyncio.sleep(_AGAIN_S)


async def _ask(
    path: Path, project_ids: Collection[int], answers: dict[int, Any], limit_s: float, by: Any
) -> None:
    """Send the request to one worker, and add its answers for the projects that it runs."""
    async with asyncio.timeout(limit_s):
        reader, writer = await asyncio.open_unix_connection(str(path))
        try:
            writer.write(frame(pack([(number, {WRITE_LOG: by}) for number in project_ids])))
            missing = set(project_ids)
            while missing:
                for project_id, answer in await read_frame(reader):
                    missing.discard(project_id)
                    if answer not in (NOT_HERE, LOST):
                        answers[project_id] = answer
        finally:
            writer.close()
