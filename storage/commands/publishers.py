"""Publishers: commands that create, change and remove them."""

from __future__ import annotations

from collections.abc import Sequence

from fieldbrook.errors import PublisherConflictError, PublisherNotFoundError
from fieldbrook.model import Publisher
from fieldbrook.storage.commands.change import Change, Commands, command
from fieldbrook.storage.ids import to_key
from fieldbrook.storage.table import text_key
from fieldbrook.tokens import issue_publisher_token


class PublisherCommands(Commands):
    """Commands on publishers."""

    @command
    def create_publisher(self, project_id: int, name: str, key: str) -> Publisher:
        """Create a publisher with a token of its own.

        Raises:
            ProjectNotFoundError: no such project.
            PublisherConflictError: the project has a publisher with that key.
        """
        with self.change() as change:
            change.project(project_id)
            self._refuse_taken_publisher_key(change, project_id, key)
            publisher_id = change.new_id()
            return change.put(
                self.tables.publishers,
                Publisher(
                    publisher_id=publisher_id,
                    project_id=project_id,
                    name=name,
                    key=key,
                    token=issue_publisher_token(self.token_key, publisher_id),
                    created_at=change.time_ms,
                    updated_at=change.time_ms,
                ),
            )

    @command
    def update_publisher(self, publisher_id: int, name: str, key: str) -> Publisher:
        """Rename a publisher; its token stays.

        Raises:
            PublisherNotFoundError: no such publisher.
            PublisherConflictError: another publisher of the project has that key.
        """
        with self.change() as change:
            publisher = self.tables.publishers.get(change.txn, publisher_id)
            if publisher is None:
                raise PublisherNotFoundError(pub_id=publisher_id)
            if key != publisher.key:
                self._refuse_taken_publisher_key(change, publisher.project_id, key)
            return change.update(self.tables.publishers, publisher, name=name, key=key)

    @command
    def remove_publishers(self, project_id: int, publisher_ids: Sequence[int]) -> int:
        """Remove those of the ids that are publishers of this project; how many were."""
        with self.change() as change:
            found = {n: self.tables.publishers.get(change.txn, n) for n in publisher_ids}
            own = [p for p in found.values() if p and p.project_id == project_id]
            for publisher in own:
                change.remove(self.tables.publishers, publisher)
            return len(own)

    def _refuse_taken_publisher_key(self, change: Change, project_id: int, key: str) -> None:
        index_key = to_key(project_id) + text_key(key)
        if self.tables.publishers.find(change.txn, "publisher_keys", index_key):
            raise PublisherConflictError(what=f"publisher {key}")
