"""The actor that runs the replication engine of this host.

An engine that is disconnected from the leaders of its streams calls elections again and again, each
in a higher term. When it is connected again, the other engines see the higher term: the leaders
step down, and all streams wait 4 to 9 s for the next election. An engine that has just started
calls no election before it has a route. Therefore an engine that has lost its routes to a majority
of the hosts is restarted at once, before it calls its first election.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection
from pathlib import Path

from fieldbrook.actors import messages as m
from fieldbrook.actors.runtime import Address, NodeActor
from fieldbrook.cluster import hosts_file
from fieldbrook.cluster.engine import Address as Place
from fieldbrook.cluster.engine import Engine, Tls
from fieldbrook.cluster.hosts_file import FOLDER
from fieldbrook.cluster.identity import AUTHORITY, CERTIFICATE, KEY
from fieldbrook.core.cluster.membership import Membership
from fieldbrook.core.errors import NodeError, SettingsError
from fieldbrook.observability import metrics_table, node_log
from fieldbrook.storage.replication.endpoint import ADMIN, write_endpoint
from fieldbrook.system.kernel import name_process

log = logging.getLogger(__name__)

PART = "engine"
_CHECK_S = 0.2
# A route is closed at most 2 s after the last message of the other engine. The first election
# begins 4 s after the last message of a leader. So there is time for a check and for the restart,
# which takes 0.2 s.
_ROUTES_S = 0.5


def _is_majority(peers: Collection[str], known: Membership | None) -> bool:
    """Return whether an engine with routes to these hosts is part of a majority."""
    if known is None:
        return False
    return 2 * (1 + sum(host.name in peers for host in known.others)) > len(known.hosts)


class EngineActor(NodeActor):
    """Runs nats-server. If it ends, this process ends, too, and the supervisor restarts both."""

    def __init__(self) -> None:
        super().__init__()
        self._engine: Engine | None = None
        self._peers: frozenset[str] = frozenset()
        self._has_majority = False
        self._next_routes = 0.0

    def receive(self, message: object, sender: Address) -> None:
        """See `actors.messages`."""
        match message:
            case m.Start():
                self._start(message, sender)
            case m.Ping(number=number):
                self.send(sender, m.Ponged(PART, number))
            case _:
                self.unexpected(message, sender)

    def woken(self, payload: object) -> None:
        """Check whether the engine is running and has its routes."""
        if self._engine is not None:
            if not self._engine.is_running:
                log.critical("the replication engine (nats-server) has died")
                os._exit(70)
            if time.monotonic() >= self._next_routes:
                self._next_routes = time.monotonic() + _ROUTES_S
                self._check_routes(self._engine)
        self.wake_after(_CHECK_S, None)

    def stopping(self) -> None:
        """End the engine."""
        if self._engine is not None:
            self._engine.stop()

    def _start(self, start: m.Start, sender: Address) -> None:
        name_process(f"fb-{PART}")
        node_log.name(start.part)
        metrics_table.attach(start.slot)
        try:
            self._data, self._run_dir = start.settings.data, start.run_dir
            self._engine = self._make(start.settings.data, start.settings.cluster_file_bytes)
            self._start_engine(self._engine)
        except NodeError as error:
            self.send(sender, m.Failed(PART, str(error)))
            return
        self.send(sender, m.Ready(PART, start.generation, os.getpid()))
        self.wake_after(_CHECK_S, None)

    def _start_engine(self, engine: Engine) -> None:
        write_endpoint(self._run_dir, engine.start())
        write_endpoint(self._run_dir, engine.admin(), ADMIN)
        self._peers, self._has_majority = frozenset(), False

    def _check_routes(self, engine: Engine) -> None:
        """Restart the engine if it has lost its routes to a majority of the hosts."""
        try:
            peers = engine.peers()
            if peers == self._peers:
                return
            self._peers, had = peers, self._has_majority
            self._has_majority = _is_majority(peers, hosts_file.load(self._data))
            if had and not self._has_majority:
                log.warning("the engine has no route to a majority of the hosts and is restarted")
                engine.stop()
                self._start_engine(engine)
        except NodeError as error:
            if engine.is_running:  # the next check tries again
                log.info("the routes of the engine cannot be read: %s", error)
            else:
                log.critical("the replication engine does not run: %s", error)
                os._exit(70)

    def _make(self, data: Path, file_bytes: int) -> Engine:
        known = hosts_file.load(data)
        if known is None:
            raise SettingsError(reason=f"the data folder {data} belongs to no cluster")
        folder = data / FOLDER
        myself = known.myself
        return Engine(
            folder / "engine",
            known.me,
            known.cluster,
            Place(myself.address, myself.engine_port),
            [Place(host.address, host.engine_port) for host in known.others],
            Tls(folder / CERTIFICATE, folder / KEY, folder / AUTHORITY),
            file_bytes,
        )
