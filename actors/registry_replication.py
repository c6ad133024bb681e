"""The part of the registry's actor that a cluster needs: finding the host that changes the
registry, and repeating its changes on the other hosts.

One host owns the registry. The others forward commands to it and repeat its changes. A command is
answered when each host has repeated its change, or has no lease of its copy any more. So a request
that is sent to any host after the answer sees the change, or is refused.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from fieldbrook.actors import messages as m
from fieldbrook.actors.frame_server import Connection
from fieldbrook.actors.remote_path import remote_path, split_path
from fieldbrook.actors.seeding import create_streams, seed
from fieldbrook.actors.wire import FrameReader, frame, pack, unpack
from fieldbrook.core.cluster import placement
from fieldbrook.core.errors import (
    JournalDamagedError,
    NodeError,
    OutcomeUnknownError,
    StoreError,
    UnavailableError,
    to_wire,
)
from fieldbrook.core.settings import Settings
from fieldbrook.observability import metrics
from fieldbrook.storage.registry.lease import LEASE_S, Lease, lease_clock
from fieldbrook.storage.registry.replica import is_seeded
from fieldbrook.storage.registry.service import Module, RegistryWriter
from fieldbrook.storage.replication import connection as engine
from fieldbrook.storage.replication import snapshots
from fieldbrook.storage.replication.endpoint import endpoint_in
from fieldbrook.storage.replication.leases import positions
from fieldbrook.storage.replication.snapshots import download_module, upload_module
from fieldbrook.storage.replication.streams import project_subject
from fieldbrook.wasm.ahead import AheadCompiler
from fieldbrook.wasm.limits import Limits

log = logging.getLogger(__name__)

SYNC = "_sync"
"""The request of the registry's owner to another host: repeat all changes, then answer."""
FORWARDED = "_forwarded"
"""The last item of a command that another host has forwarded."""
SOCKET = "registry"
_HEX = frozenset("0123456789abcdef")
_DIGEST_CHARS = 64
TICK_S = 0.25
_SPREAD_S = 0.05
_ANSWER_S = 25.0  # 10 s until a change is stored, `LEASE_S` until all hosts repeat it
_SYNC_S = 1.0
_RENEW_S = 1.0
_SEED_POLL_S = 0.1
_REMOVE_AFTER_S = 30.0  # a removed project's host writes a last record when the project ends


