"""A chain's monitors over a real registry, store and client, and a simulated project."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from fieldbrook.actors.wire import WireEvent
from fieldbrook.chain.monitors.service import MonitorService
from fieldbrook.chain.rpc.client import ChainClient
from fieldbrook.core.errors import NodeError
from fieldbrook.core.model import ADMIN, CHAIN_HEIGHT, CHAIN_TX, CONTRACT_LOG
from fieldbrook.core.settings import Chain
from fieldbrook.core.settings.chain import read_chain
from fieldbrook.gateway.links.pending_event import Settle
from fieldbrook.observability.health import ProcessHealth
from fieldbrook.storage.chain.store import ChainStore, Cursor
from fieldbrook.storage.registry.service import RegistryWriter, execute
from tests.chain.evm import CHAIN_ID
from tests.support.tools import LIMIT_S


async def eventually(condition: Callable[[], Any], what: str = "") -> Any:
    """Wait until a condition is true."""
    limit = asyncio.get_running_loop().time() + LIMIT_S
    while not (value := condition()):
        assert asyncio.get_running_loop().time() < limit, f"never happened: {what}"
        await asyncio.sleep(0.01)
    return value


class Registry:
    """The registry's writer as its clients see it."""

    def __init__(self, writer: RegistryWriter) -> None:
        self._writer = writer

    async def call(self, op: str, **arguments: Any) -> Any:
        return execute(self._writer, op, arguments)


class World:
    """One chain and one project. `handled` are the events that the project has run, without
    repeated ones; `sent` are all events that were sent."""

    def __init__(self, folder: Path, urls: Sequence[str], **settings: Any) -> None:
        self.folder = folder
        self.settings = {"poll_ms": 50, **settings}
        self.urls = tuple(urls)
        self.writer = RegistryWriter(
            folder / "registry", 16 << 20, lambda: 1_700_000_000_000, b"k" * 32
        )
        self.registry = Registry(self.writer)
        self.reader = self.writer.reader()
        account = self.writer.create_account("ada", "no password", ADMIN)
        self.project_id = self.writer.create_project(account.account_id, "p").project_id
        self.sent: list[WireEvent] = []
        self.handled: list[WireEvent] = []
        self._known: dict[str, bytes] = {}
        self.refuse: Callable[[WireEvent], NodeError | None] = lambda _event: None
        self.silent = False
        self.health = ProcessHealth()
        self.client_options: dict[str, Any] = {}

    @property
    def chain(self) -> Chain:
        return read_chain({"id": CHAIN_ID, "name": "dev", "endpoints": self.urls, **self.settings})

    @contextlib.asynccontextmanager
    async def running(self, *, killed: bool = False) -> AsyncIterator[MonitorService]:
        """Run the service as in a process of its own; a killed service writes nothing more."""
        self.store = ChainStore(self.folder / "chain", 64 << 20)
        self.client = ChainClient(CHAIN_ID, self.chain.urls, **self.client_options)
        service = MonitorService(self)
        await service.start()
        try:
            yield service
        finally:
            if killed:
                service._progress.flush = lambda **_now: None  # type: ignore[method-assign]
            await service.stop()
            await self.client.close()
            self.store.close()

    def submit(self, _project_id: int, event: WireEvent, settle: Settle) -> None:
        self.sent.append(event)
        error = self.refuse(event)
        if error is not None:
            settle(error)
        elif not self.silent:
            if self._known.setdefault(event[2], event[3]) is event[3]:
                self.handled.append(event)
            assert self._known[event[2]] == event[3], "the same event says something else"
            settle(())

    # ---------------------------------------------------------------- monitors

    def logs(self, address: str, topics: Sequence[str] = (), first: int = 1, **more: Any) -> int:
        """Watch a contract; return the monitor's id."""
        four = [*topics, *[""] * (4 - len(topics))]
        made = self.writer.create_monitor(
            **{
                "project_id": self.project_id,
                "kind": CONTRACT_LOG,
                "chain_id": CHAIN_ID,
                "event_type": "SEEN",
                "address": address,
                "topics": four,
                "block_start": first,
                **more,
            }
        )
        return made.monitor_id

    def transaction(self, tx_hash: str) -> int:
        """Watch a transaction."""
        made = self.writer.create_monitor(
            self.project_id, CHAIN_TX, CHAIN_ID, "MINED", tx_hash=tx_hash
        )
        return made.monitor_id

    def height(self, height: int) -> int:
        """Watch a height."""
        made = self.writer.create_monitor(
            self.project_id, CHAIN_HEIGHT, CHAIN_ID, "HIGH", height=height
        )
        return made.monitor_id

    def finished(self, monitor_id: int) -> bool:
        """Return whether a monitor has reported everything."""
        monitor = self.reader.monitor(monitor_id)
        return monitor is not None and monitor.finished

    def cursor(self, monitor_id: int) -> Cursor:
        found = self.store.cursor(monitor_id)
        assert found is not None
        return found

    # ---------------------------------------------------------------- what the project saw

    def numbers(self, event_type: str = "SEEN") -> list[int]:
        """Return the first indexed argument of each handled log, in order."""
        return [int(log["topics"][1], 16) for log in self.payloads(event_type)]

    def payloads(self, event_type: str = "SEEN") -> list[Any]:
        return [json.loads(event[3]) for event in self.handled if event[0] == event_type]

    def ids(self) -> Counter[str]:
        return Counter(event[2] for event in self.handled)


def world_over(folder: Path, *chains: Any, **settings: Any) -> World:
    """Make a world with these endpoints."""
    urls = [f"http://e{n}.example" for n in range(len(chains))]
    world = World(folder, urls, **settings)
    by_url = dict(zip(urls, chains, strict=True))
    world.client_options = {"transport": by_url.__getitem__, "probe_s": 0.05}
    return world
