"""Rate limit against password guessing, in bounded memory.

Every attempt takes from two buckets before the password is checked: the bucket of the username
and the bucket of the client's address. A correct password returns both. Therefore concurrent
attempts count as much as sequential ones.

An attacker's failures must not lock out the owner of an account. Therefore an address that has
signed in under a name before has a separate bucket for that name.
"""

from __future__ import annotations

import collections
import math
import time
from collections.abc import Callable

import msgspec

from fieldbrook.core.errors import TooManyAttemptsError
from fieldbrook.gateway.listening.listener import peer_of

_REMEMBERED = 10_000


class Rate(msgspec.Struct, frozen=True):
    """A token bucket: `burst` failures at once, one forgotten every `seconds_each`."""

    burst: int
    seconds_each: float


PER_NAME = Rate(burst=10, seconds_each=30)
PER_PEER = Rate(burst=30, seconds_each=10)


class Buckets:
    """Failures by key; at the limit of keys, the oldest key is dropped first."""

    def __init__(self, rate: Rate, clock: Callable[[], float], limit: int = _REMEMBERED) -> None:
        self._rate = rate
        self._clock = clock
        self._limit = limit
        # By key: the time at which all its failures are forgotten.
        self._clear_at: collections.OrderedDict[object, float] = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._clear_at)

    def wait_s(self, key: object) -> float:
        """Return the seconds until one more attempt is allowed; 0 if it is allowed now."""
        room = self._rate.burst * self._rate.seconds_each
        owed = self._clear_at.get(key, 0.0) - self._clock()
        return max(0.0, owed + self._rate.seconds_each - room)

    def take(self, key: object) -> None:
        """Count one attempt as a failure."""
        self._put(key, max(self._clear_at.get(key, 0.0), self._clock()) + self._rate.seconds_each)

    def give_back(self, key: object) -> None:
        """Remove one failure, because the attempt was successful."""
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
    """Counts the sign-in attempts of one gateway process, by name and by address (`peer_of`).

    Args:
        clock: a monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._names = Buckets(PER_NAME, clock)
        self._peers = Buckets(PER_PEER, clock)
        self._known: collections.OrderedDict[tuple[str, str], None] = collections.OrderedDict()

    def attempt(self, name: str, peer: str) -> None:
        """Count an attempt before its password is checked.

        Raises:
            TooManyAttemptsError: too many attempts have failed; the error has the time to wait.
        """
        peer = peer_of(peer)
        wait_s = max(self._names.wait_s(self._name(name, peer)), self._peers.wait_s(peer))
        if wait_s > 0:
            raise TooManyAttemptsError(wait_s=math.ceil(wait_s))
        self._names.take(self._name(name, peer))
        self._peers.take(peer)

    def cancel(self, name: str, peer: str) -> None:
        """Do not count an attempt that could not be checked."""
        peer = peer_of(peer)
        self._names.give_back(self._name(name, peer))
        self._peers.give_back(peer)

    def succeeded(self, name: str, peer: str) -> None:
        """Do not count a successful attempt, and remember the address for this name."""
        self.cancel(name, peer)
        peer = peer_of(peer)
        self._known[name, peer] = None
        self._known.move_to_end((name, peer))
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def _name(self, name: str, peer: str) -> object:
        return (name, peer) if (name, peer) in self._known else name
