"""Scenarios of many: projects at once, publishers, registered projects."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.context import Context, Emit
from benchmarks.http_load import CONNECTIONS, KINDS, Load, compare, renamed
from benchmarks.http_peers import PEER_NAMES, running_peers
from benchmarks.measure import wait_for
from benchmarks.node import deploy, node_server, running_node
from benchmarks.registry import fill_projects, fill_publishers
from benchmarks.report import RATE, Table
from benchmarks.servers import Device, Server, answers_201, check, event_requests

PROJECT_COUNTS = (1, 8, 64)
PUBLISHERS = 100_000
REGISTERED = 10_000
START, FILL = "start s", "fill s"

Fill = Callable[[Path, Device, int], list[Device]]


def projects_at_once(context: Context, emit: Emit) -> None:
    """The same load over 1, 8 and 64 projects, each in a process of its own."""
    with context.folder() as folder, running_node(folder) as node:
        counts = [count for count in PROJECT_COUNTS if count <= context.size(64, quick=8)]
        devices = [deploy(node, f"p{number}")[1][0] for number in range(counts[-1])]
        server = node_server(node)
        for device in devices:
            check(server, device)
        with running_peers(context.peers, folder, devices) as (peers, missing):
            for handler in ("sum", "kv"):
                loads = []
                for count in counts:
                    some = event_requests(folder / f"{handler}-{count}", devices[:count], handler)
                    loads.append(
                        Load(renamed(server, f"node, {count} of {counts[-1]} projects"), some)
                    )
                loads += [Load(peer, loads[-1].requests) for peer in peers]
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
    plots = (RATE, START)
    table = Table(title, baselines=[f"tornado, {n:,}" for n in counts], plots=plots)
    for count in counts:
        _measure_filled(context, table, fill, count)
    emit(table)


def _measure_filled(context: Context, table: Table, fill: Fill, count: int) -> None:
    with context.folder() as folder, running_node(folder) as node:
        _, devices = deploy(node)
        node.stop()
        started = time.monotonic()
        senders = fill(node.data, devices[0], count)
        filled = time.monotonic()
        random.Random(1).shuffle(senders)
        node.start(ready=False)
        restarted = time.monotonic()
        wait_for(lambda: answers_201(node.http_port, senders[0]), "the node takes events")
        times = {FILL: filled - started, START: time.monotonic() - restarted}
        server = node_server(node, f"node, {count:,}")
        check(server, senders[0])
        _beside_tornado(table, server, folder, senders, context)
        table.add(server.name, times)


def _beside_tornado(
    table: Table, server: Server, folder: Path, senders: Sequence[Device], context: Context
) -> None:
    requests = event_requests(folder / "requests", senders)
    wanted = [name for name in context.peers if name == "tornado"]
    with running_peers(wanted, folder, senders) as (peers, missing):
        if "tornado" in missing:
            table.missing["tornado"] = missing["tornado"]
        loads = [Load(server, requests)]
        for peer in peers:
            name = server.name.replace("node", peer.name)
            loads.append(Load(renamed(peer, name), requests))
        compare(table, loads, context, CONNECTIONS)
