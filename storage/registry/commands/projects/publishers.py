"""Publishers: commands that create, change and remove them, and their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fieldbrook.core import quotas
from fieldbrook.core.errors import PublisherConflictError, PublisherNotFoundError
from fieldbrook.core.model import ANONYMOUS, IDENTITY_PUBLISHER, Project, Publisher
from fieldbrook.security.access_keys import PUBLISHER_PRIVILEGES, publisher_key_name
from fieldbrook.security.tokens import issue_publisher_token
from fieldbrook.storage.registry.commands.accounts.access_keys import (
    add_access_key,
    remove_access_keys_of,
)
from fieldbrook.storage.registry.commands.change import Change, Commands, command


def add_publisher(
    change: Change,
    project_id: int,
    name: str,
    key: str,
    access_key: bool = False,
    event_types: Sequence[str] = (),
    expires_at: int = 0,
) -> Publisher:
    """Add a publisher with a token of its own within a change."""
    publisher_id = change.new_id()
    owner_id = change.project(project_id).account_id
    return change.add(
        change.tables.publishers,
        Publisher(
            publisher_id=publisher_id,
            project_id=project_id,
            name=name,
            key=key,
            token=_issue_token(change, owner_id, publisher_id, access_key, expires_at),
            event_types=_distinct(event_types),
            token_expires_at=expires_at,
            token_issued_at=change.time_ms,
        ),
    )


def make_public(change: Change, project: Project) -> Publisher:
    """Make a project public within a change, and return its anonymous publisher."""
    change.update(change.tables.projects, project, public=True)
    found = change.now.publisher_with_key(project.project_id, ANONYMOUS)
    if found is not None:
        return found
    _require_quota(change, project.project_id)
    return add_publisher(change, project.project_id, ANONYMOUS, ANONYMOUS, access_key=True)


def refuse_taken_key(change: Change, project_id: int, key: str) -> None:
    """Raise `PublisherConflictError` if the project has a publisher with this key."""
    if change.now.publisher_with_key(project_id, key):
        raise PublisherConflictError(what=f"publisher {key}")


class PublisherCommands(Commands):
    """Commands on publishers.

    `access_key` asks for a token in the form of an access key (`w3b_...`) instead of a JSON
    Web Token; the project's account then owns the record of that key. `expires_at` is in Unix
    milliseconds, 0 for never. `event_types` are the types that the publisher may send; an empty
    list allows all. Commands that create publishers raise `QuotaExceededError` when the
    project's account would exceed its quota.
    """

    @command
    def create_publisher(
        self,
        project_id: int,
        name: str,
        key: str,
        access_key: bool = False,
        event_types: Sequence[str] = (),
        expires_at: int = 0,
    ) -> Publisher:
        """Create a publisher with a token of its own.

        Raises:
            ProjectNotFoundError: no such project.
            PublisherConflictError: the project has a publisher with that key.
        """
        with self.change() as change:
            change.project(project_id)
            refuse_taken_key(change, project_id, key)
            _require_quota(change, project_id)
            return add_publisher(change, project_id, name, key, access_key, event_types, expires_at)

    @command
    def upsert_publisher(
        self,
        project_id: int,
        name: str,
        key: str,
        access_key: bool = False,
        event_types: Sequence[str] = (),
        expires_at: int = 0,
    ) -> Publisher:
        """Return the publisher with this key unchanged; create it if it does not exist.

        Raises:
            ProjectNotFoundError: no such project.
        """
        with self.change() as change:
            change.project(project_id)
            found = change.now.publisher_with_key(project_id, key)
            if found is not None:
                return found
            _require_quota(change, project_id)
            return add_publisher(change, project_id, name, key, access_key, event_types, expires_at)

    @command
    def register_publishers(self, project_id: int, keys: Sequence[str]) -> list[Publisher]:
        """Return the publishers with these keys, in that order.

        Missing publishers are created with their key as their name.

        Raises:
            ProjectNotFoundError: no such project.
        """
        with self.change() as change:
            change.project(project_id)
            new = {key for key in keys if change.now.publisher_with_key(project_id, key) is None}
            _require_quota(change, project_id, len(new))
            return [
                change.now.publisher_with_key(project_id, key)
                or add_publisher(change, project_id, key, key)
                for key in keys
            ]

    @command
    def create_anonymous_publisher(self, project_id: int) -> Publisher:
        """Make a project public and return its anonymous publisher, for events without a token.

        Raises:
            ProjectNotFoundError: no such project.
        """
        with self.change() as change:
            return make_public(change, change.project(project_id))

    @command
    def update_publisher(
        self,
        publisher_id: int,
        name: str,
        key: str,
        event_types: Sequence[str] | None = None,
    ) -> Publisher:
        """Rename a publisher. Its token stays; its event types stay if `event_types` is None.

        Raises:
            PublisherNotFoundError: no such publisher.
            PublisherConflictError: another publisher of the project has that key.
        """
        with self.change() as change:
            publisher = _publisher(change, publisher_id)
            if key != publisher.key:
                refuse_taken_key(change, publisher.project_id, key)
            fields: dict[str, Any] = {"name": name, "key": key}
            if event_types is not None:
                fields["event_types"] = _distinct(event_types)
            return change.update(self.tables.publishers, publisher, **fields)

    @command
    def rotate_publisher_token(
        self, publisher_id: int, access_key: bool = True, expires_at: int = 0
    ) -> Publisher:
        """Give a publisher a new token; the old one is invalid from now on.

        Raises:
            PublisherNotFoundError: no such publisher.
        """
        with self.change() as change:
            publisher = _publisher(change, publisher_id)
            remove_access_keys_of(change, publisher_id)
            owner_id = change.project(publisher.project_id).account_id
            return change.touch(
                self.tables.publishers,
                publisher,
                token=_issue_token(change, owner_id, publisher_id, access_key, expires_at),
                token_expires_at=expires_at,
                token_issued_at=change.time_ms,
            )

    @command
    def remove_publishers(self, project_id: int, publisher_ids: Sequence[int]) -> int:
        """Remove publishers of this project by id; return the number removed.

        Ids of other projects are ignored. Removing the anonymous publisher ends public access.
        """
        with self.change() as change:
            own = change.in_project(self.tables.publishers, project_id, publisher_ids)
            for publisher in own:
                change.remove(self.tables.publishers, publisher)
                remove_access_keys_of(change, publisher.publisher_id)
                if publisher.key == ANONYMOUS:
                    project = change.project(project_id)
                    change.update(self.tables.projects, project, public=False)
            return len(own)


def _require_quota(change: Change, project_id: int, adding: int = 1) -> None:
    owner_id = change.project(project_id).account_id
    change.require_quota(owner_id, quotas.PUBLISHERS, adding)


def _issue_token(
    change: Change, owner_id: int, publisher_id: int, access_key: bool, expires_at: int
) -> str:
    if not access_key:
        return issue_publisher_token(change.token_key, publisher_id)
    issued = add_access_key(
        change,
        account_id=owner_id,
        identity_id=publisher_id,
        identity_type=IDENTITY_PUBLISHER,
        name=publisher_key_name(publisher_id),
        privileges=dict(PUBLISHER_PRIVILEGES),
        expires_at=expires_at,
    )
    return issued.text


def _publisher(change: Change, publisher_id: int) -> Publisher:
    publisher = change.now.publisher_anywhere(publisher_id)
    if publisher is None:
        raise PublisherNotFoundError(pub_id=publisher_id)
    return publisher


def _distinct(texts: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(texts))