class RegistryReplication:
    """See the module. Unless stated otherwise, call the methods in the registry's data thread.

    Args:
        settings: the settings of the node.
        run_dir: the folder of sockets.
        host: the name of this host.
        writer: the registry.
        is_founder: whether this host founded the cluster.
        post: sends a message to the supervisor.

    Attributes:
        damage: why the stream of the registry cannot be read; empty if it can be read.
    """

    def __init__(
        self,
        settings: Settings,
        run_dir: Path,
        host: str,
        writer: RegistryWriter,
        is_founder: bool,
        post: Callable[[object], None],
    ) -> None:
        self._settings, self._run_dir, self._host = settings, run_dir, host
        self._writer, self._is_founder, self._post = writer, is_founder, post
        self._engine = engine.Connection(endpoint_in(run_dir), "registry")
        self._replica = writer.replicate(self._engine, host)
        self._modules = settings.data / "modules"
        limits = Limits(deadline_ms=settings.deadline_ms, memory_bytes=settings.memory_limit_bytes)
        self._compiler = AheadCompiler(self._modules, limits)
        self._hosts: tuple[str, ...] = ()
        self._there: tuple[str, ...] = ()  # hosts that are up, including drained ones
        self._peers: dict[str, _Peer] = {}
        self._commands: collections.deque[tuple[Connection, list[Any]]] = collections.deque()
        self._wake = threading.Condition()
        self._next_try = self._next_renewal = 0.0
        self._lease = Lease(run_dir)
        self._leases: dict[str, _Seen] = {}
        self._removed: collections.deque[tuple[float, int]] = collections.deque()
        self.damage = ""

    def open(self) -> None:
        """Bring this host's registry up to date; wait for the founder if necessary.

        A host that has a copy does not wait for a quorum. Without a quorum no host changes the
        registry; later `tick` repeats the changes that this copy lacks.

        Raises:
            StoreError: the hosts have no quorum.
        """
        threading.Thread(target=self._forward, name="forward", daemon=True).start()
        if self._replica.number():
            self._remember_modules()
            with contextlib.suppress(StoreError):
                self._renew()
            return
        create_streams(self._engine)
        if self._is_founder and not is_seeded(self._engine):
            seed(self._settings, self._writer, self._engine, self._host)
        while not is_seeded(self._engine):
            time.sleep(_SEED_POLL_S)
        self._catch_up()

    def _remember_modules(self) -> None:
        """Check for all modules: the process may have died between a change and its module."""
        reader = self._writer.reader()
        self._replica.repeated.modules.update(one.sha256 for one in reader.resources())

    def on_hosts(self, hosts: m.HostsUp) -> None:
        """Set the hosts that are up; thread-safe."""
        self._hosts, self._there = hosts.hosts, (*hosts.hosts, *hosts.leaving)

    @property
    def is_owner(self) -> bool:
        """Whether this host changes the registry."""
        return self._replica.is_owner

    @property
    def owner(self) -> str:
        """The host that changes the registry; empty while no host is known."""
        return placement.home(placement.REGISTRY, self._hosts) if self._hosts else ""

    def take(self, connection: Connection, request: list[Any]) -> bool:
        """Handle a request if another host has to carry it out; return whether it was handled."""
        if request[0] == SYNC:
            connection.answer(self._synced())
            return True
        try:
            self._share_modules(request[1])
        except NodeError as error:
            connection.answer((False, *to_wire(error)))
            return True
        if self._is_mine():
            return False
        if request[-1] == FORWARDED:
            split = UnavailableError(what="the hosts do not agree yet who changes the registry")
            connection.answer((False, *to_wire(split)))
            return True
        with self._wake:
            self._commands.append((connection, request))
            self._wake.notify()
        return True

    def _share_modules(self, arguments: dict[str, Any]) -> None:
        """Copy the modules that a command names to all hosts before the command is stored.

        The host that received the upload has the file; the host that carries the command out reads
        it from the stream.
        """
        for sha256 in digests_in(arguments):
            path = self._modules / f"{sha256}.wasm"
            if path.exists():
                upload_module(self._engine, sha256, path)
            else:
                download_module(self._engine, sha256, path)

    def _is_mine(self) -> bool:
        if self.owner != self._host:
            return False
        if not self._replica.is_owner:
            try:
                self._replica.take_over()
                self._follow_up()
            except NodeError as error:
                log.warning("the registry is not taken over: %s", error)
                return False
            log.info("this host changes the registry now")
        return True

    def tick(self) -> None:
        """Once in `_RENEW_S`: renew the lease of this copy, and repeat the changes that it lacks.

        No command waits for this, because the owner asks all hosts to repeat a change before it
        answers.
        """
        if time.monotonic() < self._next_try or not self._is_renewal_due():
            return
        try:
            self._renew()
            if self._replica.is_owner:
                self._note_leases()
                if self.owner == self._host:
                    self._remove_projects()
            self.damage = ""
        except StoreError as error:
            self.damage = str(error) if isinstance(error, JournalDamagedError) else ""
            self._next_try = time.monotonic() + 1.0
            log.info("the registry does not follow: %s", error)

    def remove_project(self, project_id: int) -> None:
        """Remove the records of a removed project after its host has closed it."""
        self._removed.append((time.monotonic() + _REMOVE_AFTER_S, project_id))

    def _remove_projects(self) -> None:
        while self._removed and self._removed[0][0] <= time.monotonic():
            _, project_id = self._removed.popleft()
            try:
                snapshots.remove_project(self._engine, project_subject(project_id))
            except NodeError as error:
                log.info("project %d stays in the streams for now: %s", project_id, error)
                self.remove_project(project_id)
                return

    def _catch_up(self) -> None:
        self._replica.catch_up()
        self._follow_up()

    def _is_renewal_due(self) -> bool:
        return time.monotonic() >= self._next_renewal

    def _renew(self) -> None:
        self._replica.renew(self._lease)
        self._follow_up()
        self._next_renewal = time.monotonic() + _RENEW_S

    def _follow_up(self) -> None:
        """Carry out the consequences of repeated changes; failed ones are tried again next time."""
        metrics.put(metrics.REGISTRY_POSITION, self._replica.number())
        repeated = self._replica.repeated
        while repeated.removed:
            self._post(m.ProjectRemoved(repeated.removed.pop()))
        for sha256 in list(repeated.modules):
            path = self._modules / f"{sha256}.wasm"
            if not path.exists():
                download_module(self._engine, sha256, path)
            self._compiler.add(sha256)
            repeated.modules.discard(sha256)

    def _synced(self) -> tuple[Any, ...]:
        try:
            self._catch_up()
        except NodeError as error:
            return (False, *to_wire(error))
        return True, self._replica.number()

    # ---------------------------------------------------------------- the owner

    def spread(self) -> None:
        """Wait until each host has repeated the last change, or has no lease of its copy."""
        number, deadline = self._replica.number(), lease_clock() + LEASE_S
        metrics.put(metrics.REGISTRY_POSITION, number)
        done = {self._host}
        while True:
            done.update(
                host for host in self._there if host not in done and self._has(host, number)
            )
            if done.issuperset(self._there) and self._none_has_lease_but(done):
                return
            if lease_clock() > deadline:
                return  # a host with a newer lease has the change
            with contextlib.suppress(NodeError):
                if self._is_renewal_due():
                    self._renew()
            time.sleep(_SPREAD_S)  # a host that is about to stop refuses at once

    def _has(self, host: str, number: int) -> bool:
        """Ask another host to repeat all changes; return whether it has the change `number` now."""
        try:
            answer = self._peer(host).ask([SYNC, {}], _SYNC_S)
        except OSError:
            return False
        return bool(answer[0]) and answer[1] >= number

    def _none_has_lease_but(self, done: set[str]) -> bool:
        """Return whether the leases of all other hosts have ended.

        A lease has ended when its newest record was first seen `LEASE_S` ago. The answer is False
        if the stream cannot be read.
        """
        with contextlib.suppress(NodeError):
            if self._note_leases():
                end = lease_clock() - LEASE_S
                return done.issuperset(h for h, lease in self._leases.items() if lease.since > end)
        return False

    def _note_leases(self) -> bool:
        """Read the newest records of leases, and note when each was first seen; return whether they
        could be read."""
        found = positions(self._engine, self._replica.position)
        if found is None:
            return False
        known, now = self._leases, lease_clock()
        self._leases = {
            host: known[host] if host in known and known[host].at == at else _Seen(at, now)
            for host, at in found.items()
        }
        return True

    def _peer(self, host: str) -> _Peer:
        peer = self._peers.get(host)
        if peer is None:
            peer = self._peers[host] = _Peer(remote_path(self._run_dir, host, SOCKET))
        return peer

    # ---------------------------------------------------------------- the others

    def _forward(self) -> None:
        """Forward commands to the owner, one after the other; runs in a thread of its own."""
        peers: dict[str, _Peer] = {}
        while True:
            with self._wake:
                self._wake.wait_for(lambda: bool(self._commands))
                connection, request = self._commands.popleft()
            connection.answer(self._ask_owner(peers, request))

    def _ask_owner(self, peers: dict[str, _Peer], request: list[Any]) -> tuple[Any, ...]:
        owner = self.owner
        if not owner or owner == self._host:
            error: NodeError = UnavailableError(what="no host changes the registry yet")
            return False, *to_wire(error)
        peer = peers.setdefault(owner, _Peer(remote_path(self._run_dir, owner, SOCKET)))
        try:
            return peer.ask([*request, FORWARDED], _ANSWER_S)
        except (OSError, ValueError) as failed:  # ValueError: the received bytes are not an answer
            peer.close()
            error = OutcomeUnknownError(what=f"host {owner} does not answer: {failed}")
            return False, *to_wire(error)


