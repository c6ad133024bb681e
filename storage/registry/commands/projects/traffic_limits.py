"""Traffic limits: commands that create, change and remove them."""

from __future__ import annotations

from collections.abc import Sequence

from fieldbrook.core.errors import TrafficLimitConflictError, TrafficLimitNotFoundError
from fieldbrook.core.model import TrafficLimit
from fieldbrook.storage.lmdb.ids import to_key
from fieldbrook.storage.lmdb.table import text_key
from fieldbrook.storage.registry.commands.change import Commands, command

_UNITS_MS = (86_400_000, 3_600_000, 60_000, 1_000)


class TrafficLimitCommands(Commands):
    """Commands on traffic limits."""

    @command
    def create_traffic_limit(
        self,
        project_id: int,
        threshold: int,
        duration_ms: int,
        api_type: str,
        publisher_threshold: int = 0,
        duration: str = "",
    ) -> TrafficLimit:
        """Create a limit; see `window_start` for the beginning of its windows.

        Raises:
            ProjectNotFoundError: no such project.
            TrafficLimitConflictError: the project has a limit for that kind of call.
        """
        with self.change() as change:
            project = change.project(project_id)
            key = to_key(project_id) + text_key(api_type)
            if self.tables.traffic_limits.find(change.txn, "traffic_rules", key):
                raise TrafficLimitConflictError(what=f"[prj: {project.name}] [api: {api_type}]")
            return change.add(
                self.tables.traffic_limits,
                TrafficLimit(
                    traffic_limit_id=change.new_id(),
                    project_id=project_id,
                    threshold=threshold,
                    duration_ms=duration_ms,
                    api_type=api_type,
                    start_at=window_start(change.time_ms, duration_ms),
                    publisher_threshold=publisher_threshold,
                    duration=duration,
                ),
            )

    @command
    def update_traffic_limit(
        self,
        traffic_limit_id: int,
        threshold: int,
        duration_ms: int,
        publisher_threshold: int | None = None,
        duration: str = "",
    ) -> TrafficLimit:
        """Change a limit; the counts of the current window stay, unless the duration changes.

        Raises:
            TrafficLimitNotFoundError: no such limit.
        """
        with self.change() as change:
            limit = change.now.traffic_limit(traffic_limit_id)
            if limit is None:
                raise TrafficLimitNotFoundError(traffic_limit=traffic_limit_id)
            start_at = limit.start_at
            if duration_ms != limit.duration_ms:
                start_at = window_start(change.time_ms, duration_ms)
            if publisher_threshold is None:
                publisher_threshold = limit.publisher_threshold
            return change.update(
                self.tables.traffic_limits,
                limit,
                threshold=threshold,
                duration_ms=duration_ms,
                start_at=start_at,
                publisher_threshold=publisher_threshold,
                duration=duration,
            )

    @command
    def remove_traffic_limits(self, project_id: int, traffic_limit_ids: Sequence[int]) -> int:
        """Remove limits of this project by id, ignoring others; return the number removed."""
        with self.change() as change:
            own = change.in_project(self.tables.traffic_limits, project_id, traffic_limit_ids)
            for limit in own:
                change.remove(self.tables.traffic_limits, limit)
            return len(own)


def window_start(now_ms: int, duration_ms: int) -> int:
    """Return the beginning of the first window in Unix milliseconds.

    The time is rounded down to the longest of day, hour, minute and second that fits into a
    window.

    Source: interface document, 5.7.
    """
    unit = next((unit for unit in _UNITS_MS if unit <= duration_ms), 1)
    return now_ms - now_ms % unit
