"""Slowing down who guesses passwords, in bounded memory.

Every attempt takes from two buckets, that of the username and that of the address it came
from, before the password is looked at; a right password gives it back. So attempts sent
at once count as much as those sent in turn.

Whoever fails often under somebody's name must not lock them out: an address that has
logged in under a name before has a bucket of its own for that name.
"""

from __future__ import annotations

import collections
import ipaddress
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from fieldbrook.core.errors import TooManyAttemptsError

_REMEMBERED = 10_000


@dataclass(frozen=True)
class Rate:
    """How many failures at once, and after how many seconds one is forgotten."""

    burst: int
    seconds_each: float


PER_NAME = Rate(burst=10, seconds_each=30)
PER_PEER = Rate(burst=30, seconds_each=10)


class Buckets:
    """Failures by key, the oldest keys forgotten first."""

    def __init__(self, rate: Rate, clock: Callable[[], float], limit: int = _REMEMBERED) -> None:
        self._rate = rate
        self._clock = clock
        self._limit = limit
        # Key -> when its failures will all be forgotten.
        self._clear_at: collections.OrderedDict[object, float] = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._clear_at)

    def wait_s(self, key: object) -> float:
        """Seconds until one more attempt is allowed; 0 when it is now."""
        room = self._rate.burst * self._rate.seconds_each
        owed = self._clear_at.get(key, 0.0) - self._clock()
        return max(0.0, owed + self._rate.seconds_each - room)

    def take(self, key: object) -> None:
        """One more attempt."""
        self._put(key, max(self._clear_at.get(key, 0.0), self._clock()) + self._rate.seconds_each)

    def give_back(self, key: object) -> None:
        """One attempt was right."""
        if key in self._clear_at:
            self._put(key, self._clear_at[key] - self._rate.seconds_each)

    def _put(self, key: object, clear_at: float) -> None:
        if clear_at <= self._clock():
            self._clear_at.pop(key, None)
            return
        self._clear_at[key] = clear_at
        self._clear_at.move_to_end(key)
        if len(self._clear_at) > self._limit:
            self._clear_at.popitem(last=False)


class SignInThrottle:
    """The attempts one gateway has seen.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._names = Buckets(PER_NAME, clock)
        self._peers = Buckets(PER_PEER, clock)
        self._known: collections.OrderedDict[tuple[str, str], None] = collections.OrderedDict()

    def attempt(self, name: str, peer: str) -> None:
        """Count an attempt, before it is looked at.

        Raises:
            TooManyAttemptsError: too many have failed; it says when to come back.
        """
        peer = _network(peer)
        wait_s = max(self._names.wait_s(self._name(name, peer)), self._peers.wait_s(peer))
        if wait_s > 0:
            raise TooManyAttemptsError(wait_s=math.ceil(wait_s))
        self._names.take(self._name(name, peer))
        self._peers.take(peer)

    def undecided(self, name: str, peer: str) -> None:
        """Whether the attempt was right could not be found out; nobody is to blame."""
        peer = _network(peer)
        self._names.give_back(self._name(name, peer))
        self._peers.give_back(peer)

    def succeeded(self, name: str, peer: str) -> None:
        """The attempt was right."""
        self.undecided(name, peer)
        peer = _network(peer)
        self._known[name, peer] = None
        self._known.move_to_end((name, peer))
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def _name(self, name: str, peer: str) -> object:
        return (name, peer) if (name, peer) in self._known else name


def _network(peer: str) -> str:
    """What one client can hardly change of its address: of IPv6 the first 64 bits."""
    if ":" not in peer:
        return peer
    try:
        return str(ipaddress.IPv6Network((peer.partition("%")[0], 64), strict=False))
    except ValueError:
        return peer
