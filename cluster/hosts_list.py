"""The list of hosts as this host knows it, and the changes that it makes for others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from fieldbrook.cluster import changes, hosts_file, joining
from fieldbrook.core.cluster.membership import Host, Membership
from fieldbrook.core.errors import NodeError, SettingsError
from fieldbrook.storage.replication.connection import Connection
from fieldbrook.storage.replication.endpoint import ADMIN, endpoint_in

log = logging.getLogger(__name__)

_COPIES_S = 2.0


class HostsList:
    """See the module. It is used in one event loop.

    Args:
        data: the data folder.
        run_dir: the folder of sockets.
        changed: called after each change of the list.
        silent: returns the hosts that are not heard.

    Attributes:
        known: the list.

    Raises:
        SettingsError: the data folder is in no cluster.
    """

    def __init__(
        self,
        data: Path,
        run_dir: Path,
        changed: Callable[[], None],
        silent: Callable[[], list[str]],
    ) -> None:
        known = hosts_file.load(data)
        if known is None:
            raise SettingsError(reason=f"{data} is in no cluster")
        self.known = known
        self._data, self._run_dir = data, run_dir
        self._changed, self._silent = changed, silent
        self._engine = Connection(endpoint_in(run_dir), "hosts")
        self._changes, self._asks, self._saves = asyncio.Lock(), asyncio.Lock(), asyncio.Lock()
        self._removed: set[str] = set()  # hosts that the engines have forgotten

    async def learn(self, told: Membership) -> None:
        """Use the list of another host if it is newer."""
        if told.is_newer(self.known):
            await self._use(msgspec.structs.replace(told, me=self.known.me))

    def leave(self) -> None:
        """Note that this host was removed; the node ends then."""
        if self.known.me not in self.known.gone:
            self.known = msgspec.structs.replace(self.known, gone=(*self.known.gone, self.known.me))
            hosts_file.save(self._data, self.known)

    async def admit(self, question: dict[str, Any]) -> dict[str, Any]:
        """Answer a host that wants to join."""
        if not (self.known.formed or self.known.is_founder):
            founder = self.known.hosts[0]
            where = f"{founder.address}:{founder.port}"
            return {"refused": f"hosts join at {founder.name}, which is at {where}"}
        async with self._changes:  # two hosts may join at the same time
            answer, joined = joining.admit(self._data, self.known, question)
            if joined == self.known:
                return answer
            host = joined.hosts[-1]
            if self.known.formed:
                refused = await self._store(lambda last: _with(last, host))
                if refused:
                    return {"refused": refused}
                answer["membership"] = msgspec.to_builtins(self.known)
            else:
                await self._use(joined)
            log.warning("host %s has joined", host.name)
        return answer

    async def change(self, question: dict[str, Any]) -> dict[str, Any]:
        """Change the list for an administrator: `what` is to be done with `host`."""
        what, name = question.get("what"), str(question.get("host"))
        if not self.known.formed:
            return {"refused": "the cluster has too few hosts yet"}
        async with self._changes:
            match what:
                case "drain":
                    refused = await self._store(lambda last: last.without_projects(name))
                case "undrain":
                    refused = await self._store(lambda last: last.with_projects(name))
                case "forget":
                    silent = self._silent()
                    refused = await self._store(lambda last: last.removed(name, silent))
                    refused = refused or await self._call(lambda: self._remove_engine(name))
                case _:
                    refused = f"{what!r} is no change of the list of hosts"
        if refused:
            return {"refused": refused}
        log.warning("host %s: %s", name, what)
        return {"done": what}

    async def keep_copies(
        self, up: Callable[[], tuple[str, ...]], leaves: Callable[[], bool]
    ) -> None:
        """Keep enough copies of the streams, and lead none on a host that is about to leave.

        Args:
            up: returns the hosts to which projects belong.
            leaves: returns whether this host is drained or about to stop.
        """
        while True:
            await asyncio.sleep(_COPIES_S)
            own, there = self.known.me, up()
            if leaves():
                await self._call(lambda: _hand_leads_over(self._engine, self.known.me))
            elif there and there[0] == own and not self._silent():
                names = {host.name for host in self.known.hosts}
                refused = await self._call(partial(self._restore_copies, names))
                if refused:
                    log.info("copies of streams are not restored: %s", refused)

    async def _use(self, new: Membership) -> None:
        async with self._saves:  # several hosts tell the same change at the same time
            if not new.is_newer(self.known):
                return
            await asyncio.to_thread(hosts_file.save, self._data, new)
            self.known = new
            self._changed()

    async def _store(self, make: Callable[[Membership], Membership]) -> str:
        """Change the list on all hosts; returns why that was refused, else nothing."""
        made: list[Membership] = []
        refused = await self._call(
            lambda: made.append(changes.change(self._engine, self.known, make))
        )
        if not refused:
            await self._use(made[0])
        return refused

    async def _call(self, blocking: Callable[[], object]) -> str:
        """Run what asks the engine in a thread; returns why it failed, else nothing."""
        try:
            async with self._asks:  # there is one connection
                await asyncio.to_thread(blocking)
        except NodeError as error:
            return str(error)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            return f"the engine's answer has another form: {error!r}"
        return ""

    def _restore_copies(self, names: set[str]) -> None:
        for gone in set(self.known.gone) - self._removed:
            self._remove_engine(gone)  # the host that has removed it may have died before that
        few = changes.restore_copies(self._engine, names)
        if few:
            log.warning("%d streams get another copy", few)

    def _remove_engine(self, name: str) -> None:
        admin = Connection(endpoint_in(self._run_dir, ADMIN), "hosts")
        try:
            changes.remove_engine(admin, name)
        finally:
            admin.close()
        self._removed.add(name)


def _with(last: Membership, host: Host) -> Membership:
    refused = last.why_not(host)  # another host may have joined at another one meanwhile
    if refused:
        raise SettingsError(reason=refused)
    return last.joined(host)


def _hand_leads_over(connection: Connection, own: str) -> None:
    led = changes.hand_leads_over(connection, own)
    if led:
        log.info("other hosts lead %d streams that this one has led", led)
