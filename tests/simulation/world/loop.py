"""The event loop of a simulated gateway: asyncio's interface over the machine's clock."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any

from tests.simulation.world.machine import Machine, Process, UnexpectedError
from tests.simulation.world.network import Network, Transport


def finish(future: asyncio.Future[None]) -> None:
    """Set the result of a future unless it was cancelled."""
    if not future.cancelled():
        future.set_result(None)


class SimulatedLoop(asyncio.AbstractEventLoop):
    """The functions of an event loop that gateways use."""

    def __init__(self, machine: Machine, network: Network, process: Process) -> None:
        self._machine = machine
        self._network = network
        self._process = process

    def time(self) -> float:
        return self._machine.now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return not self._process.alive

    # ---------------------------------------------------------------- calls

    def step(self, call: Callable[[], object]) -> None:
        """Make a call as a step of this loop, at once."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            call()
        finally:
            asyncio._set_running_loop(before)

    def _run(self, handle: asyncio.Handle) -> None:
        if not handle.cancelled():
            self.step(handle._run)

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._machine.at(0.0, self._process, lambda: self._run(handle))
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        late = max(0.0, when - self._machine.now)
        self._machine.at(late, self._process, lambda: self._run(handle))
        return handle

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Part of asyncio's own protocol; a cancelled handle is skipped when its time comes."""

    # ---------------------------------------------------------------- tasks

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name=name or "task")
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # its process may be killed
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if self._process.alive:
            failure = UnexpectedError(f"{self._process.name}: {context['message']}: {error!r}")
            failure.__cause__ = error
            self._machine.fail(failure)

    # ---------------------------------------------------------------- sockets

    async def create_unix_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.Protocol], path: str
    ) -> tuple[Transport, asyncio.Protocol]:
        await self._sleep(self._machine.delay())
        link = self._network.connect(self._process, path, self.step)
        protocol = protocol_factory()
        transport = link.attach(protocol)
        self.call_soon(protocol.connection_made, transport)
        await self._sleep(0.0)
        return transport, protocol

    async def _sleep(self, seconds: float) -> None:
        done = self.create_future()
        self.call_later(seconds, finish, done)
        await done
