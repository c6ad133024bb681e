"""The control messages between the actors of a simulated node, and what creates actors.

It simulates the functions of Thespian that actors use: messages between two actors arrive in order,
after some time; messages to a dead actor are lost; the parent of a dead actor gets a notice.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from thespian.actors import ActorExitRequest, ChildActorExited, WakeupMessage

from fieldbrook.actors.runtime import NodeActor
from fieldbrook.core.settings import Settings
from tests.simulation.world.machine import Machine, Process

FORK_S = 0.02
NOTICES = (1,) * 18 + (2, 0)  # the number of notices of one death


class _Brief:
    """A message in a trace, without the settings of the node."""

    def __init__(self, message: object) -> None:
        self._message = message

    def __str__(self) -> str:
        message = self._message
        names = getattr(message, "__dataclass_fields__", ())
        values = {name: getattr(message, name) for name in names}
        shown = [f"{n}={v!r}" for n, v in values.items() if not isinstance(v, Settings | Path)]
        return f"{type(message).__name__}({', '.join(shown)})"


class Address:
    """The address of an actor; its name is the part once that is known."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.last_arrival: dict[Address, float] = {}  # by sender
        self.actor: Any = None


class Post:
    """Delivers messages, and starts and ends actors."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.worst_delay_s = 0.05
        self._actors: dict[int, Address] = {}

    def send(self, sender: Address, to: Address, message: object) -> None:
        machine = self._machine
        # A copy, as between processes; it also shows what cannot be pickled.
        data = pickle.dumps(message)
        late = machine.random.random() ** 4 * self.worst_delay_s
        arrival = max(to.last_arrival.get(sender, 0.0), machine.now + late)
        to.last_arrival[sender] = arrival
        machine.at(arrival - machine.now, to.process, lambda: self._deliver(sender, to, data))

    def _deliver(self, sender: Address, to: Address, data: bytes) -> None:
        message = pickle.loads(data)  # noqa: S301 - of this process
        self._machine.trace("%s gets %s", to.process.name, _Brief(message))
        to.actor.receiveMessage(message, sender)
        if isinstance(message, ActorExitRequest):
            to.process.kill("it was asked to exit")

    def wake_after(self, address: Address, delay_s: float, payload: object) -> None:
        actor = address.actor
        message = WakeupMessage(timedelta(seconds=delay_s), payload)
        self._machine.at(delay_s, address.process, lambda: actor.receiveMessage(message, address))

    def post(self, address: Address, message: object) -> None:
        """Send a message from another thread of the actor's process."""
        actor = address.actor
        late = self._machine.random.random() ** 4 * self.worst_delay_s
        arrival = max(address.last_arrival.get(address, 0.0), self._machine.now + late)
        address.last_arrival[address] = arrival
        self._machine.at(
            arrival - self._machine.now, address.process, lambda: actor.posted(message)
        )

    def create(self, parent: Address, name: str, make: Callable[[Address], NodeActor]) -> Address:
        """Start an actor in a process of its own."""
        machine = self._machine
        process = Process(machine, name)
        address = Address(process)
        address.actor = make(address)
        address.last_arrival[parent] = machine.now + FORK_S * machine.random.random()
        process.at_death.append(lambda: self._tell(parent, address))
        return address

    def _tell(self, parent: Address, dead: Any) -> None:
        """Send the notice of a death, sometimes twice or never, like Thespian."""
        machine, actor = self._machine, parent.actor
        for _ in range(machine.random.choice(NOTICES)):
            late = machine.random.random() ** 4 * 10 * self.worst_delay_s
            exited = ChildActorExited(dead)
            machine.at(late, parent.process, partial(actor.receiveMessage, exited, dead))


class Simulated:
    """Replaces Thespian's methods in every simulated actor; the first base class."""

    post_office: Post
    address: Any

    def send(self, to: Any, message: object) -> None:
        self.post_office.send(self.address, to, message)

    def wake_after(self, delay_s: float, payload: object) -> None:
        self.post_office.wake_after(self.address, delay_s, payload)

    def stop_child(self, address: Any) -> None:
        self.send(address, ActorExitRequest())

    def accept_posts(self) -> None: ...

    def post(self, message: object) -> None:
        self.post_office.post(self.address, message)
