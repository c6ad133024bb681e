"""One project's side of a connection between a gateway and a worker."""

from __future__ import annotations

from typing import Any

from fieldbrook.actors.frame_server import Connection

Answer = tuple[Connection, tuple[int, Any]]
"""An answer of a project, `(project id, answer)`, and the connection on which to send it."""


class ProjectLink:
    """One project's side of a connection: it holds the project's answers until a commit has
    ended."""

    __slots__ = ("_answers", "_project_id", "connection")

    def __init__(self, connection: Connection, project_id: int, answers: list[Answer]) -> None:
        self.connection = connection
        self._project_id = project_id
        self._answers = answers

    @property
    def closed(self) -> bool:
        """Whether the connection is closed."""
        return self.connection.closed

    def answer(self, value: Any) -> None:
        """Keep an answer until the end of the commit."""
        self._answers.append((self.connection, (self._project_id, value)))
