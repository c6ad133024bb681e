"""The metrics of `GET /metrics`, from the declarations of the collectors, for
scripts/reference.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from fieldbrook.core.settings import Chain
from fieldbrook.gateway.metrics import collectors, prometheus
from fieldbrook.observability import health

Row = tuple[str, str, str, str]
"""Name, type, labels and description, as Markdown."""


class _NoData(int):
    """Replaces any source of values: each of its attributes, calls and items is 0 and empty."""

    def __getattr__(self, name: str) -> _NoData:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: object, **__: object) -> _NoData:
        return self

    def __getitem__(self, _: object) -> _NoData:
        return self

    def __contains__(self, _: object) -> bool:
        return False

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0


class _Settings(_NoData):
    chains = (Chain(name="dev", id=31337, endpoints=("http://127.0.0.1:8545",)),)
    data = Path("/nonexistent")


def metric_table() -> list[Row]:
    """Return all metrics by name, without old names of renamed ones."""
    nothing = cast(Any, _NoData())
    collect = collectors.Collector(cast(Any, _Settings()), nothing, lambda _: nothing)
    node = prometheus.Node("", (), health.NodeHealth(), collect())
    rows = [_row(metric) for metric in node.collect() if "deprecated:" not in metric.documentation]
    return sorted(rows)


def _row(metric: Any) -> Row:
    suffix = {"counter": "_total", "info": "_info"}.get(metric.type, "")
    labels = ", ".join(f"`{label}`" for label in metric._labelnames)
    return f"`{metric.name}{suffix}`", metric.type, labels, metric.documentation
