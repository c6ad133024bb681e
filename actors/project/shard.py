"""A shard: a process that runs handlers speculatively for a project.

The project's process starts `python -m fieldbrook.actors.project.shard FD` and holds the other end
of the socket FD. It sends the applets and the events to run them over. The shard answers with
speculative runs (`actors.project.speculation`). It never writes to a store, and exits when the
socket is closed.
"""

from __future__ import annotations

import logging
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from fieldbrook.actors.project.capabilities import ProjectCapabilities, is_system
from fieldbrook.actors.project.pool import InstancePool
from fieldbrook.actors.project.speculation import (
    API,
    TOPIC,
    SpeculativeRun,
    answer_query,
    encode_effects,
    fingerprint,
    pack,
    unpack,
)
from fieldbrook.actors.wire import FrameReader, frame
from fieldbrook.core.errors import NodeError
from fieldbrook.core.model import Applet
from fieldbrook.observability import logs, node_log
from fieldbrook.storage.project import kv
from fieldbrook.storage.project.reader import ProjectSnapshot
from fieldbrook.storage.registry.reader import RegistryReader
from fieldbrook.system.process import die_with_parent, name_process
from fieldbrook.wasm.limits import Limits
from fieldbrook.wasm.run import Capabilities, EffectRefusedError, Run

log = logging.getLogger(__name__)

PROJECT, PART, READY = "project", "part", "ready"
"""Frames to a shard:

* `(PROJECT, environment, applets)`, with the applets as packed records.
* `(PART, settled, events)`: the number up to which all events are settled, and for each event its
  number, type, payload and the list of (applet id, handler) to run over it in order.

Frames from a shard: `(READY,)`, then `(event's number, index of its handler, run)` for each run, in
order. The run is None when only the project can make it."""

RUN_BYTES = 16 << 20  # larger speculative runs are left to the project
_READ_BYTES = 1 << 16


class Setup(msgspec.Struct, array_like=True, frozen=True):
    """The configuration of a shard, sent as its first frame."""

    store: str
    modules: str
    registry: str
    api_hosts: tuple[str, ...]
    limits: Limits
    log_level: str
    log_format: str


class _NeverFull:
    """An outbox that is never full: only the project, its owner, can check the real one."""

    is_full = False


class ShardCapabilities(Capabilities):
    """The capabilities of a run in a shard; records every answer for later validation.

    `void` is set when the run asked for something that only the project's process can do. The
    result of such a run is discarded.
    """

    def __init__(self, project: Capabilities) -> None:
        self._project = project
        self.void = False
        self.queries: list[tuple[str, Sequence[str], Any]] = []

    def check_topic(self, topic: str) -> None:
        """See `Capabilities.check_topic`."""
        refusal = self._query(TOPIC, topic)
        if refusal is not None:
            raise EffectRefusedError(refusal)

    def api_refusal(self, method: str, url: str) -> tuple[int, str] | None:
        """See `Capabilities.api_refusal`.

        Services of the node itself are available in the project's process only.
        """
        if is_system(url):
            self._give_up()
        refusal: tuple[int, str] | None = self._query(API, method, url)
        return refusal

    def send_transaction(self, *_: object, **__: object) -> NoReturn:
        """Void the run: only the project's process is connected to chains."""
        self._give_up()

    def call_contract(self, *_: object, **__: object) -> NoReturn:
        """Void the run: only the project's process is connected to chains."""
        self._give_up()

    def _give_up(self) -> NoReturn:
        self.void = True
        raise EffectRefusedError("only the project's process can do this")

    def _query(self, question: str, *arguments: str) -> Any:
        answer = answer_query(self._project, question, arguments)
        self.queries.append((question, arguments, answer))
        return answer


