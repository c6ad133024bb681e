"""Threads for what would hold up the event loop: password hashes, and uploads.

argon2 takes about 90 ms and 64 MiB a hash, so at most two run at once, and few may wait.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import argon2

from fieldbrook.core.errors import TooManyRequestsError

_T = TypeVar("_T")

_THREADS = 2
_PASSWORDS_WAITING_LIMIT = 64
_UPLOADS_LIMIT, _UPLOADS_OF_ONE = 16, 8  # each holds its file in memory

_SEARCHES_WAITING_LIMIT = 32  # each reads a history from its end

FOLLOWERS_LIMIT, FOLLOWERS_OF_ONE = 64, 16

_hasher = argon2.PasswordHasher()


class BoundedPool:
    """A small thread pool with a bound on what waits for it."""

    def __init__(self, name: str, waiting_limit: int) -> None:
        self._name = name
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix=name)
        self._limit = _THREADS + waiting_limit
        self._taken = 0

    async def run(self, work: Callable[[], _T]) -> _T:
        """The result of `work`, done in a thread.

        Raises:
            TooManyRequestsError: as many as may wait do so already.
        """
        if self._taken >= self._limit:
            raise TooManyRequestsError(what=f"{self._taken} requests wait for {self._name}")
        self._taken += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, work)
        finally:
            self._taken -= 1


class SharedPool:
    """A small thread pool for work that may take minutes. One owner has all threads but one at
    most, and a share of the places, so that others' work goes on meanwhile."""

    def __init__(self, name: str, limit: int, limit_of_one: int) -> None:
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix=name)
        self._places = Seats(name, limit, limit_of_one)
        self._turns: dict[int, asyncio.Semaphore] = {}

    async def run(self, owner: int, work: Callable[[], _T]) -> _T:
        """The result of `work`, done in a thread.

        Raises:
            TooManyRequestsError: as many as may wait do so already, of all or of the owner.
        """
        with self._places.taken(owner):
            turn = self._turns.setdefault(owner, asyncio.Semaphore(_THREADS - 1))
            try:
                async with turn:
                    loop = asyncio.get_running_loop()
                    return await loop.run_in_executor(self._executor, work)
            finally:
                if self._places.held(owner) == 1:
                    del self._turns[owner]


class Seats:
    """A bound on what goes on at the same time without a thread of its own, of all owners and
    of each."""

    def __init__(self, name: str, limit: int, limit_of_one: int) -> None:
        self._name = name
        self._limit = limit
        self._limit_of_one = limit_of_one
        self._taken: Counter[int] = Counter()

    def held(self, owner: int) -> int:
        """How many an owner has."""
        return self._taken[owner]

    @contextmanager
    def taken(self, owner: int) -> Iterator[None]:
        """Hold one for the length of the block.

        Raises:
            TooManyRequestsError: none is free, or the owner has all that one may have.
        """
        taken = self._taken.total()
        if taken >= self._limit:
            raise TooManyRequestsError(what=f"{taken} {self._name} are open already")
        if self._taken[owner] >= self._limit_of_one:
            what = f"{self._taken[owner]} {self._name} of the account are open already"
            raise TooManyRequestsError(what=what)
        self._taken[owner] += 1
        try:
            yield
        finally:
            self._taken[owner] -= 1
            if not self._taken[owner]:
                del self._taken[owner]


class Workers:
    """The pools of one gateway."""

    def __init__(self) -> None:
        self._passwords = BoundedPool("passwords", _PASSWORDS_WAITING_LIMIT)
        self.searches = BoundedPool("searches", _SEARCHES_WAITING_LIMIT)
        self.followers = Seats("followers of logs", FOLLOWERS_LIMIT, FOLLOWERS_OF_ONE)
        self.uploads = SharedPool("uploads", _UPLOADS_LIMIT, _UPLOADS_OF_ONE)

    async def run(self, work: Callable[[], _T]) -> _T:
        """The result of `work`, some computing that is about as long as a password's."""
        return await self._passwords.run(work)

    async def hash_password(self, password: str) -> str:
        """argon2id's encoded form of a password."""
        return await self._passwords.run(lambda: _hasher.hash(password))

    async def is_password(self, encoded: str, password: str) -> bool:
        """Whether `password` is the one `encoded` was made from."""
        return await self._passwords.run(lambda: _matches(encoded, password))


def _matches(encoded: str, password: str) -> bool:
    try:
        return _hasher.verify(encoded, password)
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        return False
