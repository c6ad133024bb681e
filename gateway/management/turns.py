"""Turns of accounts: what the requests of one account may take of the event loop.

A route's function computes in the loop of the gateway, which events share. A long list takes
parts of a second, and an account can ask for many at the same time.
"""

from __future__ import annotations

import asyncio
import time
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

from fieldbrook.system.loop_share import REST

_T = TypeVar("_T")

_SMALL_S = 0.005  # shorter pieces of work count for nothing
_CREDIT_S = 0.5  # rest that an account is spared after a while without work
_KEPT = 1_000  # accounts


class _Account:
    """When an account has rested for all that it has done, and who waits for that."""

    def __init__(self) -> None:
        self.rested_at = float("-inf")
        self.turn = asyncio.Lock()


class Turns:
    """Runs the requests of accounts.

    A request is stopped wherever it awaits something, until its account has rested: three times as
    long as its requests have kept the loop. So one account takes a quarter of the loop at most,
    one piece at a time.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        worked: Callable[[], float] = time.thread_time,
    ) -> None:
        """Create it; `worked` is the processor time of the thread, both are in seconds."""
        self._clock, self._worked = clock, worked
        self._accounts: dict[int, _Account] = {}

    async def run(self, account_id: int, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a request of an account, piece by piece, and return its result."""
        steps = work.__await__()
        thrown: BaseException | None = None
        while True:
            if thrown is None:
                try:
                    await self._rest(account_id)
                except asyncio.CancelledError as error:
                    thrown = error
            began = self._worked()
            try:
                waits_for = steps.send(None) if thrown is None else steps.throw(thrown)
            except StopIteration as end:
                result: _T = end.value
                return result
            finally:
                self._count(account_id, self._worked() - began)
                # An error's traceback has this frame: with the error in it, what the request had
                # open would stay so until a collection.
                thrown = None
            try:
                await _wait(waits_for)
            except GeneratorExit:
                work.close()
                raise
            except BaseException as error:  # noqa: BLE001 - of the request, which gets it
                thrown = error
            finally:
                waits_for = None  # it has the error, too

    async def _rest(self, account_id: int) -> None:
        account = self._accounts.get(account_id)
        if account is None or (account.rested_at <= self._clock() and not account.turn.locked()):
            return
        async with account.turn:
            # The next one looks at the time after the piece of work that follows.
            await asyncio.sleep(max(0.0, account.rested_at - self._clock()))

    def _count(self, account_id: int, seconds: float) -> None:
        if seconds < _SMALL_S:
            return
        account = self._accounts.get(account_id)
        if account is None:
            self._forget()
            account = self._accounts[account_id] = _Account()
        begin = max(account.rested_at, self._clock() - _CREDIT_S)
        account.rested_at = begin + (1 + REST) * seconds  # the work itself, and the rest

    def _forget(self) -> None:
        """Forget accounts that have rested, when there are many."""
        if len(self._accounts) >= _KEPT:
            now = self._clock()
            self._accounts = {
                number: each
                for number, each in self._accounts.items()
                if each.rested_at > now or each.turn.locked()
            }


@types.coroutine
def _wait(waits_for: Any) -> Generator[Any, Any, None]:
    """Wait for what a piece of work has yielded to the event loop."""
    try:
        yield waits_for
    finally:
        del waits_for
