"""Publishers: commands that create, change and remove them, and their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fieldbrook.core import quotas
from fieldbrook.core.errors import PublisherConflictError, PublisherNotFoundError
from fieldbrook.core.model import ANONYMOUS, IDENTITY_PUBLISHER, Project, Publisher
from fieldbrook.security.access_keys import PUBLISHER_PRIVILEGES, publisher_key_name
from fieldbrook.security.tokens import issue_publisher_token
from fieldbrook.storage.lmdb.ids import to_key
from fieldbrook.storage.lmdb.table import text_key
from fieldbrook.storage.registry.commands.accounts.access_keys import (
    add_access_key,
    remove_access_keys_of,
)
from fieldbrook.storage.registry.commands.change import Change, Commands, command


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
            self._refuse_taken_publisher_key(change, project_id, key)
            self._require_room(change, project_id)
            return self._create(change, project_id, name, key, access_key, event_types, expires_at)

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
            found = self._with_key(change, project_id, key)
            if found is not None:
                return found
            self._require_room(change, project_id)
            return self._create(change, project_id, name, key, access_key, event_types, expires_at)

    @command
    def register_publishers(self, project_id: int, keys: Sequence[str]) -> list[Publisher]:
        """Return the publishers with these keys, in that order.

        Missing publishers are created with their key as their name.

        Raises:
            ProjectNotFoundError: no such project.
        """
        with self.change() as change:
            change.project(project_id)
            new = {key for key in keys if self._with_key(change, project_id, key) is None}
            self._require_room(change, project_id, len(new))
            return [
                self._with_key(change, project_id, key)
                or self._create(change, project_id, key, key)
                for key in keys
            ]

    @command
    def create_anonymous_publisher(self, project_id: int) -> Publisher:
        """Make a project public and return its anonymous publisher, for events without a token.

        Raises:
            ProjectNotFoundError: no such project.
        """
        with self.change() as change:
            return self._make_public(change, change.project(project_id))

    @command
    def update_publisher(
        self,
        publisher_id: int,
        name: str,
        key: str,
        event_types: Sequence[str] | None = None,
    ) -> Publisher:
        """Rename a publisher; its token stays, and with None its event types do too.

        Raises:
            PublisherNotFoundError: no such publisher.
            PublisherConflictError: another publisher of the project has that key.
        """
        with self.change() as change:
            publisher = self._publisher(change, publisher_id)
            if key != publisher.key:
                self._refuse_taken_publisher_key(change, publisher.project_id, key)
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
            publisher = self._publisher(change, publisher_id)
            remove_access_keys_of(change, self.tables, publisher_id)
            owner_id = change.project(publisher.project_id).account_id
            return change.touch(
                self.tables.publishers,
                publisher,
                token=self._token(change, owner_id, publisher_id, access_key, expires_at),
                token_expires_at=expires_at,
                token_issued_at=change.time_ms,
            )

    @command
    def remove_publishers(self, project_id: int, publisher_ids: Sequence[int]) -> int:
        """Remove publishers of this project by id; return the number removed.

        Ids of other projects are ignored. Removing the anonymous publisher ends public access.
        """
        with self.change() as change:
            found = {n: self.tables.publishers.get(change.txn, n) for n in publisher_ids}
            own = [p for p in found.values() if p and p.project_id == project_id]
            for publisher in own:
                change.remove(self.tables.publishers, publisher)
                remove_access_keys_of(change, self.tables, publisher.publisher_id)
                if publisher.key == ANONYMOUS:
                    project = change.project(project_id)
                    change.update(self.tables.projects, project, public=False)
            return len(own)

    def _make_public(self, change: Change, project: Project) -> Publisher:
        change.update(self.tables.projects, project, public=True)
        found = self._with_key(change, project.project_id, ANONYMOUS)
        if found is not None:
            return found
        self._require_room(change, project.project_id)
        return self._create(change, project.project_id, ANONYMOUS, ANONYMOUS, access_key=True)

    def _require_room(self, change: Change, project_id: int, adding: int = 1) -> None:
        owner_id = change.project(project_id).account_id
        self.require_quota(change, owner_id, quotas.PUBLISHERS, adding)

    def _create(
        self,
        change: Change,
        project_id: int,
        name: str,
        key: str,
        access_key: bool = False,
        event_types: Sequence[str] = (),
        expires_at: int = 0,
    ) -> Publisher:
        publisher_id = change.new_id()
        owner_id = change.project(project_id).account_id
        return change.put(
            self.tables.publishers,
            Publisher(
                publisher_id=publisher_id,
                project_id=project_id,
                name=name,
                key=key,
                token=self._token(change, owner_id, publisher_id, access_key, expires_at),
                event_types=_distinct(event_types),
                token_expires_at=expires_at,
                token_issued_at=change.time_ms,
                created_at=change.time_ms,
                updated_at=change.time_ms,
            ),
        )

    def _token(
        self, change: Change, owner_id: int, publisher_id: int, access_key: bool, expires_at: int
    ) -> str:
        if not access_key:
            return issue_publisher_token(self.token_key, publisher_id)
        issued = add_access_key(
            change,
            self.tables,
            account_id=owner_id,
            identity_id=publisher_id,
            identity_type=IDENTITY_PUBLISHER,
            name=publisher_key_name(publisher_id),
            privileges=dict(PUBLISHER_PRIVILEGES),
            expires_at=expires_at,
        )
        return issued.text

    def _publisher(self, change: Change, publisher_id: int) -> Publisher:
        publisher = self.tables.publishers.get(change.txn, publisher_id)
        if publisher is None:
            raise PublisherNotFoundError(pub_id=publisher_id)
        return publisher

    def _with_key(self, change: Change, project_id: int, key: str) -> Publisher | None:
        index_key = to_key(project_id) + text_key(key)
        return self.tables.publishers.find(change.txn, "publisher_keys", index_key)

    def _refuse_taken_publisher_key(self, change: Change, project_id: int, key: str) -> None:
        if self._with_key(change, project_id, key):
            raise PublisherConflictError(what=f"publisher {key}")


def _distinct(texts: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(texts))
