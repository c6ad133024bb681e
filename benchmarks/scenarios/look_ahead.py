"""One project's heavy handlers on several cores."""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks.context import Context, Emit
from benchmarks.node import deploy, node_server, running_node
from benchmarks.report import Table
from benchmarks.scenarios.http_load import CONNECTIONS, DEVICES, KINDS, Load, compare, measure
from benchmarks.servers import check, event_requests

THREADS = (1, 2, 3)
HANDLERS = ("spin", "sum")
_SETTLE_S = 2.0  # handlers are found heavy


def look_ahead(context: Context, emit: Emit) -> None:
    """Computing and reading a payload with one, two and three threads for a project."""
    names = [f"node, {count} thread{'s' if count > 1 else ''}" for count in THREADS]
    with ExitStack() as stack:
        nodes = []
        for count, name in zip(THREADS, names, strict=True):
            folder = stack.enter_context(context.folder())
            flags = ("--handler-threads", str(count), "--workers", "1")
            node = stack.enter_context(running_node(folder, *flags))
            _, devices = deploy(node, devices=DEVICES)
            nodes.append((folder, node_server(node, name), devices))
        for handler in HANDLERS:
            loads = []
            for folder, server, devices in nodes:
                check(server, devices[0], handler)
                loads.append(Load(server, event_requests(folder / handler, devices, handler)))
            for load in loads:
                measure(load, CONNECTIONS, _SETTLE_S)
            title = context.title(f"{KINDS[handler]}, one project, {CONNECTIONS} connections")
            emit(compare(Table(title, baselines=names[:1]), loads, context, CONNECTIONS))
