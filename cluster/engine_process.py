"""The actor that runs the replication engine of this host."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from fieldbrook.actors import messages as m
from fieldbrook.actors.runtime import Address, NodeActor
from fieldbrook.cluster import hosts_file
from fieldbrook.cluster.engine import Address as Place
from fieldbrook.cluster.engine import Engine, Tls
from fieldbrook.cluster.hosts_file import FOLDER
from fieldbrook.cluster.identity import AUTHORITY, CERTIFICATE, KEY
from fieldbrook.core.errors import NodeError, SettingsError
from fieldbrook.observability import metrics_table, node_log
from fieldbrook.storage.replication.endpoint import ADMIN, write_endpoint
from fieldbrook.system.kernel import name_process

log = logging.getLogger(__name__)

PART = "engine"
_LOOK_S = 0.2


class EngineActor(NodeActor):
    """Starts nats-server, and ends when it ends; the supervisor starts both again."""

    def __init__(self) -> None:
        super().__init__()
        self._engine: Engine | None = None

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
        """Look whether the engine still runs."""
        if self._engine is not None and not self._engine.is_running:
            log.critical("the replication engine has died")
            os._exit(70)
        self.wake_after(_LOOK_S, None)

    def stopping(self) -> None:
        """End the engine."""
        if self._engine is not None:
            self._engine.stop()

    def _start(self, start: m.Start, sender: Address) -> None:
        name_process(f"fb-{PART}")
        node_log.name(start.part)
        metrics_table.attach(start.slot)
        try:
            self._engine = self._make(start.settings.data, start.settings.cluster_file_bytes)
            write_endpoint(start.run_dir, self._engine.start())
            write_endpoint(start.run_dir, self._engine.admin(), ADMIN)
        except NodeError as error:
            self.send(sender, m.Failed(PART, str(error)))
            return
        self.send(sender, m.Ready(PART, start.generation, os.getpid()))
        self.wake_after(_LOOK_S, None)

    def _make(self, data: Path, file_bytes: int) -> Engine:
        known = hosts_file.load(data)
        if known is None:
            raise SettingsError(reason=f"{data} is in no cluster")
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
