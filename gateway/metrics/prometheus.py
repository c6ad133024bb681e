"""The node's metrics in Prometheus' exposition format.

Source: Prometheus' exposition formats; the interface document, 1.2 and 6.2, for the path.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fieldbrook.core.host_port import is_loopback, read_host_port
from fieldbrook.observability import health, metrics, metrics_table
from fieldbrook.observability.metrics import (
    CHAIN,
    COUNTER,
    DEPRECATED_NAMES,
    GATEWAY,
    GAUGE,
    HIDDEN,
    PART,
    PROJECT,
    Family,
)
from fieldbrook.observability.metrics_table import Row
from fieldbrook.system.kernel import read_stat

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_ALL_VALUES_LIMIT = 12  # of a label with more values, only those that are not 0 are shown
_NOT_DIRECT = (  # headers that pages in browsers and proxies set
    "Origin",
    "Forwarded",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Proto",
    "X-Real-IP",
    "Via",
    "CF-Connecting-IP",
    "True-Client-IP",
)


class Collected(NamedTuple):
    """A metric that is read at each scrape and not counted continuously.

    `kind` is `metrics.COUNTER` or `metrics.GAUGE`; each sample has a value for each label.
    """

    name: str
    text: str
    kind: str
    labels: tuple[str, ...]
    samples: Sequence[tuple[tuple[str, ...], float]]


def is_local(peer: str, headers: Mapping[str, str]) -> bool:
    """Whether a request comes directly from a program on this machine.

    Requests through a local proxy do not count, and requests from a page in a browser do not
    either, because any site could have caused them.
    """
    if any(name in headers for name in _NOT_DIRECT):
        return False
    host = read_host_port(headers.get("Host", ""))
    return is_loopback(peer) and host is not None and host.is_loopback


class Node:
    """All metrics of a node at one moment, as a Prometheus collector."""

    def __init__(
        self,
        version: str,
        rows: Sequence[Row],
        node_health: health.NodeHealth,
        collected: Iterable[Collected] = (),
    ) -> None:
        self._version = version
        self._rows = rows
        self._node_health = node_health
        self._collected = collected
        self._by_project = any(row.part.startswith("project:") for row in rows)

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client.registry.Collector`."""
        for metric in self._current():
            yield metric
            old = DEPRECATED_NAMES.get(metric.name)
            if old is not None:
                yield _with_old_name(metric, old)

    def _current(self) -> Iterator[Metric]:
        from prometheus_client import core

        yield core.InfoMetricFamily(
            "fieldbrook", "Version of the node.", {"version": self._version}
        )
        for family in metrics.FAMILIES:
            if family.by == HIDDEN:
                continue
            yield self._histogram(family) if family.bounds else self._counted(family)
        for one in (*_health(self._node_health), *_processes(self._rows), *self._collected):
            yield _metric(one.kind, one.name, one.text, one.labels, one.samples)

    def _counted(self, family: Family) -> Metric:
        samples = [
            ((*group, *([value] if family.label else [])), number)
            for group, sums in self._sums(family).items()
            for value, number in zip(family.values or ("",), sums, strict=True)
            if number or len(family.values) <= _ALL_VALUES_LIMIT
        ]
        return _metric(family.kind, family.name, family.text, self._labels(family), samples)

    def _histogram(self, family: Family) -> Metric:
        from prometheus_client import core

        found = core.HistogramMetricFamily(family.name, family.text, labels=self._labels(family))
        for group, sums in self._sums(family).items():
            below, buckets = 0.0, []
            for bound, number in zip((*family.bounds, float("inf")), sums, strict=False):
                below += number
                buckets.append((_bound(bound), below))
            found.add_metric(list(group), buckets, sums[-1])
        return found

    def _by(self, family: Family) -> str:
        """Return the grouping of a family; families by project have no group without rows of
        projects."""
        return "" if family.by == PROJECT and not self._by_project else family.by

    def _labels(self, family: Family) -> list[str]:
        return [label for label in (self._by(family), family.label) if label]

    def _sums(self, family: Family) -> dict[tuple[str, ...], list[float]]:
        """Sum a family's columns over the rows that share labels."""
        first, end = family.first, family.first + family.columns
        found: dict[tuple[str, ...], list[float]] = {}
        for row in self._rows:
            group = _group(self._by(family), row.part)
            if group is None:
                continue
            numbers = row.numbers[first:end]
            before = found.get(group)
            found[group] = (
                list(numbers)
                if before is None
                else [a + b for a, b in zip(before, numbers, strict=True)]
            )
        return found


def _metric(
    kind: str,
    name: str,
    text: str,
    labels: Sequence[str],
    samples: Iterable[tuple[tuple[str, ...], float]],
) -> Metric:
    from prometheus_client import core

    make = core.CounterMetricFamily if kind == COUNTER else core.GaugeMetricFamily
    found = make(name, text, labels=labels)
    for values, number in samples:
        found.add_metric(values, number)
    return found


