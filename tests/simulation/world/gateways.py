"""The gateways of a simulated node: real clients, links, backlog and outbox consumer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from fieldbrook.actors import messages as m
from fieldbrook.actors.wire import BY_MQTT, DELIVERY, REDELIVERY, WireEntry, WireEvent
from fieldbrook.core.errors import NodeError, ProjectNotFoundError
from fieldbrook.gateway.base import GatewayActor
from fieldbrook.gateway.delivery.outbox import OutboxConsumer
from fieldbrook.gateway.events.refusals import TEMPORARY
from fieldbrook.gateway.links.pending_event import Outcome, Settle
from fieldbrook.gateway.links.project_clients import ProjectClients
from fieldbrook.gateway.mqtt.backlog import Backlog, Pending
from fieldbrook.gateway.mqtt.sources import Delivery
from fieldbrook.storage.project.outbox import MQTT
from fieldbrook.storage.registry.service import RegistryReader
from tests.simulation.world.loop import SimulatedLoop, finish
from tests.simulation.world.messages import Address, Simulated

if TYPE_CHECKING:
    from tests.simulation.world.node import Node

EXPIRE_S = 1.0


class SimulatedGateway(Simulated, GatewayActor):
    """A gateway whose loop is simulated; devices call `submit`."""

    loop: Any

    def __init__(self, node: Node, address: Address) -> None:
        super().__init__()
        self.node = node
        self.post_office, self.address = node.post, address

    def _start(self, start: m.Start, sender: Any) -> None:
        self._supervisor = sender
        self.part, self.settings, self.run_dir = start.part, start.settings, start.run_dir
        self._generation, self._quotas = start.generation, start.settings.quotas
        process = self.address.process
        process.name = start.part
        self.loop = SimulatedLoop(  # type: ignore[abstract]  # it has what is used
            self.node.machine, self.node.network, process
        )
        self.projects = ProjectClients(self, self.loop)
        self.loop.step(self.begin)
        self._started = True
        self.node.gateways[self.part] = self
        self.post(m.Ready(self.part, self._generation, process.pid))
        self.loop.call_later(EXPIRE_S, self._expire)

    def begin(self) -> None:
        """Start the parts of this kind of gateway."""

    def _expire(self) -> None:
        self.projects.expire()
        self.loop.call_later(EXPIRE_S, self._expire)

    def _in_loop(self, call: Callable[[], object]) -> None:
        self.loop.call_soon(call)

    def registry_reader(self) -> RegistryReader:
        return self.node.reader

    async def open(self) -> None: ...

    async def refuse_more(self) -> None: ...

    def stopping(self) -> None: ...

    def submit(self, project_id: int, event: WireEvent, settle: Settle, **options: Any) -> None:
        """Submit an event, as the services above the clients do; a refusal is its outcome."""

        def step() -> None:
            try:
                if self.registry_reader().project(project_id) is None:
                    raise ProjectNotFoundError(project=project_id)
                self.projects[project_id].submit(event, settle, **options)
            except NodeError as error:
                settle(error)

        self.loop.step(step)


class SimulatedMqttGateway(SimulatedGateway):
    """A gateway with the real backlog in front of the clients, which also delivers outboxes."""

    def begin(self) -> None:
        self.backlog = Backlog(self._process, lambda delivery: delivery.topic, self.loop.call_later)
        self._outbox = OutboxConsumer({MQTT: self._deliver})
        self.loop.call_soon(self.node.broker.connect, self)

    def receive(self, message: object, sender: Any) -> None:
        match message:
            case m.DeliverOutbox(project_id=project_id, path=path):
                self._in_loop(lambda: self._outbox.consume(project_id, path))
            case _:
                super().receive(message, sender)

    def _process(self, pending: Pending) -> None:
        delivery = pending.delivery
        project_id, event = self.node.broker.event_of(delivery)
        kind = DELIVERY | REDELIVERY if delivery.may_repeat else DELIVERY
        event = (*event[:5], kind | BY_MQTT, f"mqtt-{delivery.sequence}")
        self.submit(project_id, event, partial(self._on_outcome, pending), resend=True)

    def _on_outcome(self, pending: Pending, outcome: Outcome) -> None:
        if isinstance(outcome, TEMPORARY):
            self.backlog.defer(pending)
            return
        self.node.broker.settled(pending.delivery, outcome)
        pending.delivery.ack()
        self.backlog.complete(pending)

    async def _deliver(self, project_id: int, entry: WireEntry) -> None:
        done = self.loop.create_future()
        delay = self.node.machine.delay()
        self.loop.call_later(delay, finish, done)
        await done
        self.node.delivered(project_id, entry)


class SimulatedScheduler(SimulatedGateway):
    """A scheduler without events, which exists because a node has one."""


class Broker:
    """The MQTT broker: it keeps each message until the gateway acknowledges it."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[int, WireEvent, Callable[[Outcome], None], bool]] = {}
        self._gateway: SimulatedMqttGateway | None = None

    @property
    def empty(self) -> bool:
        """Whether the gateway has acknowledged everything."""
        return not self._kept

    def publish(
        self,
        project_id: int,
        event: WireEvent,
        sequence: str,
        settle: Callable[[Outcome], None],
        *,
        may_repeat: bool,
    ) -> None:
        """Accept a message; `settle` is called with its outcome, possibly several times.

        `may_repeat`: see `Delivery`.
        """
        self._kept[sequence] = project_id, event, settle, may_repeat
        self._give(sequence)

    def connect(self, gateway: SimulatedMqttGateway) -> None:
        """Deliver everything that no gateway has acknowledged, in order."""
        self._gateway = gateway
        for sequence in list(self._kept):
            self._give(sequence)

    def event_of(self, delivery: Delivery) -> tuple[int, WireEvent]:
        project_id, event = self._kept[delivery.sequence][:2]
        return project_id, event

    def settled(self, delivery: Delivery, outcome: Outcome) -> None:
        self._kept[delivery.sequence][2](outcome)

    def _give(self, sequence: str) -> None:
        gateway = self._gateway
        if gateway is None:
            return
        project_id, event, _, may_repeat = self._kept[sequence]
        delivery = Delivery(
            topic=f"{project_id}/{event[1]}",
            payload=event[3],
            qos=1,
            sequence=sequence,
            ack=lambda: self._kept.pop(sequence, None) and None,
            may_repeat=may_repeat,
            stale=lambda: self._gateway is not gateway,
        )
        gateway.loop.call_soon(gateway.backlog.receive, str(project_id), delivery)