def digests_in(arguments: dict[str, Any]) -> list[str]:
    """Return the digests of the modules among the arguments of a command.

    A command has one module as several arguments or as `module`, or several modules as `modules`.
    """
    at = Module.__struct_fields__.index("sha256")
    modules = [arguments.get("module"), *(arguments.get("modules") or ())]
    found = [arguments.get("sha256"), *(module[at] for module in modules if module)]
    return [text for text in found if isinstance(text, str) and _is_digest(text)]


def _is_digest(text: str) -> bool:
    return len(text) == _DIGEST_CHARS and _HEX.issuperset(text)


class _Seen(NamedTuple):
    """The newest record of a host's lease: its position, and when this host first saw it."""

    at: int
    since: float


class _Peer:
    """A blocking connection to the registry of another host."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket: socket.socket | None = None

    def ask(self, request: list[Any], limit_s: float) -> tuple[Any, ...]:
        """Send a request and return the answer.

        Raises:
            OSError: no answer arrived in time; the connection is closed.
        """
        try:
            return self._ask(request, limit_s)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None

    def _ask(self, request: list[Any], limit_s: float) -> tuple[Any, ...]:
        if self._socket is not None and _has_ended(self._socket):
            self._socket.close()
            self._socket = None
        if self._socket is None:
            here, first = split_path(self._path)
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.settimeout(limit_s)
            self._socket.connect(here)
            self._socket.sendall(first)
        self._socket.settimeout(limit_s)
        self._socket.sendall(frame(pack(request)))
        reader = FrameReader()
        while True:
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the connection ended")
            for answer in reader.feed(data):
                found: tuple[Any, ...] = unpack(answer)
                return found


def _has_ended(connection: socket.socket) -> bool:
    """Return whether the other side has closed a connection that has no unread answer."""
    connection.setblocking(False)
    try:
        return not connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
