"""The process that connects a host with the other hosts: heartbeats, joins, routes, tunnels."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from fieldbrook.actors import messages as m
from fieldbrook.actors.remote_path import HOSTS
from fieldbrook.actors.runtime import Address, NodeActor
from fieldbrook.cluster import joining
from fieldbrook.cluster.hosts_list import HostsList
from fieldbrook.cluster.identity import Identity, name_of
from fieldbrook.cluster.links.lines import LINE_BYTES, LineError, receive, send
from fieldbrook.cluster.links.listening import Listening
from fieldbrook.cluster.links.routes import Peer, Routes
from fieldbrook.cluster.links.tunnels import Streams, Tunnels
from fieldbrook.cluster.watch.watch import Watch
from fieldbrook.core.cluster.membership import QUORUM_HOSTS, Host, Membership
from fieldbrook.core.cluster.newcomers import Newcomers
from fieldbrook.core.cluster.placement import project_home
from fieldbrook.core.cluster.running import RunningProjects
from fieldbrook.core.errors import NodeError
from fieldbrook.observability import metrics_table, node_log
from fieldbrook.system.kernel import name_process

log = logging.getLogger(__name__)

PART = "cluster"
BEAT_S = 0.25
_CHECK_S = 0.1
_DIAL_S = 2.0
_REDIAL_S = 0.25
_FIRST_LINE_S = 10.0
_LAST_ANSWERS_S = 1.0
_UNAUTHENTICATED = 64  # limit of concurrent connections without a host's certificate


class ClusterActor(NodeActor):
    """Connects this host with the other hosts of its cluster."""

    def __init__(self) -> None:
        super().__init__()
        self._peers: dict[str, Peer] = {}
        self._routes = Routes(self.post)
        self._up: tuple[str, ...] = ()
        self._pins: tuple[tuple[int, str], ...] = ()
        self._newcomers = Newcomers()
        self._behind: frozenset[str] = frozenset()  # see `core.cluster.newcomers`
        self._running = RunningProjects()
        self._is_written = False  # whether the file for the gateways is up to date
        self._leaving: tuple[str, ...] = ()
        self._draining = False
        self._unauthenticated = 0  # open connections without a host's certificate
        self._has_tunnels = False
        self._list_changed = asyncio.Event()

    # ---------------------------------------------------------------- control, main thread

    def receive(self, message: object, sender: Address) -> None:
        """See `actors.messages`."""
        routes = self._routes
        match message:
            case m.Start():
                self._start(message, sender)
            case m.Ping(number=number):
                pong = m.Ponged(PART, number)
                self._in_loop(lambda: self.post(pong))
            case m.ProjectRuns():
                self._in_loop(lambda: self._announce_running(message))
            case m.ActivateOn(host=host):
                self._in_loop(lambda: routes.ask(self._peers.get(host), message))
            case m.RouteTo(project_id=project_id, path=path, alone=alone):
                socket = None if path is None else Path(path).name
                self._in_loop(
                    lambda: routes.answer(project_id, {"route": [project_id, socket, alone]})
                )
            case m.NotHome(project_id=project_id):
                self._in_loop(lambda: routes.refuse_later(project_id))
            case m.Unreachable(project_id=project_id):
                self._in_loop(lambda: routes.answer(project_id, {"unreachable": project_id}))
            case m.QuotaReached(project_id=project_id, limit=limit):
                self._in_loop(lambda: routes.answer(project_id, {"quota": [project_id, limit]}))
            case m.DropProject(project_id=project_id):
                self._in_loop(lambda: routes.answer(project_id, {"dropped": project_id}))
            case m.Booted():
                self._in_loop(self._serve_projects)
            case m.Drain():
                self._in_loop(self._drain)
            case m.DeliverOutbox() | m.HealthChanged():
                pass  # only gateways need these messages
            case _:
                self.unexpected(message, sender)

    def posted(self, message: object) -> None:
        """Forward a message from the loop's thread to the supervisor."""
        self.send(self._supervisor, message)

    def stopping(self) -> None:
        """Exit after the workers of this host, because the tunnels carry their last answers."""
        if self._has_tunnels:
            ended = asyncio.run_coroutine_threadsafe(self._tunnels.ended(), self._loop)
            with contextlib.suppress(TimeoutError):
                ended.result(_LAST_ANSWERS_S)

    def _start(self, start: m.Start, sender: Address) -> None:
        name_process(f"fb-{PART}")
        node_log.name(start.part)
        metrics_table.attach(start.slot)
        self._supervisor, self._generation = sender, start.generation
        self._settings, self._run_dir = start.settings, start.run_dir
        self.accept_posts()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._run_loop, name="loop", daemon=True).start()

    def _in_loop(self, call: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(call)

    # ---------------------------------------------------------------- the loop's thread

    def _run_loop(self) -> None:
        try:
            self._loop.run_until_complete(self._main())
        except BaseException:
            log.exception("the loop of the connections to other hosts failed")
        os._exit(70)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            await self._open()
        except (NodeError, OSError) as error:
            self.post(m.Failed(PART, str(error)))
            await asyncio.Event().wait()  # until the supervisor ends this process
        began, beat_at, ready = self._loop.time(), 0.0, False
        while True:
            now = self._loop.time()
            if now >= beat_at:
                beat_at = now + BEAT_S
                self._beat()
            if not ready and not self._awaits_others(now - began):
                ready = True
                self.post(m.Ready(PART, self._generation, os.getpid()))
            if ready:
                self._check_hosts()
                if (found := self._watch.check(self._known)) is not None:
                    self.post(m.ClusterConditions(found))
            await asyncio.sleep(_CHECK_S)

    async def _open(self) -> None:
        data = self._settings.data
        self._list = HostsList(
            *(data, self._run_dir, self._on_list, lambda: [o.host.name for o in self._silent()])
        )
        known = self._known
        self._identity = Identity(data)
        self._context = self._identity.client_context()
        self._watch = Watch(data, self._run_dir, self._settings.silence_ms / 1_000)
        self._tunnels = Tunnels(self._run_dir, self._open_tunnel)
        await self._tunnels.open()
        self._has_tunnels = True
        myself = known.myself
        listening = Listening(
            self._identity.server_context(), _FIRST_LINE_S, self._is_address, self._serve
        )
        await listening.open(self._settings.cluster_bind or myself.address, myself.port)
        self._listening = listening
        if known.formed:
            self._replicas = self._loop.create_task(
                self._list.maintain_replicas(
                    lambda: self._up, lambda: self._leaves(known.me, self._draining)
                )
            )
        self._dial_new()
        if not known.formed:
            wanted = QUORUM_HOSTS - len(known.hosts)
            log.warning(
                "this node works alone until %d more hosts join; on each of them run "
                "fieldbrook up --data DATA --cluster-bind ADDRESS --join %s:%d --join-token %s",
                *(wanted, myself.address, myself.port, self._identity.token()),
            )

    def _is_address(self, address: str) -> bool:
        """Return whether a host has this address."""
        return any(host.address == address for host in self._known.hosts)

    @property
    def _known(self) -> Membership:
        return self._list.known

    def _on_list(self) -> None:
        """Apply a change of the list of hosts, and send the list to the other hosts."""
        for name in self._known.gone:
            other = self._peers.pop(name, None)
            if other is not None and other.task is not None:
                other.task.cancel()
        self._dial_new()
        self._is_written = False
        self._list_changed.set()
        self._list_changed = asyncio.Event()
        for other in self._peers.values():
            other.send({"membership": msgspec.to_builtins(self._known)})

    # ---------------------------------------------------------------- other hosts

    def _dial_new(self) -> None:
        if not self._known.formed:
            return
        for host in self._known.others:
            if host.name not in self._peers:
                other = self._peers[host.name] = Peer(host)
                other.task = self._loop.create_task(self._stay_connected(other))

    async def _stay_connected(self, other: Peer) -> None:
        """Keep a connection to another host, on which this host sends its heartbeats."""
        while True:
            with contextlib.suppress(OSError, LineError, ssl.SSLError, TimeoutError):
                async with asyncio.timeout(_DIAL_S):
                    reader, writer = await self._dial(other.host)
                    send(writer, {"op": "link", "from": self._known.me})
                    # The other host may have missed changes of the list.
                    send(writer, {"membership": msgspec.to_builtins(self._known)})
                    for message in self._running.messages():
                        send(writer, message)
                        await writer.drain()
                other.writer = writer
                try:
                    while True:
                        answer = await receive(reader, 3_600)
                        if answer.get("removed") == self._known.me:
                            self._list.leave()
                        else:
                            self._routes.answered(other, answer)
                finally:
                    other.writer = None
                    writer.transport.abort()
                    self._routes.lost(other)
            await asyncio.sleep(_REDIAL_S)

    async def _dial(self, host: Host) -> Streams:
        return await asyncio.open_connection(
            host.address, host.port, ssl=self._context, limit=LINE_BYTES
        )

    async def _open_tunnel(self, name: str, socket: str) -> Streams:
        other = self._peers.get(name)
        if other is None or name not in (*self._up, *self._leaving):
            raise OSError(f"host {name} is not up")
        async with asyncio.timeout(_DIAL_S):
            streams = await self._dial(other.host)
        send(streams[1], {"op": "tunnel", "socket": socket})
        return streams

    def _serve_projects(self) -> None:
        """Let this host own projects, because its start does not use processor time any more."""
        self._watch.serves = True

    def _drain(self) -> None:
        """Announce the stop, so that the other hosts take over the projects at once, without a
        timeout."""
        self._draining = True
        self._beat()
        self.post(m.Drained())

    def _beat(self) -> None:
        for other in self._peers.values():
            other.send(self._watch.beat(other.host.name, draining=self._draining))

    def _awaits_others(self, since_s: float) -> bool:
        """Return whether this host has just started, and may still get first heartbeats.

        Otherwise it would find no other host up, and take over all projects of the others.
        """
        is_early = since_s <= self._settings.silence_ms / 1_000
        return is_early and any(other.heard < 0 for other in self._peers.values())

    def _check_hosts(self) -> None:
        """Report to the supervisor which hosts are up, silent or leaving."""
        silent = self._silent()
        there = [o for o in self._peers.values() if o not in silent]
        behind = self._find_behind(there)
        self._is_written &= behind == self._behind
        self._behind = behind
        leaves = {o.host.name: self._leaves(o.host.name, o.beat.get("draining")) for o in there}
        leaves[self._known.me] = self._leaves(self._known.me, self._draining)
        stay = sorted(name for name, is_leaving in leaves.items() if not is_leaving)
        up = tuple(name for name in stay if name not in behind) or tuple(stay)
        leaving = tuple(o.host.name for o in there if o.host.name not in up)
        pins = self._known.pins
        if (up, leaving, pins) == (self._up, self._leaving, self._pins):
            if not self._is_written:
                self._write_hosts(silent)
            return
        undelivered: list[int] = []
        for other in silent:
            if other.host.name in (*self._up, *self._leaving):
                log.warning("host %s is silent: it sends no heartbeats", other.host.name)
                undelivered += self._running.forget(other.host.name)
                self._tunnels.drop(other.host.name)
                other.drop()
        for name in set(up) - set(self._up) - {self._known.me}:
            log.info("host %s is up", name)
        self._up, self._leaving, self._pins = up, leaving, pins
        self._write_hosts(silent)
        own = self._known.me
        alone = self._is_alone(there)
        self.post(m.HostsUp(own, up or (own,), leaving, tuple(undelivered), alone, dict(pins)))

    def _find_behind(self, there: list[Peer]) -> frozenset[str]:
        """Return the hosts whose engines must catch up before the hosts may own projects."""
        alone = self._is_alone(there)
        ready = {self._known.me: self._watch.is_ready(self._known, alone=alone)}
        ready.update((o.host.name, bool(o.beat.get("ready", True))) for o in there)
        return self._newcomers.update({} if alone else ready)

    def _is_alone(self, there: list[Peer]) -> bool:
        """Return whether this host and the hosts that are up are less than a majority."""
        return 2 * (len(there) + 1) <= len(self._known.hosts)

    def _silent(self) -> list[Peer]:
        now = self._loop.time()
        limit_s = self._settings.silence_ms / 1_000
        return [other for other in self._peers.values() if now - other.heard > limit_s]

    def _leaves(self, name: str, stops: bool | None) -> bool:
        """Return whether a host may own no projects, because it is drained or about to stop."""
        return bool(stops) or name in self._known.drained

    def _write_hosts(self, silent: list[Peer]) -> None:
        """Write the file from which the gateways of this host read hosts and owners."""
        names = {other.host.name for other in silent}
        hosts = [
            {
                "name": host.name,
                "address": f"{host.address}:{host.port}",
                "state": self._state(host.name, names),
            }
            for host in self._known.hosts
        ]
        owners = list(self._up) if self._known.formed else []
        pins = dict(self._known.pins)
        elsewhere = {
            str(project_id): host or self._known.me
            for project_id, host in self._running.hosts()
            if owners and project_home(project_id, owners, pins) != (host or self._known.me)
        }
        self._is_written = True
        new = self._run_dir / f".{HOSTS}"
        known = {
            "me": self._known.me,
            "hosts": hosts,
            "owners": owners,
            "elsewhere": elsewhere,
            "pins": pins,
        }
        new.write_text(json.dumps(known), "utf-8")
        new.replace(self._run_dir / HOSTS)

    def _state(self, name: str, silent: set[str]) -> str:
        if not self._known.formed:
            return "waiting"
        if name in silent:
            return "silent"
        if name in self._known.drained:
            return "drained"
        return "catching_up" if name in self._behind else "up"

    # ---------------------------------------------------------------- connections from others

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = name_of(writer.get_extra_info("peercert"))
        member = name is not None and any(host.name == name for host in self._known.hosts)
        self._unauthenticated += not member
        try:
            if name in self._known.gone:
                send(writer, {"removed": name})
                await writer.drain()
            elif member or self._unauthenticated <= _UNAUTHENTICATED:
                question = await receive(reader, _FIRST_LINE_S)
                await self._answer_first(question, (reader, writer), name if member else None)
        except (LineError, NodeError, OSError, msgspec.ValidationError) as error:
            log.info("a connection from another host ended: %s", error)
        finally:
            self._unauthenticated -= not member
            writer.close()

    async def _answer_first(
        self, question: dict[str, Any], streams: Streams, name: str | None
    ) -> None:
        writer = streams[1]
        match question.get("op"):
            case "authority":
                send(writer, {"authority": self._identity.shared()["ca.pem"].decode()})
            case "join":
                send(writer, await self._list.admit(question))
            case "change" if self._knows(name):
                send(writer, await self._list.change(question))
            case "hosts" if self._knows(name):
                await self._await_more_hosts(question.get("more_than"))
                send(writer, {"membership": msgspec.to_builtins(self._known)})
            case "tunnel" if self._knows(name):
                await self._tunnels.accept(str(question.get("socket")), streams)
                return
            case "link" if name is not None and name in self._peers:
                await self._read_messages(self._peers[name], streams)
                return
            case _:
                reason = "the sender is not in the list of hosts, or the request is unknown"
                send(writer, {"refused": reason})
        await writer.drain()

    async def _await_more_hosts(self, than: object) -> None:
        """Wait until the cluster has more hosts than `than`: another host waits for the cluster to
        form."""
        if isinstance(than, int):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(joining.FORMED_S):
                    while len(self._known.hosts) <= than:
                        await self._list_changed.wait()

    def _knows(self, name: str | None) -> bool:
        """Return whether a host is in the list. The check is needed because a removed host still
        has a valid certificate."""
        return any(host.name == name for host in self._known.hosts)

    async def _read_messages(self, other: Peer, streams: Streams) -> None:
        """Process the messages of another host until its connection ends."""
        reader, writer = streams
        if other.incoming is not None:
            other.incoming.transport.abort()  # the host has opened a new connection
        other.incoming = writer
        while True:
            message = await receive(reader, 3_600)
            if "beat" in message:
                other.heard = self._loop.time()
                other.beat = message["beat"]
                self._watch.heard(other.host.name, other.beat)
            elif "membership" in message:
                await self._list.adopt(msgspec.convert(message["membership"], Membership))
            elif (change := self._running.take(other.host.name, message)) is not None:
                self._is_written = False
                self.post(m.RunsOn(other.host.name, change.started, change.ended, change.replaces))
            elif "activate" in message:
                self._routes.asked(other.host.name, writer, message["activate"])

    # ---------------------------------------------------------------- where projects run

    def _announce_running(self, told: m.ProjectRuns) -> None:
        if told.runs:
            self._routes.is_here(told.project_id)
        message = self._running.note(told.project_id, runs=told.runs, sends=told.sends)
        self._is_written = False
        for other in self._peers.values():
            other.send(message)
