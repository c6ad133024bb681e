"""The devices: they send events over HTTP or MQTT, and repeat them like real devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fieldbrook.actors.wire import NAMED, WireEvent
from fieldbrook.core.errors import EventOutcomeUnknownError, NodeError
from fieldbrook.gateway.links.pending_event import Outcome
from tests.simulation.ledger import Ledger, Sent
from tests.simulation.world.gateways import SimulatedGateway
from tests.simulation.world.guests import payload_of
from tests.simulation.world.machine import BOOT_MS
from tests.simulation.world.node import Node

HTTP_LIMIT_S = 20.0
RETRY_S = 0.5
LOST = EventOutcomeUnknownError(what="the connection to the gateway was lost")

Wishes = Callable[[], tuple[str, ...]]


class Device:
    """A publisher of one project."""

    def __init__(
        self, node: Node, ledger: Ledger, number: int, project_id: int, wishes: Wishes
    ) -> None:
        self.node, self.ledger = node, ledger
        self.number, self.project_id = number, project_id
        self._wishes = wishes
        self._count = 0

    def send(self) -> None:
        """Send an event, if the device can send one now."""

    def send_if_there(self) -> None:
        """Send an event unless the project was removed."""
        if self.project_id not in self.ledger.removed:
            self.send()

    def _make(self, repeats: bool, line: str) -> tuple[Sent, WireEvent]:
        self._count += 1
        tag = f"d{self.number}-{self._count}"
        wishes = self._wishes()
        sent = Sent(tag, self.project_id, wishes, repeats, line, self._count, self.node.removed)
        self.ledger.add(sent)
        event: WireEvent = ("DEFAULT", self.number, tag, payload_of(tag, *wishes), BOOT_MS, 0, "")
        return sent, event


class MqttDevice(Device):
    """Publishes with QoS 1: the broker repeats each message until it is acknowledged.

    A `foreign` broker does not mark repeated messages, so that they may run again.
    """

    def __init__(self, *args: Any, foreign: bool) -> None:
        super().__init__(*args)
        self._foreign = foreign

    def send(self) -> None:
        sent, event = self._make(repeats=True, line=f"d{self.number}")
        sent.may_double = self._foreign
        self.node.broker.publish(
            self.project_id, event, sent.tag, sent.note, may_repeat=not self._foreign
        )


class HttpDevice(Device):
    """Sends requests to one gateway process after the other.

    A device with `names` gives its events names and repeats each until it has an answer; it sends
    one at a time. Others send every event once, several at a time.
    """

    def __init__(self, *args: Any, names: bool, part: str) -> None:
        super().__init__(*args)
        self._names = names
        self._part = part
        self._waiting = 0
        self._gateway: SimulatedGateway | None = None
        self._line = 0

    @property
    def ready(self) -> bool:
        return self._waiting < (1 if self._names else 8)

    def send(self) -> None:
        if not self.ready:
            return
        gateway = self._connected()
        if gateway is None:
            return
        sent, event = self._make(self._names, f"d{self.number}.{self._line}")
        if self._names:
            event = (*event[:5], NAMED, f"0 {sent.tag}")
        self._waiting += 1
        self._request(gateway, sent, event)

    def _connected(self) -> SimulatedGateway | None:
        """The gateway; events that are sent over different connections have no order."""
        gateway = self.node.gateways.get(self._part)
        if gateway is None or not gateway.address.process.alive:
            return None
        if gateway is not self._gateway:
            self._gateway = gateway
            if not self._names:
                self._line += 1
        return gateway

    def _request(self, gateway: SimulatedGateway, sent: Sent, event: WireEvent) -> None:
        """Send one event; exactly one outcome follows."""
        machine, process = self.node.machine, gateway.address.process
        sent.sendings += 1
        ended = [False]

        def end(outcome: Outcome) -> None:
            if not ended[0]:
                ended[0] = True
                machine.at(machine.delay(), None, lambda: self._answered(sent, event, outcome))

        process.at_death.append(lambda: end(LOST))
        machine.at(0.0, process, lambda: gateway.submit(self.project_id, event, end))

    def _answered(self, sent: Sent, event: WireEvent, outcome: Outcome) -> None:
        machine = self.node.machine
        machine.trace("%s is answered %r", sent.tag, outcome)
        sent.note(outcome)
        if sent.repeats and isinstance(outcome, NodeError) and not sent.gone:
            machine.at(RETRY_S, None, lambda: self._repeat(sent, event))
            return
        self._waiting -= 1

    def _repeat(self, sent: Sent, event: WireEvent) -> None:
        gateway = self._connected()
        if gateway is None:
            self.node.machine.at(RETRY_S, None, lambda: self._repeat(sent, event))
        else:
            self._request(gateway, sent, event)
