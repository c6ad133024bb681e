"""A child: one process of the node, or one project, and its state for the supervisor."""

from __future__ import annotations

import time

import msgspec

from fieldbrook.actors.runtime import Address
from fieldbrook.actors.supervisor.restarts import Restarts
from fieldbrook.observability import metrics_table

DOWN, STARTING, UP, RETIRING, BACKOFF = "down", "starting", "up", "retiring", "backoff"
CLASSES = {
    "registry": "fieldbrook.actors.registry.RegistryActor",
    "worker": "fieldbrook.actors.worker.actor.WorkerActor",
    "http": "fieldbrook.gateway.http.server.HttpGateway",
    "mqtt": "fieldbrook.gateway.mqtt.gateway.MqttGateway",
    "scheduler": "fieldbrook.gateway.schedule.ticker.Scheduler",
    "chain": "fieldbrook.chain.process.ChainGateway",
    "engine": "fieldbrook.cluster.engine_process.EngineActor",
    "cluster": "fieldbrook.cluster.process.ClusterActor",
}
"""The actor class of each kind of process, by name. Only the process itself imports the module."""


class Child(msgspec.Struct):
    """One process of the node, or a project that runs in a worker, and its state.

    `part` is its name, such as `worker:0` or `project:5`; it stays the same after a restart. A
    project has no address: messages about it go to its worker.
    """

    part: str
    state: str = DOWN
    address: Address | None = None
    pid: int | None = None
    path: str | None = None
    generation: int = 0
    restarts: Restarts = msgspec.field(default_factory=Restarts)
    since: float = 0.0
    heard: float = 0.0
    wanted: bool = False  # it was requested while it was retiring
    # Consumers for which this generation had outbox entries, which may be delivered by now.
    consumers: set[str] = msgspec.field(default_factory=set)
    removed: bool = False
    slot: int = metrics_table.NO_ROW  # its metrics row, while it has a process
    account_id: int = 0  # the account that owns the project; 0 until a gateway has named it
    worker: str = ""  # the worker (its `part`) that runs the project, or ran it last
    in_journal: bool = False  # the journal of `worker` may have batches that the store lacks
    suspect_until: float = 0.0  # monotonic time; until then a project has a worker of its own
    subject: str = ""  # `part` for which a worker's `hung_guest` or `stuck_batch` was raised
    late: bool = False  # a chain that takes long to start; the boot no longer waits for it

    @property
    def kind(self) -> str:
        """`registry`, `worker`, `http`, `mqtt`, `scheduler`, `chain` or `project`."""
        return self.part.partition(":")[0]

    @property
    def is_gateway(self) -> bool:
        """Whether it gets the routes to projects."""
        return self.kind in ("http", "mqtt", "scheduler", "chain", "cluster")

    @property
    def is_project(self) -> bool:
        """Whether it is a project, which has no process of its own."""
        return self.part.startswith("project:")

    @property
    def is_dedicated(self) -> bool:
        """Whether it is a worker with one project."""
        return self.part.startswith(metrics_table.DEDICATED)

    @property
    def is_settled(self) -> bool:
        """Whether the boot need not wait for it: it is up, or it is a late or failed chain.

        The node can serve while chains are still starting, because no other process needs them. The
        boot waits neither for projects nor for dedicated workers.
        """
        if self.is_project or self.is_dedicated:
            return True
        return (
            self.state == UP or self.late or (self.kind == "chain" and self.restarts.failures > 0)
        )

    @property
    def project_id(self) -> int:
        """The project's id; only for projects."""
        return int(self.part.partition(":")[2])

    def enter(self, state: str) -> None:
        """Change the state and note the time."""
        self.state, self.since = state, time.monotonic()
