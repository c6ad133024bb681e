"""Activity of publishers in the whole node: the sums over all gateway processes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from fieldbrook.core.errors import UnavailableError
from fieldbrook.gateway.peers import ask_peer
from fieldbrook.observability import publisher_counts
from fieldbrook.observability.publisher_counts import Seen

log = logging.getLogger(__name__)

PUBLISHERS = "publishers"
"""The request between gateway processes: ids of publishers. The answer has `Seen` or nil for
each."""
_IDS_AT_ONCE = 5_000
_LIMIT_S = 1.0  # so that a list of publishers does not wait long for a process that hangs

ReadActivity = Callable[[Sequence[int]], Awaitable[dict[int, Seen]]]
"""Returns the activity of publishers by their ids; publishers without events are absent."""


async def nobody_seen(publisher_ids: Sequence[int]) -> dict[int, Seen]:
    """Return no activity, for gateways without projects."""
    return {}


async def answer_publishers(argument: Any) -> Any:
    """Answer the request `PUBLISHERS` of another process."""
    return publisher_counts.here.read(argument)


def gateway_parts(http_processes: int) -> list[str]:
    """Return the gateway processes that receive events of publishers."""
    return [*(f"http:{number}" for number in range(http_processes)), "mqtt:0"]


class NodeActivity:
    """Reads the counts of this process, and requests those of the other gateway processes.

    A process that does not answer counts as one without events: it is about to be restarted, and
    then loses its counts.
    """

    def __init__(self, run_dir: Path, part: str, parts: Iterable[str]) -> None:
        self._run_dir = run_dir
        self._others = [other for other in parts if other != part]

    async def read(self, publisher_ids: Sequence[int]) -> dict[int, Seen]:
        """See `ReadActivity`."""
        found: dict[int, Seen] = {}
        for start in range(0, len(publisher_ids), _IDS_AT_ONCE):
            ids = publisher_ids[start : start + _IDS_AT_ONCE]
            asked = [self._ask(part, ids) for part in self._others]
            for counts in (publisher_counts.here.read(ids), *await asyncio.gather(*asked)):
                for publisher_id, seen in zip(ids, counts, strict=False):
                    if seen is not None:
                        known = found.get(publisher_id, Seen(0, 0))
                        last_s, events = seen
                        found[publisher_id] = Seen(max(known.last_s, last_s), known.events + events)
        return found

    async def _ask(self, part: str, ids: Sequence[int]) -> list[Any]:
        try:
            found: list[Any] = await ask_peer(
                self._run_dir, part, PUBLISHERS, list(ids), limit_s=_LIMIT_S
            )
        except UnavailableError as error:
            log.debug("%s", error)
            return []
        return found
