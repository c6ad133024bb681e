"""Shared subscriptions: each message goes to one member of a group."""

from __future__ import annotations

import collections
from collections.abc import Iterable

import msgspec

from fieldbrook.gateway.mqtt.sessions.session import Session, Subscribed

_Members = collections.OrderedDict[str, tuple[Session, Subscribed]]


class Group(msgspec.Struct):
    """A shared subscription: each message goes to one of its members. The members are in the order
    of their last message, the oldest first. `_turns` has the number of this message for each
    member, to choose among some of them."""

    connected: _Members = msgspec.field(default_factory=collections.OrderedDict)
    away: _Members = msgspec.field(default_factory=collections.OrderedDict)
    _turns: dict[str, int] = msgspec.field(default_factory=dict)
    _turn: int = 0

    def put(self, session: Session, subscribed: Subscribed) -> None:
        """Add a member, or update whether it is connected."""
        members, others = self.connected, self.away
        if session.wire is None:
            members, others = others, members
        others.pop(session.key, None)
        if session.key not in members:
            self._note_turn(session.key)
        members[session.key] = session, subscribed

    def remove(self, session: Session) -> None:
        """Remove a member."""
        self.connected.pop(session.key, None)
        self.away.pop(session.key, None)
        self._turns.pop(session.key, None)

    def choose(self) -> tuple[Session, Subscribed] | None:
        """Return the next member in turn; a connected one, if there is one."""
        for members in (self.connected, self.away):
            if members:
                return self._chosen(members, next(iter(members)))
        return None

    def choose_of(self, sessions: Iterable[Session]) -> tuple[Session, Subscribed] | None:
        """Return the next one of some members. The other members, which may be thousands, take no
        time."""
        keys = [each.key for each in sessions]
        for members in (self.connected, self.away):
            known = [key for key in keys if key in members]
            if known:
                return self._chosen(members, min(known, key=self._turns.__getitem__))
        return None

    def _chosen(self, members: _Members, key: str) -> tuple[Session, Subscribed]:
        members.move_to_end(key)
        self._note_turn(key)
        return members[key]

    def _note_turn(self, key: str) -> None:
        self._turn += 1
        self._turns[key] = self._turn
