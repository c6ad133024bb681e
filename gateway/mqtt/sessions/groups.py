"""Shared subscriptions: each message goes to one member of a group."""

from __future__ import annotations

import collections
from collections.abc import Callable
from dataclasses import dataclass, field

from fieldbrook.gateway.mqtt.sessions.session import Session, Subscribed

_Members = collections.OrderedDict[str, tuple[Session, Subscribed]]


@dataclass(slots=True)
class Group:
    """A shared subscription: each message goes to one of its members. Those who had no turn for
    the longest time are first."""

    connected: _Members = field(default_factory=collections.OrderedDict)
    away: _Members = field(default_factory=collections.OrderedDict)

    def put(self, session: Session, subscribed: Subscribed) -> None:
        """Add a member, or update whether it is connected."""
        members, others = self.connected, self.away
        if session.wire is None:
            members, others = others, members
        others.pop(session.key, None)
        members[session.key] = session, subscribed

    def remove(self, session: Session) -> None:
        """Remove a member."""
        self.connected.pop(session.key, None)
        self.away.pop(session.key, None)

    def choose(self, may_read: Callable[[Session], bool]) -> tuple[Session, Subscribed] | None:
        """The next member in turn that may read; one that is connected, where there is one."""
        for members in (self.connected, self.away):
            for key, member in members.items():
                if may_read(member[0]):
                    members.move_to_end(key)
                    return member
        return None
