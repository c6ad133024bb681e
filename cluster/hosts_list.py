"""The list of hosts: this host's copy of it, joins, and an administrator's changes."""

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

_CHECK_S = 2.0


class HostsList:
    """The list of hosts, for one event loop.

    Args:
        data: the data folder.
        run_dir: the folder of sockets.
        changed: called after each change of the list.
        silent: returns the names of hosts without recent heartbeats.

    Attributes:
        known: the current list.

    Raises:
        SettingsError: the data folder belongs to no cluster.
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
            raise SettingsError(reason=f"the data folder {data} belongs to no cluster")
        self.known = known
        self._data, self._run_dir = data, run_dir
        self._changed, self._silent = changed, silent
        self._engine = Connection(endpoint_in(run_dir), "hosts")
        self._changes, self._requests, self._saves = asyncio.Lock(), asyncio.Lock(), asyncio.Lock()
        self._removed: set[str] = set()  # removed hosts whose engines were removed, too

    async def adopt(self, received: Membership) -> None:
        """Adopt the list of another host if it is newer."""
        if received.is_newer(self.known):
            await self._use(msgspec.structs.replace(received, me=self.known.me))

    def leave(self) -> None:
        """Store that this host was removed from the cluster. Then the node stops."""
        if self.known.me not in self.known.gone:
            self.known = msgspec.structs.replace(self.known, gone=(*self.known.gone, self.known.me))
            hosts_file.save(self._data, self.known)

    async def admit(self, question: dict[str, Any]) -> dict[str, Any]:
        """Answer the request of a host that wants to join."""
        if not (self.known.formed or self.known.is_founder):
            founder = self.known.hosts[0]
            where = f"{founder.address}:{founder.port}"
            return {
                "refused": f"the cluster has not formed yet: join at its first host "
                f"{founder.name}, {where}"
            }
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
            log.warning("host %s has joined the cluster", host.name)
        return answer

    async def change(self, question: dict[str, Any]) -> dict[str, Any]:
        """Change the list on behalf of an administrator.

        Args:
            question: `{"what": "drain" | "undrain" | "forget", "host": name}`, or
                `{"what": "pin", "host": name, "project": id, "gone": [ids]}`, or
                `{"what": "unpin", "project": id}`.

        Returns:
            `{"done": what}`, or `{"refused": reason}`.
        """
        what, name = question.get("what"), str(question.get("host"))
        if not self.known.formed:
            return {"refused": "the cluster has not formed yet: it has too few hosts"}
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
                case "pin":
                    project, gone = int(question.get("project", 0)), question.get("gone", ())
                    refused = await self._store(lambda last: last.pinned(project, name, gone))
                case "unpin":
                    project = int(question.get("project", 0))
                    refused = await self._store(lambda last: last.unpinned(project))
                case _:
                    refused = f"{what!r} is not a change of the list of hosts"
        if refused:
            return {"refused": refused}
        of = f"project {question['project']}" if "project" in question else f"host {name}"
        log.warning("an administrator has changed the cluster: %s %s", what, of)
        return {"done": what}

    async def maintain_replicas(
        self, up: Callable[[], tuple[str, ...]], leaves: Callable[[], bool]
    ) -> None:
        """Keep enough replicas of the streams, and give up the leadership of streams if this host
        leaves.

        Args:
            up: returns the hosts that may own projects. The first of them restores replicas.
            leaves: returns whether this host is drained or about to stop.
        """
        while True:
            await asyncio.sleep(_CHECK_S)
            own, there = self.known.me, up()
            if leaves():
                await self._call(lambda: _transfer_leadership(self._engine, self.known.me))
            elif there and there[0] == own and not self._silent():
                names = {host.name for host in self.known.hosts}
                refused = await self._call(partial(self._restore_replicas, names))
                if refused:
                    log.info("replicas of streams cannot be restored: %s", refused)

    async def _use(self, new: Membership) -> None:
        async with self._saves:  # several hosts send the same change at the same time
            if not new.is_newer(self.known):
                return
            await asyncio.to_thread(hosts_file.save, self._data, new)
            self.known = new
            self._changed()

    async def _store(self, make: Callable[[Membership], Membership]) -> str:
        """Change the list on all hosts; return an empty text, or the reason of a refusal."""
        made: list[Membership] = []
        refused = await self._call(
            lambda: made.append(changes.change(self._engine, self.known, make))
        )
        if not refused:
            await self._use(made[0])
        return refused

    async def _call(self, blocking: Callable[[], object]) -> str:
        """Run requests to the engine in a thread; return an empty text, or why they failed."""
        try:
            async with self._requests:  # because all requests share one connection
                await asyncio.to_thread(blocking)
        except NodeError as error:
            return str(error)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            return f"nats-server's answer has an unknown form: {error!r}"
        return ""

    def _restore_replicas(self, names: set[str]) -> None:
        for gone in set(self.known.gone) - self._removed:
            # The host that changed the list may have died before it removed the engine.
            self._remove_engine(gone)
        few = changes.restore_replicas(self._engine, names)
        if few:
            log.warning("%d streams have too few replicas and get new ones", few)

    def _remove_engine(self, name: str) -> None:
        admin = Connection(endpoint_in(self._run_dir, ADMIN), "hosts")
        try:
            changes.remove_engine(admin, name)
        finally:
            admin.close()
        self._removed.add(name)


def _with(last: Membership, host: Host) -> Membership:
    # Check against the latest list, because another host may have admitted a host meanwhile.
    refused = last.why_not(host)
    if refused:
        raise SettingsError(reason=refused)
    return last.joined(host)


def _transfer_leadership(connection: Connection, own: str) -> None:
    led = changes.transfer_leadership(connection, own)
    if led:
        log.info("transferred the leadership of %d streams to other hosts", led)
