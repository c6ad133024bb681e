"""The host on which each project runs, according to the messages of all hosts.

The table says where to send an event, and which projects to start again after a host has died. It
does not decide which host may commit: the stream of a project decides that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

PART_PROJECTS = 4_000
"""The largest number of projects in one message; it keeps messages far below the size limit."""


class Change(NamedTuple):
    """The change in a message of another host.

    Attributes:
        started: ids of projects that run there now.
        ended: ids of projects that do not run there any more.
        replaces: whether `started` replaces all earlier projects of the host.
    """

    started: tuple[int, ...]
    ended: tuple[int, ...]
    replaces: bool


class RunningProjects:
    """The running projects of all hosts, each with a flag for entries in its outbox."""

    def __init__(self) -> None:
        self._mine: dict[int, bool] = {}
        self._others: dict[str, dict[int, bool]] = {}

    # ---------------------------------------------------------------- this host

    def note(self, project_id: int, *, runs: bool, sends: bool) -> dict[str, Any]:
        """Record whether a project runs on this host; return the message for the other hosts."""
        if not runs:
            self._mine.pop(project_id, None)
            return {"ended": [project_id]}
        self._mine[project_id] = sends
        return {"running": [[project_id, sends]]}

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yield the messages for a host that has just connected."""
        items = [[project_id, sends] for project_id, sends in self._mine.items()]
        yield {"running": items[:PART_PROJECTS], "first": True}
        for at in range(PART_PROJECTS, len(items), PART_PROJECTS):
            yield {"running": items[at : at + PART_PROJECTS]}

    # ---------------------------------------------------------------- other hosts

    def take(self, host: str, message: dict[str, Any]) -> Change | None:
        """Process a message of another host. Return None if it is not about running projects."""
        match message:
            case {"ended": [*ended]}:
                known = self._others.setdefault(host, {})
                for project_id in ended:
                    known.pop(project_id, None)
                return Change((), tuple(ended), replaces=False)
            case {"running": [*items]}:
                replaces = bool(message.get("first"))
                if replaces:
                    self._others[host] = {}
                started = {int(project_id): bool(sends) for project_id, sends in items}
                self._others.setdefault(host, {}).update(started)
                return Change(tuple(started), (), replaces=replaces)
        return None

    def forget(self, host: str) -> tuple[int, ...]:
        """Remove the projects of a silent host; return those whose outbox had entries."""
        known = self._others.pop(host, {})
        return tuple(project_id for project_id, sends in known.items() if sends)

    def hosts(self) -> Iterator[tuple[int, str | None]]:
        """Yield all running projects with their hosts; the host is None for this one."""
        for host, projects in self._others.items():
            for project_id in projects:
                yield project_id, host
        for project_id in self._mine:
            yield project_id, None