class Shard:
    """Runs parts of batches, and keeps the writes of its runs until they are settled.

    Args:
        setup: the configuration of the shard.
        send: sends one packed value to the project.
    """

    def __init__(self, setup: Setup, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._pool = InstancePool(Path(setup.modules), setup.limits)
        self._snapshot = ProjectSnapshot(Path(setup.store))
        reader = RegistryReader(Path(setup.registry))
        self._topics = ProjectCapabilities(reader, _NeverFull(), setup.api_hosts)
        self._applets: dict[int, Applet] = {}
        self._scopes: dict[int, bytes] = {}
        self._env: dict[str, str] = {}
        self._overlay: dict[bytes, tuple[int, bytes]] = {}

    def handle(self, frame_: Sequence[Any]) -> None:
        """Handle one frame."""
        if frame_[0] == PROJECT:
            self._set_project(*frame_[1:])
        else:
            self._run_part(*frame_[1:])

    def _set_project(self, env: dict[str, str], applets: bytes) -> None:
        found = msgspec.msgpack.decode(applets, type=list[Applet])
        self._env = env
        self._applets = {applet.applet_id: applet for applet in found}
        self._scopes = {applet.applet_id: kv.scope(kv.owner(applet)) for applet in found}
        self._pool.keep_only(found)
        self._topics.forget()

    def _run_part(self, settled: int, events: Sequence[Any]) -> None:
        self._snapshot.renew()
        # Settled writes are either in the snapshot or were dropped by the project.
        self._overlay = {k: held for k, held in self._overlay.items() if held[0] > settled}
        for number, event_type, payload, targets in events:
            for place, (applet_id, handler) in enumerate(targets):
                speculative = self._run(number, event_type, payload, applet_id, handler)
                found = pack((number, place, speculative))
                if len(found) > RUN_BYTES:
                    found = pack((number, place, None))
                self._send(found)
        self._snapshot.renew()  # LMDB cannot reuse freed pages while an old snapshot is open

    def _run(
        self, number: int, event_type: str, payload: bytes, applet_id: int, handler: str
    ) -> SpeculativeRun | None:
        """Make one run; None when it has to be made by the project."""
        began = time.thread_time()
        scope = self._scopes[applet_id]
        reads: dict[bytes, bytes | None] = {}
        capabilities = ShardCapabilities(self._topics)
        run = Run(payload, event_type, self._env, self._reader(scope, reads), capabilities)
        try:
            host = self._pool.host(self._applets[applet_id])
            if host.uses_sql:
                return None
            code, error = host.run(handler, run)
        except NodeError as reason:
            log.debug("a run of applet %d is left to the project: %s", applet_id, reason)
            return None
        if capabilities.void:
            return None
        if not error:
            for key, value in run.writes.items():
                self._overlay[kv.stored_key(scope, key)] = number, value
        return SpeculativeRun(
            code,
            error,
            run.logs,
            run.writes,
            encode_effects(run.effects),
            tuple(reads.items()),
            capabilities.queries,
            time.thread_time() - began,
        )

    def _reader(
        self, scope: bytes, reads: dict[bytes, bytes | None]
    ) -> Callable[[bytes], bytes | None]:
        def read(key: bytes) -> bytes | None:
            stored = kv.stored_key(scope, key)
            held = self._overlay.get(stored)
            value = self._snapshot.read(stored) if held is None else held[1]
            if stored not in reads:
                reads[stored] = fingerprint(value)
            return value

        return read


def serve(connection: socket.socket) -> None:
    """Serve one project as its shard until the other end closes the connection."""
    reader = FrameReader()
    shard: Shard | None = None

    def send(data: bytes) -> None:
        connection.sendall(frame(data))

    while data := connection.recv(_READ_BYTES):
        for body in reader.feed(data):
            if shard is None:
                setup = msgspec.msgpack.decode(body, type=Setup)
                logs.configure(setup.log_level, setup.log_format)
                node_log.join(f"shard:{Path(setup.store).name}")
                shard = Shard(setup, send)
                send(pack((READY,)))
            else:
                shard.handle(unpack(body))


def main(arguments: Sequence[str]) -> int:
    """Run the shard's process and return its exit status."""
    die_with_parent()
    name_process("fb-shard")
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches all processes; the project ends us
    try:
        with socket.socket(fileno=int(arguments[0])) as connection:
            serve(connection)
    except (ConnectionError, NodeError) as error:
        log.info("the shard ends: %s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
