"""Readers of replies below `ack/`: an index, so that a reply takes no time for other clients.

Besides replies to events, handlers and administrators publish messages to these topics. Any client
may subscribe to these topics, and thousands of clients may do so with many filters each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from fieldbrook.gateway.mqtt.sessions.access import ACKS, Principal
from fieldbrook.gateway.mqtt.sessions.session import Message, Session

REPLIES = f"{ACKS}/"
_ADMIN = ("admin",)

_Key = tuple[str | int, ...]


class Rights(Protocol):
    """The part of `Access` that the router uses."""

    def opens(self, topic: str) -> bool:
        """Whether all clients may read a topic, even one of replies."""

    def may_read(self, principal: Principal, topic: str) -> bool:
        """Whether a client may read a topic that is not for replies."""

    def project_of(self, topic: str) -> int:
        """The id of the project to which a topic belongs; 0 for topics of none."""


class Readers:
    """The sessions that may read replies, by the publisher or project that gives them the right."""

    def __init__(self) -> None:
        self._sessions: dict[_Key, dict[str, Session]] = {}
        self._keys: dict[str, tuple[Session, set[_Key]]] = {}

    def update(self, session: Session) -> None:
        """Record the rights that a session has now, after its client or its senders have
        changed."""
        self.remove(session)
        principal = session.principal
        self._add(session, {("project", each) for each in principal.project_ids})
        if principal.is_admin:
            self._add(session, {_ADMIN})
        if principal.publisher_id:
            key, projects = principal.publisher_key, (0, principal.project_id)
            self._add(session, {("key", project_id, key) for project_id in projects})
            self._add(session, {("publisher", principal.publisher_id)})
        self._add(session, {("publisher", each) for each in session.senders})
        self._add(session, {("key", *each) for each in session.sender_keys})

    def add_sender(
        self, session: Session, publisher_id: int, project_id: int, publisher_key: str
    ) -> None:
        """Record a publisher whose events a session has sent."""
        session.add_sender(publisher_id, project_id, publisher_key)
        if publisher_id in session.senders:
            keys = {("key", each, publisher_key) for each in (0, project_id)}
            self._add(session, {("publisher", publisher_id), *keys})

    def remove(self, session: Session) -> None:
        """Forget a session."""
        known, keys = self._keys.get(session.key, (session, set()))
        if known is not session:
            return
        self._keys.pop(session.key, None)
        for key in keys:
            found = self._sessions[key]
            del found[session.key]
            if not found:
                del self._sessions[key]

    def of(self, message: Message) -> Iterator[Session]:
        """The sessions that may read a reply, each once."""
        topic_key = message.topic[len(REPLIES) :]
        project_id, publisher_id = message.project_id, message.publisher_id
        keys: list[_Key] = [_ADMIN, ("project", project_id)]
        keys.append(("publisher", publisher_id) if publisher_id else ("key", project_id, topic_key))
        found: dict[str, Session] = {}
        for key in keys:
            found.update(self._sessions.get(key, {}))
        yield from found.values()

    def _add(self, session: Session, keys: set[_Key]) -> None:
        if not keys:
            return
        known, had = self._keys.setdefault(session.key, (session, set()))
        if known is not session:  # an earlier session of the same client
            self.remove(known)
            _, had = self._keys[session.key] = (session, set())
        had |= keys
        for key in keys:
            self._sessions.setdefault(key, {})[session.key] = session


def may_have(rights: Rights, session: Session, message: Message) -> bool:
    """Whether the client may still get a message that it could get at the time of publishing."""
    topic = message.topic
    if not topic.startswith(REPLIES):
        return rights.may_read(session.principal, topic)
    return rights.opens(topic) or may_read_reply(session, message)


def may_read_reply(session: Session, message: Message) -> bool:
    """Whether a session may read a message below `ack/` that is not open to all.

    Handlers and administrators publish there, too. Publishers of different projects may have the
    same key.
    """
    principal = session.principal
    if principal.is_admin or message.project_id in principal.project_ids:
        return True
    if message.publisher_id:
        return (
            message.publisher_id in session.senders
            or message.publisher_id == principal.publisher_id
        )
    project_id, key = message.project_id, message.topic[len(REPLIES) :]
    if (project_id, key) in session.sender_keys:
        return True
    return key == principal.publisher_key and project_id in (0, principal.project_id)
