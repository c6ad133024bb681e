"""Scenarios of events over HTTP: single, in batches, at fixed rates, by what handlers do."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import report
from benchmarks.baselines.http_peers import PEER_NAMES, running_peers
from benchmarks.context import Context, Emit
from benchmarks.measure import BenchmarkError, CpuUsage, memory
from benchmarks.node import deploy, node_server, running_node, running_nodes
from benchmarks.report import Figures, Table
from benchmarks.servers import (
    Device,
    Server,
    check,
    event_path,
    event_requests,
    write_requests,
)
from benchmarks.tools import run_tool
from tests.support.nodes import RunningNode

DEVICES = 50
SINGLE_CONNECTIONS = (1, 16, 64, 256)
CONNECTIONS = 64
BATCH = 100
BATCH_CONNECTIONS = 8
RATES = (2_000, 5_000, 10_000)
KINDS = {
    "sum": "payload read",
    "kv": "one key written",
    "tally": "one key read and written",
    "spin": "half a million steps of computing",
}
SHARED_PROJECT, SHARED = "shared", "shared instance"
NOT_SENT = "not sent %"
ONE_EACH = "tornado, one each"  # event per request, not a batch
_WARM_S = 0.7
_LIMIT = 5_000_000  # requests of one measurement


@dataclass(frozen=True)
class Load:
    """Requests and the server that they are sent to; a request carries `events` events."""

    server: Server
    requests: Path
    events: int = 1


def measure(load: Load, connections: int, seconds: float, rate: float = 0) -> Figures:
    """Send to one server for some seconds; `rate` 0 is as fast as it answers.

    Raises:
        BenchmarkError: an answer was not 201, had not a good result for each event, or
            never came.
    """
    words: list[object] = ["-p", load.server.port, "-f", load.requests, "-c", connections]
    words += ["-d", seconds, "-w", min(_WARM_S, seconds), "-r", rate, "-n", _LIMIT]
    words += ["-e", load.events if load.server.works else 0]
    with CpuUsage(load.server.roots) as watch:
        found = run_tool("httpload", *words, seconds=seconds + _WARM_S)
    require_good(load.server.name, found)
    held = memory(load.server.roots)
    figures = {
        report.RATE: found["timed"] * load.events / found["seconds"],
        report.P50: found["p50"] / 1e3,
        report.P99: found["p99"] / 1e3,
        report.CPU: watch.used_s / (found["answered"] * load.events) * 10_000,
        report.PSS: held.pss_mib,
        report.RSS: held.rss_mib,
        report.OTHERS: watch.other_cores,
    }
    return figures | ({NOT_SENT: found["unsent"] / found["due"] * 100} if rate else {})


def require_good(server: str, found: dict[str, float]) -> None:
    """What `httpload` found must be answers, all of them good.

    Raises:
        BenchmarkError: otherwise.
    """
    if found["bad"] or found["unanswered"] or not found["timed"]:
        raise BenchmarkError(
            f"{server}: {found['bad']:.0f} of {found['answered']:.0f} answers were not 201 with "
            f"good results (the first was {found['bad_status']:.0f}); {found['unanswered']:.0f} "
            "never came"
        )


def compare(
    table: Table, loads: Sequence[Load], context: Context, connections: int, rate: float = 0
) -> Table:
    """Measure servers in turn, so that other load on the machine affects all of them."""
    for _ in range(context.rounds):
        for load in loads:
            table.add(load.server.name, measure(load, connections, context.seconds, rate))
    return table


def renamed(server: Server, name: str) -> Server:
    """The same server under another name."""
    return dataclasses.replace(server, name=name)


@dataclass(frozen=True)
class _Case:
    """A way to use a node, which is a row of the table: who sends, and what the events ask for."""

    server: Server
    devices: Sequence[Device]
    handler: str


def _cases(nodes: Mapping[str, RunningNode]) -> list[_Case]:
    """The payload read, one key written and synced, and the first with a shared instance."""
    cases = []
    for name, node in nodes.items():
        _, own = deploy(node, devices=DEVICES)
        _, shared = deploy(node, SHARED_PROJECT, DEVICES, "BATCH")
        cases += [
            _Case(node_server(node, f"{name}, {KINDS['sum']}"), own, "sum"),
            _Case(node_server(node, f"{name}, {KINDS['kv']}"), own, "kv"),
            _Case(node_server(node, f"{name}, {KINDS['sum']}, {SHARED}"), shared, "sum"),
        ]
    for case in cases:
        check(case.server, case.devices[0], case.handler)
    return cases


def _singles(folder: Path, cases: Sequence[_Case]) -> list[Load]:
    """One event per request."""
    return [
        Load(
            case.server,
            event_requests(folder / f"{case.server.name}.requests", case.devices, case.handler),
        )
        for case in cases
    ]


def http_single(context: Context, emit: Emit) -> None:
    """One event per request at 1, 16, 64 and 256 connections, as fast as they are answered."""
    with context.folder() as folder, running_nodes(context, folder) as nodes:
        cases = _cases(nodes)
        with running_peers(context.peers, folder, cases[0].devices) as (peers, missing):
            loads = _singles(folder, cases)
            loads += [Load(peer, loads[0].requests) for peer in peers]
            for connections in SINGLE_CONNECTIONS:
                title = context.title(f"one event per request, {connections} connections")
                table = Table(title, baselines=PEER_NAMES, missing=missing)
                emit(compare(table, loads, context, connections))


def smallest(context: Context, emit: Emit) -> None:
    """One event per request on one connection: a quick check that everything works."""
    with context.folder() as folder, running_nodes(context, folder) as nodes:
        cases = _cases(nodes)
        with running_peers(context.peers, folder, cases[0].devices) as (peers, missing):
            loads = _singles(folder, cases)
            loads += [Load(peer, loads[0].requests) for peer in peers]
            title = context.title("one event per request, 1 connection")
            emit(compare(Table(title, baselines=PEER_NAMES, missing=missing), loads, context, 1))


def http_batch(context: Context, emit: Emit) -> None:
    """A hundred events per request, `{"events": [...]}`, for node and baselines.

    Tornado is also measured with one event per request: what a batch saves.
    """
    with context.folder() as folder, running_nodes(context, folder) as nodes:
        loads = []
        cases = _cases(nodes)
        for case in cases:
            events = [d.message(case.handler) for d in case.devices] * (BATCH // DEVICES)
            batch = (event_path(case.devices[0].project), {"events": events})
            requests = write_requests(folder / f"{case.server.name}.batch", [batch])
            loads.append(Load(case.server, requests, BATCH))
        devices = cases[0].devices
        with running_peers(context.peers, folder, devices) as (peers, missing):
            loads += [Load(peer, loads[0].requests, BATCH) for peer in peers]
            single = event_requests(folder / "single", devices)
            unbatched = [peer for peer in peers if peer.name == "tornado"]
            loads += [Load(renamed(peer, ONE_EACH), single) for peer in unbatched]
            title = context.title(f"{BATCH} events per request, {BATCH_CONNECTIONS} connections")
            table = Table(title, baselines=(*PEER_NAMES, ONE_EACH), missing=missing)
            emit(compare(table, loads, context, BATCH_CONNECTIONS))


def open_loop(context: Context, emit: Emit) -> None:
    """Latency at 2,000, 5,000 and 10,000 events/s, counted from when an event was due.

    A server that cannot keep up has a high latency: nothing is sent later than 2 s after the
    end, and events that were due count with the time they have waited.
    """
    with context.folder() as folder, running_nodes(context, folder) as nodes:
        cases = _cases(nodes)
        with running_peers(context.peers, folder, cases[0].devices) as (peers, missing):
            loads = _singles(folder, cases)
            loads += [Load(peer, loads[0].requests) for peer in peers]
            for rate in RATES:
                title = context.title(f"{rate:,} events/s due, {CONNECTIONS} connections")
                table = Table(title, report.P99, PEER_NAMES, missing, (report.P50, report.P99))
                emit(compare(table, loads, context, CONNECTIONS, rate))


def handler_kinds(context: Context, emit: Emit) -> None:
    """Payload read, key-value written, read and written, and half a million steps of computing.

    Baselines do the same: they keep keys in memory, unsynced, and compute in WebAssembly.
    """
    with context.folder() as folder, running_node(folder) as node:
        _, devices = deploy(node, devices=DEVICES)
        _, sharing = deploy(node, SHARED_PROJECT, DEVICES, "BATCH")
        server = node_server(node)
        with running_peers(context.peers, folder, devices) as (peers, missing):
            for handler, what in KINDS.items():
                requests = event_requests(folder / handler, devices, handler)
                for one in (server, *peers):
                    check(one, devices[0], handler)
                loads = [Load(one, requests) for one in (server, *peers)]
                shared = event_requests(folder / f"{handler}.shared", sharing, handler)
                loads.insert(1, Load(renamed(server, f"node, {SHARED}"), shared))
                title = context.title(f"{what}, {CONNECTIONS} connections")
                table = Table(title, baselines=PEER_NAMES, missing=missing)
                emit(compare(table, loads, context, CONNECTIONS))
