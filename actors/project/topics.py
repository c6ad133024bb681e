"""The MQTT topics that a project's handlers may publish on.

Topics below `PROJECT/` belong to the account that owns the project: its publishers read commands
there. Handlers of another account have only the rights that MQTT clients of that account have.
"""

from __future__ import annotations

from collections.abc import Sequence

from fieldbrook.core.model import ADMIN, Project
from fieldbrook.storage.registry.service import RegistryReader

REPLIES = "ack"
"""The first level of the topics of replies to events; other rules apply to these topics."""
_SHOWN = 128


def covers(allowed: str, wanted: str) -> bool:
    """Whether every topic that matches the filter `wanted` also matches the filter `allowed`."""
    ours, theirs = allowed.split("/"), wanted.split("/")
    for position, level in enumerate(ours):
        if level == "#":
            return True
        if position >= len(theirs) or theirs[position] == "#":
            return False
        if level not in ("+", theirs[position]):
            return False
    return len(ours) == len(theirs)


class HandlerTopics:
    """The rights of one project's handlers."""

    def __init__(
        self, reader: RegistryReader, project_id: int, open_topics: Sequence[str] = ()
    ) -> None:
        """`open_topics` are the filters of the setting `mqtt_device_topics`."""
        self._reader = reader
        self._project_id = project_id
        self._open_topics = open_topics

    def why_not(self, topic: str) -> str | None:
        """Return why handlers may not publish on a topic without wildcards; None when they may."""
        shown = repr(topic[:_SHOWN])
        name, slash, rest = topic.partition("/")
        found = self._reader.project_named(name)
        if found is not None and (not slash or rest.startswith("push/")):
            return f"topic {shown} is where project {name} takes events"
        if topic.startswith("$"):
            return f"topic {shown} is the broker's own"
        if found is None or name == REPLIES or self._owns(found):
            return None
        if any(covers(allowed, topic) for allowed in self._open_topics):
            return None
        return f"topic {shown} belongs to project {name} of another account"

    def _owns(self, found: Project) -> bool:
        """Whether the handlers' account has the project `found`; an administrator has all
        projects."""
        if found.project_id == self._project_id:
            return True
        own = self._reader.project(self._project_id)
        account = None if own is None else self._reader.account(own.account_id)
        return account is not None and (
            account.account_id == found.account_id or account.role == ADMIN
        )
