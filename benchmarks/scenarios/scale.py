"""Scenarios of scale: many active projects, publishers, registered projects."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.baselines.http_peers import PEER_NAMES, running_peers
from benchmarks.context import Context, Emit
from benchmarks.measure import wait_for
from benchmarks.node import BEFORE, deploy, node_server, running_node, running_nodes
from benchmarks.registry import fill_projects, fill_publishers
from benchmarks.report import RATE, Figures, Table
from benchmarks.scenarios.http_load import CONNECTIONS, KINDS, Load, compare, renamed
from benchmarks.servers import Device, Server, answers_201, check, event_requests

PROJECT_COUNTS = (1, 8, 64, 1_000)
_MOST_BEFORE = 64
PUBLISHERS = 100_000
REGISTERED = 10_000
START, FILL = "start s", "fill s"

Fill = Callable[[Path, Device, int], list[Device]]


def projects_at_once(context: Context, emit: Emit) -> None:
    """The same load over 1, 8, 64 and 1,000 projects, which share the workers.

    The node of `--before` gets 64: a thousand are a thousand processes there.
    """
    with context.folder() as folder, running_nodes(context, folder) as nodes:
        counts = [count for count in PROJECT_COUNTS if count <= context.size(1_000, quick=8)]
        senders: list[tuple[Server, list[Device]]] = []
        for name, node in nodes.items():
            most = min(counts[-1], _MOST_BEFORE) if name == BEFORE else counts[-1]
            devices = [deploy(node, f"p{number}")[1][0] for number in range(most)]
            senders.append((node_server(node, name), devices))
            for device in devices:
                check(senders[-1][0], device)
        with running_peers(context.peers, folder, senders[0][1]) as (peers, missing):
            for handler in ("sum", "kv"):
                loads = []
                for server, devices in senders:
                    for count in [count for count in counts if count <= len(devices)]:
                        row = f"{server.name}, {count} of {len(devices)} projects"
                        some = event_requests(
                            folder / f"{handler}, {row}", devices[:count], handler
                        )
                        loads.append(Load(renamed(server, row), some))
                all_of_them = event_requests(folder / f"{handler}, all", senders[0][1], handler)
                loads += [Load(peer, all_of_them) for peer in peers]
                what = f"{KINDS[handler]}, over several projects, {CONNECTIONS} connections"
                table = Table(context.title(what), baselines=PEER_NAMES, missing=missing)
                emit(compare(table, loads, context, CONNECTIONS))


def publishers(context: Context, emit: Emit) -> None:
    """One publisher, and 100,000 of one project that send in random order."""
    counts = (1, context.size(PUBLISHERS, quick=1_000))
    _filled(context, emit, "publishers", fill_publishers, counts)


def registered_projects(context: Context, emit: Emit) -> None:
    """One project in use, alone and beside 9,999 others that are registered."""
    counts = (1, context.size(REGISTERED, quick=100))
    _filled(context, emit, "registered projects", fill_projects, counts)


def _filled(context: Context, emit: Emit, what: str, fill: Fill, counts: Sequence[int]) -> None:
    """Measure a node for each count, beside a Tornado handler that has the same tokens."""
    title = context.title(f"{what}: payload read, one project used, {CONNECTIONS} connections")
    baselines = [f"tornado, {count:,}" for count in counts]
    table = Table(title, baselines=baselines, plots=(RATE, START))
    times: dict[str, Figures] = {}
    with ExitStack() as stack:
        loads = []
        for count in counts:
            folder = stack.enter_context(context.folder())
            node, senders = _fill_node(stack, times, folder, fill, count)
            loads.append(Load(node, event_requests(folder / "requests", senders)))
            wanted = [name for name in context.peers if name == "tornado"]
            peers, missing = stack.enter_context(running_peers(wanted, folder, senders))
            table.missing |= {name: why for name, why in missing.items() if name == "tornado"}
            for peer in peers:
                name = f"{peer.name}, {count:,}"
                loads.append(Load(renamed(peer, name), loads[-1].requests))
        compare(table, loads, context, CONNECTIONS)
    for name, figures in times.items():
        table.add(name, figures)
    emit(table)


def _fill_node(
    stack: ExitStack, times: dict[str, Figures], folder: Path, fill: Fill, count: int
) -> tuple[Server, list[Device]]:
    """A node whose registry was filled, and who sends to it in which order; adds to `times`."""
    node = stack.enter_context(running_node(folder))
    _, devices = deploy(node)
    node.stop()
    started = time.monotonic()
    senders = fill(node.data, devices[0], count)
    filled = time.monotonic()
    random.Random(1).shuffle(senders)
    node.start(ready=False)
    restarted = time.monotonic()
    wait_for(lambda: answers_201(node.http_port, senders[0]), "the node takes events")
    server = node_server(node, f"node, {count:,}")
    times[server.name] = {FILL: filled - started, START: time.monotonic() - restarted}
    check(server, senders[0])
    return server, senders
