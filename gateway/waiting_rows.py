"""Having a project write what waits for its log and its history.

Log rows and the records of events wait up to 0.2 s for a commit that takes them along, because
syncing the disk for each would cost every event. So whoever reads them asks for them first: the
cost is the reader's, and a row is there as soon as its event was answered.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from fieldbrook.actors.wire import WRITE_LOG, frame, pack, project_sockets
from fieldbrook.gateway.chain_client import read_frame

log = logging.getLogger(__name__)

_LIMIT_S = 2.0  # a handler may be running: then what is there has to do


async def have_written(run_dir: Path, project_id: int) -> None:
    """Ask a project's process, if there is one, to write what waits. Ends when it has, or could
    not in time."""
    for path in project_sockets(run_dir, project_id):
        try:
            async with asyncio.timeout(_LIMIT_S):
                reader, writer = await asyncio.open_unix_connection(str(path))
                try:
                    writer.write(frame(pack({WRITE_LOG: True})))
                    await read_frame(reader)
                finally:
                    writer.close()
        except (OSError, EOFError, ValueError) as error:
            # It has ended, and wrote what waited; or it is busy (TimeoutError).
            log.debug("project %d did not write its log: %s", project_id, error)
