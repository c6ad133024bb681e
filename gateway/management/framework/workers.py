"""Thread pools for work that would block the event loop: password hashes, uploads, searches.

argon2 takes about 90 ms and 64 MiB per hash. So at most two hashes run at once, one per account,
and the number of waiting ones is bounded.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar
from weakref import WeakValueDictionary

import argon2

from fieldbrook.core.errors import TooManyRequestsError
from fieldbrook.core.model import ADMIN, Account
from fieldbrook.system.loop_share import LoopShare

_T = TypeVar("_T")

_THREADS = 2
_PASSWORDS_LIMIT, _PASSWORDS_OF_ONE = 66, 16
_UPLOADS_LIMIT, _UPLOADS_OF_ONE = 16, 8  # each holds its file in memory

_QUERIES_LIMIT, _QUERIES_OF_ONE = 16, 4  # each may hold its result and its file
_DRY_RUNS_LIMIT, _DRY_RUNS_OF_ONE = 8, 2  # each is a process
_SEARCHES_LIMIT, _SEARCHES_OF_ONE = 34, 16  # each reads a history from its end

# Ordinary accounts cannot use the reserve, because administrators need logs most when many users
# follow them.
FOLLOWERS_LIMIT, FOLLOWERS_OF_ONE, FOLLOWERS_RESERVE = 64, 8, 16
# WebSockets of pages; each may have 8 waiting messages of about 20 KiB.
PAGES_LIMIT, PAGES_OF_ONE, PAGES_RESERVE = 64, 16, 16
# Searches by name; pages start one while the user types.
LOOKUPS_LIMIT, LOOKUPS_OF_ONE, LOOKUPS_RESERVE = 32, 8, 8
_COMMANDS_OF_ONE = 32  # of the 256 commands that may wait for the registry
# Each download keeps a file open, and an exported project takes disk space until it has been read.
DOWNLOADS_LIMIT, DOWNLOADS_OF_ONE, DOWNLOADS_RESERVE = 64, 8, 16

# For long answers that wait until their clients read them. A single account may use half.
ANSWERS_BYTES = 256 << 20

_hasher = argon2.PasswordHasher()


class SharedPool:
    """A small thread pool for work that may take long or that an account may request often.

    One owner may use all threads but one, and a share of the places in the queue, so that the
    work of others continues. An owner may use at most as many places as it leaves free, so a few
    owners cannot use all of them.
    """

    def __init__(self, name: str, limit: int, limit_of_one: int) -> None:
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix=name)
        self._slots = ConcurrencyLimit(name, limit, limit_of_one, leaves_free=True)
        self._semaphores: dict[Hashable, asyncio.Semaphore] = {}

    async def run(self, owner: Hashable, work: Callable[[], _T]) -> _T:
        """Run `work` in a thread and return its result.

        Raises:
            TooManyRequestsError: the limit of all owners or of this one is reached.
        """
        with self._slots.hold(owner):
            semaphore = self._semaphores.setdefault(owner, asyncio.Semaphore(_THREADS - 1))
            try:
                async with semaphore:
                    loop = asyncio.get_running_loop()
                    return await loop.run_in_executor(self._executor, work)
            finally:
                if self._slots.count(owner) == 1:
                    del self._semaphores[owner]


class ConcurrencyLimit:
    """A bound on concurrent activities that need no thread, in total and per owner.

    The last `reserve` slots are for administrators. With `leaves_free`, an owner gets another slot
    only if it holds fewer slots than are free. So n busy owners leave 1/(n + 1) of the slots to the
    next one.
    """

    def __init__(
        self,
        name: str,
        limit: int,
        limit_of_one: int,
        reserve: int = 0,
        *,
        leaves_free: bool = False,
    ) -> None:
        self._name = name
        self._limit = limit
        self._reserve = reserve
        self._limit_of_one = limit_of_one
        self._leaves_free = leaves_free
        self._taken: Counter[Hashable] = Counter()

    def count(self, owner: Hashable) -> int:
        """The number of slots that an owner holds."""
        return self._taken[owner]

    @contextmanager
    def hold(self, owner: Hashable, *, administrator: bool = False) -> Iterator[None]:
        """Hold one slot for the duration of the `with` block.

        Raises:
            TooManyRequestsError: no slot is free, or the owner already holds its share.
        """
        taken = self._taken.total()
        if taken >= self._limit:
            raise TooManyRequestsError(what=f"{taken} {self._name} are open already")
        if not administrator and taken >= self._limit - self._reserve:
            what = (
                f"{taken} {self._name} are open already, "
                f"the last {self._reserve} of {self._limit} places are for administrators"
            )
            raise TooManyRequestsError(what=what)
        if self._taken[owner] >= self._limit_of_one:
            what = (
                f"{self._taken[owner]} {self._name} of the account are open already, "
                f"the limit of an account is {self._limit_of_one}"
            )
            raise TooManyRequestsError(what=what)
        if self._leaves_free and self._taken[owner] >= self._limit - taken:
            what = (
                f"{taken} {self._name} are open already, {self._taken[owner]} of them of the "
                f"account; the other {self._limit - taken} places are for accounts with fewer"
            )
            raise TooManyRequestsError(what=what)
        self._taken[owner] += 1
        try:
            yield
        finally:
            self._taken[owner] -= 1
            if not self._taken[owner]:
                del self._taken[owner]

    def hold_for(self, account: Account) -> AbstractContextManager[None]:
        """Hold one slot for an account; see `hold`."""
        return self.hold(account.account_id, administrator=account.role == ADMIN)


class MemoryShares:
    """A bound on the memory of answers, in total and per owner.

    An owner gets more only if it then holds less than is still free, as with `leaves_free`.
    """

    def __init__(self, name: str, limit_bytes: int) -> None:
        self._name = name
        self._limit = limit_bytes
        self._held: Counter[int] = Counter()

    @contextmanager
    def hold(self, owner: int, size: int) -> Iterator[None]:
        """Hold `size` bytes for the duration of the `with` block.

        Raises:
            TooManyRequestsError: too little is free, or the owner already holds its share.
        """
        held, total = self._held[owner], self._held.total()
        if held + size > self._limit - total:
            what = f"{total} bytes of {self._name} wait for their readers, {held} of the account"
            raise TooManyRequestsError(what=what)
        self._held[owner] += size
        try:
            yield
        finally:
            self._held[owner] -= size
            if not self._held[owner]:
                del self._held[owner]


class Workers:
    """The pools of one gateway."""

    def __init__(self) -> None:
        self._passwords = SharedPool("passwords", _PASSWORDS_LIMIT, _PASSWORDS_OF_ONE)
        self.searches = SharedPool("searches", _SEARCHES_LIMIT, _SEARCHES_OF_ONE)
        self.followers = ConcurrencyLimit(
            "followers of logs", FOLLOWERS_LIMIT, FOLLOWERS_OF_ONE, FOLLOWERS_RESERVE
        )
        self.lookups = ConcurrencyLimit("searches", LOOKUPS_LIMIT, LOOKUPS_OF_ONE, LOOKUPS_RESERVE)
        self.pages = ConcurrencyLimit("streams", PAGES_LIMIT, PAGES_OF_ONE, PAGES_RESERVE)
        self.streams = LoopShare()
        self.downloads = ConcurrencyLimit(
            "downloads", DOWNLOADS_LIMIT, DOWNLOADS_OF_ONE, DOWNLOADS_RESERVE
        )
        self.answers = MemoryShares("long answers", ANSWERS_BYTES)
        self._commands: WeakValueDictionary[int, asyncio.Semaphore] = WeakValueDictionary()
        self.uploads = SharedPool("uploads", _UPLOADS_LIMIT, _UPLOADS_OF_ONE)
        self.queries = SharedPool("queries", _QUERIES_LIMIT, _QUERIES_OF_ONE)
        self.dry_runs = SharedPool("dry runs", _DRY_RUNS_LIMIT, _DRY_RUNS_OF_ONE)

    async def run(self, owner: Hashable, work: Callable[[], _T]) -> _T:
        """Run `work`, which takes about as long as a password hash, in the pool of passwords.

        Raises:
            TooManyRequestsError: the limit of all owners or of this one is reached.
        """
        return await self._passwords.run(owner, work)

    def commands_of(self, account_id: int) -> asyncio.Semaphore:
        """Return the limit of one account's unanswered commands to the registry; further ones
        wait."""
        return self._commands.setdefault(account_id, asyncio.Semaphore(_COMMANDS_OF_ONE))

    async def hash_password(self, owner: Hashable, password: str) -> str:
        """Hash a password; the result is argon2id's encoded form."""
        return await self._passwords.run(owner, lambda: _hasher.hash(password))

    async def is_password(self, account: Account, password: str) -> bool:
        """Return whether this is the password of an account."""
        encoded = account.password_hash
        return await self._passwords.run(account.account_id, lambda: _matches(encoded, password))


def _matches(encoded: str, password: str) -> bool:
    try:
        return _hasher.verify(encoded, password)
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        return False
