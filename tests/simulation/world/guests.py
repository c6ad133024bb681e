"""Handlers without WebAssembly: small Python functions behind the interface of `wasm.run.Host`.

Each counts under `count` and notes under the event's own key the count at which it ran, so that
the store itself shows how often and in which order events ran.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fieldbrook.wasm.run import Message, Run
from tests.simulation.world.machine import Machine

COUNT = b"count"
HANDLER = "start"
TRAP = "wasm trap: unreachable"
TOPIC = "out/told"

TELL, FAIL, SLOW, LARGE, KILL = "tell", "fail", "slow", "large", "kill"
"""What events ask for besides being counted: send a message; trap; take long; write many bytes; end
the worker's process."""

LARGE_BYTES = (12 << 10, 12 << 10, 48 << 10)  # the last is more than the smallest segments hold


def payload_of(tag: str, *wishes: str) -> bytes:
    """The payload of an event."""
    return " ".join((tag, *wishes)).encode()


def key_of(tag: str) -> bytes:
    """The key of an event: the counts at which it ran, separated by commas."""
    return b"e:" + tag.encode()


class Guests:
    """The handlers of all projects; `slept` is the total time of the consecutive runs of a turn."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.slept = 0.0
        self.failures_left = 0  # how many of the next runs hit a simulated bug of the node

    def host(self, *_args: Any, **_more: Any) -> Guest:
        """Replace `load_host`."""
        return Guest(self)


class Guest:
    """One applet; the interface is `wasm.run.Host`."""

    uses_sql = False
    kept_bytes = 0
    handlers = (HANDLER,)

    def __init__(self, guests: Guests) -> None:
        self._guests = guests

    def run(self, handler: str, run: Run) -> tuple[int, str]:
        assert handler == HANDLER
        guests, machine = self._guests, self._guests.machine
        tag, *wishes = run.payload.decode().split()
        machine.pass_point("run")
        if KILL in wishes:
            machine.crash(f"the run of {tag}")
        if guests.failures_left:
            guests.failures_left -= 1
            raise InjectedError(f"in the run of {tag}")
        machine.spend(machine.random.random() * 0.0002)
        if SLOW in wishes:
            guests.slept += 0.003 + machine.random.random() * 0.3
        count = int(_read(run, COUNT) or b"0") + 1
        run.writes[COUNT] = b"%d" % count
        ran = _read(run, key_of(tag))
        run.writes[key_of(tag)] = b"%d" % count if ran is None else b"%s,%d" % (ran, count)
        if LARGE in wishes:
            run.writes[b"large:%d" % (count % 3)] = bytes(LARGE_BYTES[count % 3])
        if TELL in wishes:
            run.effects.append(Message(TOPIC, b"%s %d" % (tag.encode(), count)))
        machine.trace("%s runs as number %d%s", tag, count, "" if ran is None else " AGAIN")
        if FAIL in wishes:
            return -1, TRAP
        return count, ""

    def run_batch(self, handler: str, runs: Sequence[Run]) -> list[tuple[int, str]]:
        done: list[tuple[int, str]] = []
        for run in runs:
            code, error = self.run(handler, run)
            if error:
                run.forget()
                break
            done.append((code, error))
        return done

    def close(self) -> None: ...


class InjectedError(Exception):
    """A bug of the node itself that the simulation puts into a run."""


def _read(run: Run, key: bytes) -> bytes | None:
    read: Callable[[bytes], bytes | None] = run.read
    return run.writes.get(key) or read(key)
