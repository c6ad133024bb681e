"""The route of a project: the socket of its worker, as reported by the supervisor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

_RETRY_S = 5.0  # a lost request must not block a project's events for ever
# The supervisor may name a worker that the project has left. The request is repeated after these
# times.
_AGAIN_S = 0.01
_AGAIN_MOST_S = 0.5


class ProjectActivator(Protocol):
    """The part of the gateway that a client uses to start its project."""

    def activate(self, project_id: int) -> None:
        """Ask the supervisor to start the project and to report its route."""


class Route:
    """The path of a worker's socket, or the request for it.

    Attributes:
        path: the path; None while it is unknown.
        alone: whether the worker runs only this project.
    """

    def __init__(
        self,
        project_id: int,
        activator: ProjectActivator,
        loop: asyncio.AbstractEventLoop,
        on_due: Callable[[], None],
    ) -> None:
        """Create an unknown route; `on_due` is called when it may be requested after a pause."""
        self.path: str | None = None
        self.alone = False
        self._project_id = project_id
        self._activator = activator
        self._loop = loop
        self._on_due = on_due
        self._requested = False
        self._requested_at = 0.0
        self._misses = 0  # consecutive routes to a worker that did not run the project
        self._pause: asyncio.TimerHandle | None = None

    @property
    def unused(self) -> bool:
        """Whether the route is unknown, and no request for it is pending or planned."""
        return self.path is None and not self._requested and self._pause is None

    def set(self, path: str | None, alone: bool) -> None:
        """Set the route that the supervisor has reported."""
        self.path, self.alone = path, alone
        self._requested = False
        self._end_pause()

    def request(self) -> None:
        """Request the route from the supervisor, unless a request is pending or has to wait."""
        if not self._requested and self._pause is None:
            self._requested, self._requested_at = True, self._loop.time()
            self._activator.activate(self._project_id)

    def forget_request(self) -> None:
        """Forget the last request."""
        self._requested = False

    def overdue(self, now: float) -> bool:
        """Return whether a request has been unanswered for too long; if so, forget it."""
        if not self._requested or now - self._requested_at <= _RETRY_S:
            return False
        self._requested = False
        return True

    def missed(self) -> None:
        """Note that the worker did not run the project; the next request may have to wait."""
        self._misses += 1
        if self._misses > 1 and self.path is None:
            self._end_pause()
            delay = min(_AGAIN_S * 2.0 ** min(self._misses - 2, 16), _AGAIN_MOST_S)
            self._pause = self._loop.call_later(delay, self._due)

    def found(self) -> None:
        """Note that the worker runs the project."""
        self._misses = 0

    def _due(self) -> None:
        self._pause = None
        self._on_due()

    def _end_pause(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
