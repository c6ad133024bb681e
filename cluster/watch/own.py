"""The figures that a host reports about itself, from the shared metrics and its machine."""

from __future__ import annotations

import os
from typing import NamedTuple

from fieldbrook.observability import metrics
from fieldbrook.observability.metrics_table import Table


class Own(NamedTuple):
    """Figures of this host.

    Attributes:
        running: the number of projects that run on this host.
        registry: the number of the last change in this host's copy of the registry.
        oldest_append_s: the age of the oldest record that is not stored yet, over all workers.
        fenced: how many records were refused since the start because another host is the owner.
        load: the load average of the machine over the last minute, per processor.
    """

    running: int = 0
    registry: int = 0
    oldest_append_s: float = 0.0
    fenced: int = 0
    load: float = 0.0


def read_own(table: Table | None) -> Own:
    """Read the figures of this host. `table` is None in tests without shared metrics."""
    running = registry = fenced = 0.0
    oldest_s = 0.0
    for part, _, row in table.views() if table is not None else ():
        kind = part.partition(":")[0]
        fenced += row[metrics.APPENDS["fenced"]]
        if kind == "supervisor":
            running = row[metrics.PROJECT_STATES["up"]]
        elif kind == "registry":
            registry = row[metrics.REGISTRY_POSITION]
        elif kind == "worker":
            oldest_s = max(oldest_s, row[metrics.APPEND_OLDEST])
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    return Own(int(running), int(registry), oldest_s, int(fenced), round(load, 2))
