"""The choices of a seed: the size of the node, the devices and their events, and the faults and
their frequency.

Each run has only a few kinds of faults, because many faults at once hide each other: a node that
restarts all the time never has a full journal.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.simulation.world.guests import FAIL, KILL, LARGE, SLOW, TELL

KINDS = (
    "kill_worker",
    "kill_worker_at_point",
    "kill_starting_worker",
    "kill_gateway",
    "cut_power",
    "fail_syncs",
    "fail_checkpoints",
    "fill_disk",
    "fail_actor",
    "retire",
    "move",
    "remove",
    "stop_worker",
    "delay_messages",
    "freeze",
    "stop_reading",
)
KINDS_OF_DEVICES = ("mqtt", "mqtt", "foreign", "once", "named")
"""`foreign`: over a broker that may not say that it delivers a message again."""
RARE = {"cut_power": 0.3, "remove": 0.3, "stop_worker": 0.4}


@dataclass(frozen=True)
class Plan:
    """The choices of one seed. Times are simulated seconds."""

    workers: int
    http: int
    projects: int
    segment_bytes: int
    segments: int
    dedicated: tuple[int, ...]  # indexes of projects with a worker of their own
    devices: tuple[tuple[str, int], ...]  # kind, and index of the project
    events: int
    sending_s: float
    wishes: dict[str, float]  # the probability of each
    faults: tuple[tuple[float, str], ...]  # when, and what
    worst_delay_s: float
    worst_message_s: float


def plan_of(seed: int) -> Plan:
    """Choose all parameters of a run."""
    chance = random.Random(f"plan {seed}")
    projects = chance.choice((1, 2, 2, 3, 4))
    devices = [
        (chance.choice(KINDS_OF_DEVICES), place)
        for place in range(projects)
        for _ in range(chance.choice((1, 2, 3)))
    ]
    sending_s = chance.choice((0.5, 2.0, 6.0))
    kinds = [kind for kind in KINDS if chance.random() < 0.3 * RARE.get(kind, 1.0)]
    faults = [
        (chance.random() * sending_s * 1.2, chance.choice(kinds))
        for _ in range(chance.choice((0, 1, 3, 6, 10)))
        if kinds
    ]
    wishes = {
        TELL: chance.choice((0.0, 0.3)),
        FAIL: chance.choice((0.0, 0.05)),
        SLOW: chance.choice((0.0, 0.0, 0.05, 0.3)),
        LARGE: chance.choice((0.0, 0.0, 0.2, 0.6)),
        KILL: chance.choice((0.0, 0.0, 0.0, 0.01)),
    }
    return Plan(
        workers=chance.choice((1, 2, 2, 3)),
        http=chance.choice((1, 2)),
        projects=projects,
        segment_bytes=chance.choice((32 << 10, 64 << 10, 256 << 10)),
        segments=chance.choice((2, 3, 4, 8)),
        dedicated=tuple(n for n in range(projects) if chance.random() < 0.1),
        devices=tuple(devices),
        events=chance.choice((20, 60, 120)),
        sending_s=sending_s,
        wishes=wishes,
        faults=tuple(sorted(faults)),
        worst_delay_s=chance.choice((0.002, 0.02, 0.2)),
        worst_message_s=chance.choice((0.002, 0.05, 0.5)),
    )
