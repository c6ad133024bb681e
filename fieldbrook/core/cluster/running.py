"""Which host runs which project: what each host tells the others, and what it has heard of them.

It says where to ask, and what to start again after a host has died. Who may commit is decided by
the stream of a project alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

PART_PROJECTS = 4_000
"""Projects in one message, which then stays far below the limit of a line."""


class Change(NamedTuple):
    """What a message of another host has changed."""

    started: tuple[int, ...]
    ended: tuple[int, ...]
    replaces: bool


class RunningProjects:
    """The projects that this host and the others run, each with whether its outbox has entries."""

    def __init__(self) -> None:
        self._mine: dict[int, bool] = {}
        self._others: dict[str, dict[int, bool]] = {}

    # ---------------------------------------------------------------- this host

    def note(self, project_id: int, *, runs: bool, sends: bool) -> dict[str, Any]:
        """Note what this host runs; returns the message for the others."""
        if not runs:
            self._mine.pop(project_id, None)
            return {"ended": [project_id]}
        self._mine[project_id] = sends
        return {"running": [[project_id, sends]]}

    def messages(self) -> Iterator[dict[str, Any]]:
        """The messages for a host that has heard nothing yet."""
        items = [[project_id, sends] for project_id, sends in self._mine.items()]
        yield {"running": items[:PART_PROJECTS], "first": True}
        for at in range(PART_PROJECTS, len(items), PART_PROJECTS):
            yield {"running": items[at : at + PART_PROJECTS]}

    # ---------------------------------------------------------------- other hosts

    def take(self, host: str, message: dict[str, Any]) -> Change | None:
        """Take a message of another host; returns None when it is not one of these."""
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
        """Forget what a host ran that is gone; returns the projects whose outbox had entries."""
        known = self._others.pop(host, {})
        return tuple(project_id for project_id, sends in known.items() if sends)

    def hosts(self) -> Iterator[tuple[int, str | None]]:
        """All projects that run, and the host that runs each: None for this one."""
        for host, projects in self._others.items():
            for project_id in projects:
                yield project_id, host
        for project_id in self._mine:
            yield project_id, None
