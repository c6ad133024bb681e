"""Account shares: limits how much of the event loop the requests of one account may use.

Functions of routes run in the event loop of the gateway, which also serves events. Computing a
long list can take hundreds of milliseconds, and an account can request many lists at once.
"""

from __future__ import annotations

import asyncio
import time
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

from fieldbrook.system.loop_share import REST

_T = TypeVar("_T")

_SMALL_S = 0.005  # shorter pieces of work are not counted, unless there are many
_FEW = 8  # requests of an account at the same time; a browser has six connections
_CREDIT_S = 0.5  # the most unused time that an account may use later
_KEPT = 1_000  # accounts


class _Account:
    """An account's requests, and the time after which they may use the loop again."""

    def __init__(self) -> None:
        self.requests = 0
        self.rested_at = float("-inf")
        self.turn = asyncio.Lock()


class AccountShares:
    """Runs the requests of accounts piece by piece; a piece ends where a request awaits something.

    After a piece, the requests of the account pause for three times the time that the piece took.
    Therefore one account uses at most a quarter of the loop, with one piece at a time.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        worked: Callable[[], float] = time.thread_time,
    ) -> None:
        """Create the shares; `worked` returns the processor time of the thread. Both clocks are in
        seconds."""
        self._clock, self._worked = clock, worked
        self._accounts: dict[int, _Account] = {}

    async def run(self, account_id: int, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a request of an account, piece by piece, and return its result."""
        account = self._account(account_id)
        account.requests += 1
        try:
            return await self._run(account, work)
        finally:
            account.requests -= 1

    async def _run(self, account: _Account, work: Coroutine[Any, Any, _T]) -> _T:
        steps = work.__await__()
        thrown: BaseException | None = None
        while True:
            if thrown is None:
                try:
                    await self._rest(account)
                except asyncio.CancelledError as error:
                    thrown = error
            began = self._worked()
            try:
                waits_for = steps.send(None) if thrown is None else steps.throw(thrown)
            except StopIteration as end:
                result: _T = end.value
                return result
            finally:
                self._count(account, self._worked() - began)
                # The traceback of an error refers to this frame. If the frame referred to the
                # error, resources of the request would stay open until a garbage collection.
                thrown = None
            try:
                await _wait(waits_for)
            except GeneratorExit:
                work.close()
                raise
            except BaseException as error:  # noqa: BLE001 - it is passed to the request
                thrown = error
            finally:
                waits_for = None  # this refers to the error, too

    async def _rest(self, account: _Account) -> None:
        if account.rested_at <= self._clock() and not account.turn.locked():
            return
        async with account.turn:
            # The next request checks the time after the following piece of work.
            await asyncio.sleep(max(0.0, account.rested_at - self._clock()))

    def _account(self, account_id: int) -> _Account:
        account = self._accounts.get(account_id)
        if account is None:
            self._forget()
            account = self._accounts[account_id] = _Account()
        return account

    def _count(self, account: _Account, seconds: float) -> None:
        if seconds < _SMALL_S and account.requests <= _FEW:
            return
        begin = max(account.rested_at, self._clock() - _CREDIT_S)
        account.rested_at = begin + (1 + REST) * seconds  # the work itself, and the pause

    def _forget(self) -> None:
        """Forget accounts whose pause is over, if there are many."""
        if len(self._accounts) >= _KEPT:
            now = self._clock()
            self._accounts = {
                number: each
                for number, each in self._accounts.items()
                if each.rested_at > now or each.requests
            }


@types.coroutine
def _wait(waits_for: Any) -> Generator[Any, Any, None]:
    """Wait for the awaitable that a piece of work has yielded to the event loop."""
    try:
        yield waits_for
    finally:
        del waits_for
