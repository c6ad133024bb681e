"""Devices that send at a fixed rate, each with its own connection and thread."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from fieldbrook.cli.remote.simulation.figures import Tally
from fieldbrook.cli.remote.simulation.template import Moment, Template
from fieldbrook.device import Accepted, Event, Refused
from fieldbrook.device.address import Address
from fieldbrook.device.event import make_event
from fieldbrook.device.sender import pause_s
from fieldbrook.device.transport import Sender, Transport
from fieldbrook.device.transports import open_transport

_TIMEOUT_S = 30.0
_BEHIND_LIMIT_S = 1.0
_STACK_BYTES = 512 << 10
_JOIN_S = 10.0


class Plan(NamedTuple):
    """The behaviour of each device. `rate` is in events per second of one device."""

    event_type: str
    rate: float
    seconds: float
    template: Template
    seed: str


class Fleet:
    """A fleet that sends from `start` until its time is over or `stop` is called."""

    def __init__(self, address: Address, senders: Sequence[Sender], plan: Plan) -> None:
        self._plan = plan
        self.tally = Tally()
        self._sends_no_more = threading.Event()
        self._gives_up = threading.Event()
        count = len(senders)
        # The devices begin one after the other, within the interval between two events of a device.
        self._devices = [
            _Device(self._live, sender, open_transport(address, sender, _TIMEOUT_S), number / count)
            for number, sender in enumerate(senders)
        ]
        self._started_at = 0.0

    def start(self) -> None:
        """Start the devices."""
        before = threading.stack_size(_STACK_BYTES)
        try:
            self._started_at = time.monotonic()
            for device in self._devices:
                device.start()
        finally:
            threading.stack_size(before)

    @property
    def seconds(self) -> float:
        """The time since the start, in seconds."""
        return time.monotonic() - self._started_at

    @property
    def is_running(self) -> bool:
        """Whether any device sends, or waits for an answer."""
        return any(device.is_alive() for device in self._devices)

    @property
    def is_over(self) -> bool:
        """Whether no device will send another event."""
        return self._sends_no_more.is_set() or self.seconds >= self._plan.seconds

    def stop(self) -> None:
        """Stop all devices; events in progress continue."""
        self._sends_no_more.set()

    def give_up(self) -> None:
        """Abort events in progress, which stay unanswered."""
        self._sends_no_more.set()
        self._gives_up.set()
        for device in self._devices:
            device.transport.abort()
        limit = time.monotonic() + _JOIN_S
        for device in self._devices:
            if device.is_alive():
                device.join(max(0.0, limit - time.monotonic()))

    def _live(self, device: _Device) -> None:
        plan = self._plan
        interval = 1 / plan.rate
        chance = random.Random(f"{plan.seed}/{device.sender.publisher}")  # noqa: S311
        walks: dict[int, float] = {}
        due, count = self._started_at + device.offset * interval, 0
        while not self._wait_until(due):
            count += 1
            moment = Moment(device.sender.publisher, count, chance, walks)
            event = make_event(plan.event_type, plan.template.render(moment))
            self.tally.sent()
            self._deliver(device.transport, event, chance)
            # A delayed device sends faster for a short time, but does not catch up with a long
            # delay.
            due = max(due + interval, time.monotonic() - _BEHIND_LIMIT_S)
        device.transport.close()

    def _wait_until(self, due: float) -> bool:
        """Wait for the time of the next event; return True if there is no next event."""
        end = self._started_at + self._plan.seconds
        if due >= end:
            due = min(due, end)
            self._sends_no_more.wait(max(0.0, due - time.monotonic()))
            return True
        return self._sends_no_more.wait(max(0.0, due - time.monotonic())) or self.is_over

    def _deliver(self, transport: Transport, event: Event, chance: random.Random) -> None:
        """Send an event until the node has answered; each time it is the same event, with the same
        id."""
        began, failures = time.monotonic(), 0
        while not self._gives_up.is_set():
            (outcome,) = transport.send([event])
            if isinstance(outcome, Accepted):
                self.tally.committed(outcome, time.monotonic() - began)
                return
            if isinstance(outcome, Refused):
                self.tally.refused(outcome)
                return
            if self._gives_up.is_set():
                return
            self.tally.has_to_wait(outcome)
            failures += 1
            self._gives_up.wait(pause_s(failures, outcome.retry_after_s, chance.random()))


class _Device(threading.Thread):
    def __init__(
        self,
        live: Callable[[_Device], None],
        sender: Sender,
        transport: Transport,
        offset: float,
    ) -> None:
        super().__init__(name=sender.publisher, daemon=True)
        self._live = live
        self.sender = sender
        self.transport = transport
        self.offset = offset

    def run(self) -> None:
        self._live(self)
