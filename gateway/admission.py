"""Who may send an event, and to which project: decided per event, from the registry."""

from __future__ import annotations

import asyncio
import hmac

from fieldbrook import access_keys, clock, tokens
from fieldbrook.errors import (
    EventTypeNotAllowedError,
    InvalidTokenError,
    ProjectNotFoundError,
    PublisherNotFoundError,
    PublisherTokenError,
)
from fieldbrook.model import Project, Publisher
from fieldbrook.storage.registry import RegistryReader

_REMEMBERED = 200_000


class Admission:
    """Admits publishers of projects.

    What the registry said is remembered until its change counter moves, so a token revoked
    by a finished management call is refused from the next event on.
    """

    def __init__(self, reader: RegistryReader, token_key: bytes) -> None:
        self._reader = reader
        self._token_key = token_key
        self._version = -1
        self._current = False
        self._projects: dict[str, Project] = {}
        self._admitted: dict[tuple[str, str, str], tuple[int, int]] = {}
        self._restricted: dict[int, Publisher] = {}

    def admit(self, project_name: str, pub_id: str, token: str) -> tuple[int, int]:
        """The ids of the project and of the publisher.

        `pub_id` is the publisher's key or its id; token and publisher must belong together
        and to the project.

        Raises:
            ProjectNotFoundError: no project of that name.
            PublisherNotFoundError: no such publisher in this project.
            PublisherTokenError: the token is not the publisher's current one; the
                description says why (expired, another key, another publisher's, replaced).
        """
        if not self._current:
            self.refresh()
        key = (project_name, pub_id, token)
        ids = self._admitted.get(key)
        if ids is None:
            project = self.project(project_name)
            publisher = self._reader.publisher(project.project_id, pub_id)
            if publisher is None:
                raise PublisherNotFoundError(pub_id=pub_id)
            self._check(project_name, publisher, token)
            ids = project.project_id, publisher.publisher_id
            if len(self._admitted) >= _REMEMBERED:
                self._admitted.clear()
            self._admitted[key] = ids
        return ids

    def allow(self, publisher_id: int, event_type: str) -> None:
        """Let an admitted publisher's event of a type through; few have a limit to it.

        Raises:
            PublisherTokenError: its token has expired.
            EventTypeNotAllowedError: it may not send events of that type.
        """
        publisher = self._restricted.get(publisher_id)
        if publisher is None:
            return
        if publisher.token_expires_at and clock.now_ms() >= publisher.token_expires_at:
            raise self._refused(publisher, "token is expired")
        if publisher.event_types and event_type not in publisher.event_types:
            raise EventTypeNotAllowedError(pub_id=publisher.key, event_type=event_type)

    def refresh(self) -> None:
        """Forget what the registry has changed since the last look."""
        version = self._reader.version()
        if version != self._version:
            self._projects.clear()
            self._admitted.clear()
            self._restricted.clear()
            self._version = version
        # Once per turn of the loop, not per event: the answer to a management call leaves in
        # a later turn than this one, and so does whatever is sent after it.
        self._current = True
        asyncio.get_running_loop().call_soon(self._turn_ended)

    def _turn_ended(self) -> None:
        self._current = False

    def project(self, name: str) -> Project:
        """The project of a name.

        Raises:
            ProjectNotFoundError: there is none.
        """
        project = self._projects.get(name)
        if project is None:
            project = self._reader.project_named(name)
            if project is None:
                raise ProjectNotFoundError(project=name)
            self._projects[name] = project
        return project

    def _check(self, project_name: str, publisher: Publisher, token: str) -> None:
        # Only this node writes `publisher.token`: one equal to it is genuine and current,
        # without checking a signature (20 us) again.
        if not hmac.compare_digest(token.encode(), publisher.token.encode()):
            raise PublisherTokenError(
                pub_id=publisher.key, project=project_name, reason=self._why_not(publisher, token)
            )
        if publisher.event_types or publisher.token_expires_at:
            self._restricted[publisher.publisher_id] = publisher

    def _refused(self, publisher: Publisher, reason: str) -> PublisherTokenError:
        project = self._reader.project(publisher.project_id)
        name = project.name if project else str(publisher.project_id)
        return PublisherTokenError(pub_id=publisher.key, project=name, reason=reason)

    def _why_not(self, publisher: Publisher, token: str) -> str:
        if access_keys.is_access_key(token):
            other = self._reader.publisher_with_token(token)
            return "token of another publisher" if other else "token is unknown or was replaced"
        try:
            publisher_id = tokens.read_publisher_token(self._token_key, token)
        except InvalidTokenError as error:
            return str(error)
        if publisher_id != publisher.publisher_id:
            return "token of another publisher"
        return "token was replaced"