def _with_old_name(metric: Metric, old: str) -> Metric:
    """Return the same samples under a deprecated name."""
    from prometheus_client import core

    use = metric.name + ("_total" if metric.type == COUNTER else "")
    copy = core.Metric(old, f"{metric.documentation} (deprecated: use {use})", metric.type)
    copy.samples = [
        sample._replace(name=old + sample.name.removeprefix(metric.name))
        for sample in metric.samples
    ]
    return copy


def _bound(bound: float) -> str:
    """Format a bucket's bound as Prometheus does."""
    from prometheus_client.utils import floatToGoString

    return str(floatToGoString(bound))  # type: ignore[no-untyped-call]


_GATEWAYS = frozenset({"http", "mqtt", "scheduler", "chain"})
# Labels of all projects, and of all workers with one project.
_PROJECTS, _DEDICATED = ("project",), ("worker:dedicated",)


def _group(by: str, part: str) -> tuple[str, ...] | None:
    """Return the labels of a row in a family; None if the row does not belong to the family."""
    kind, _, name = part.partition(":")
    is_project = kind in ("project", metrics_table.PROJECTS)
    if by == GATEWAY:
        return (kind,) if kind in _GATEWAYS else None
    if by == CHAIN:
        return (name,) if kind == "chain" else None
    if by == PART:
        if part.startswith(metrics_table.DEDICATED):
            return _DEDICATED
        return _PROJECTS if is_project else (part,)
    if by == PROJECT:
        return (name if kind == "project" else "",) if is_project else None
    return ()


def _health(node_health: health.NodeHealth) -> Iterator[Collected]:
    parts: dict[str, set[str]] = defaultdict(set)
    for condition in node_health.all_conditions:
        parts[condition.state].add(condition.part)
    states = list(health.MEANINGS)
    yield Collected(
        "fieldbrook_health_state",
        "1 while a part of the node is in this state, else 0.",
        GAUGE,
        ("state",),
        [((state,), float(bool(parts[state]))) for state in states],
    )
    yield Collected(
        "fieldbrook_health_parts",
        "Parts of the node that are in this state.",
        GAUGE,
        ("state",),
        [((state,), len(parts[state])) for state in states],
    )
    status, _ = health.readiness(node_health)
    ready = float(status == 200)
    text = "1 while the node is ready to receive events, else 0."
    yield Collected("fieldbrook_ready", text, GAUGE, (), [((), ready)])


def _processes(rows: Iterable[Row]) -> Iterator[Collected]:
    memory: dict[str, float] = defaultdict(float)
    seconds: dict[str, float] = defaultdict(float)
    for row in rows:
        group = _group(PART, row.part)
        # The pid of a project is the pid of its worker.
        found = read_stat(row.pid) if row.pid and group != _PROJECTS else None
        if found is not None and group is not None:
            memory[group[0]] += found.resident
            seconds[group[0]] += found.cpu_s
    yield Collected(
        "fieldbrook_process_resident_memory_bytes",
        "Resident memory of the running processes. Shared memory counts for each process.",
        GAUGE,
        (PART,),
        [((part,), size) for part, size in memory.items()],
    )
    yield Collected(
        "fieldbrook_process_cpu_seconds",
        "CPU time of the running processes since each was started.",
        GAUGE,
        (PART,),
        [((part,), spent) for part, spent in seconds.items()],
    )


class FolderSizes:
    """Sizes of the data folders, cached for `MAX_AGE_S` because a node may have thousands of
    projects."""

    MAX_AGE_S = 15.0

    def __init__(self, data: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._data = data
        self._monotonic = monotonic
        self._at = float("-inf")
        self._sizes: dict[str, int] = {}

    def now(self) -> Mapping[str, int]:
        """Return the bytes on the disk by folder."""
        if self._monotonic() - self._at >= self.MAX_AGE_S:
            names = ("registry", "projects", "journal", "chains", "modules", "refused", "mqtt")
            self._sizes = {name: _size(self._data / name) for name in names}
            self._at = self._monotonic()
        return self._sizes


def _size(folder: Path) -> int:
    """Return the bytes on the disk of the files below a folder; deleted files are skipped."""
    size = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    size += _size(Path(entry.path))
                else:
                    size += _disk_bytes(entry)
    except OSError:
        return size
    return size


def _disk_bytes(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_blocks * 512
    except OSError:
        return 0


def render(node: Node, accept: str) -> tuple[str, bytes]:
    """Render the content type and the text in the format that `Accept` asks for."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder

    registry = CollectorRegistry(auto_describe=False)
    registry.register(node)
    encode, content_type = choose_encoder(accept)
    return content_type, encode(registry)
