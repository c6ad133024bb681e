"""Scenarios of the life cycle: the first event of a project, start-up, memory."""

from __future__ import annotations

import http.client
import json
import resource
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks import report
from benchmarks.baselines.http_peers import HTTP_PEERS, PEER_NAMES, Peer, running_peers
from benchmarks.context import Context, Emit
from benchmarks.measure import BenchmarkError, memory, quantile, tree, wait_for
from benchmarks.node import (
    deploy,
    node_server,
    running_node,
    running_nodes,
    versions,
    wait_until_live,
)
from benchmarks.report import Figures, Table
from benchmarks.scenarios.http_load import require_good
from benchmarks.servers import Device, answers_201, event_path, event_requests
from benchmarks.tools import run_tool
from tests.support.mqtt_client import MqttClient
from tests.support.nodes import RunningNode, part_of

COLD_PROJECTS = 100
FURTHER_PROJECTS = 8
IDLE_CLIENTS = 5_000
FEW_EVENTS = 2_000
MANY_EVENTS = 1_000_000
PEER_EVENTS = 100_000
LIMIT_S = 300.0
FIRST, SECOND = "first event", "second event"
ALONE, PAUSE_S = "first event, alone", 0.2
PROCESS = "tornado, a process of its own"
START_MS = "start ms"


def _round_trips(port: int, devices: Iterable[Device], pause_s: float = 0.0) -> list[float]:
    """One event of each device over one connection, one after the other; milliseconds each.
    `pause_s` before each."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.connect()
    times = []
    for device in devices:
        body = json.dumps(device.message())
        time.sleep(pause_s)
        started = time.perf_counter()
        connection.request("POST", event_path(device.project), body)
        answer = connection.getresponse()
        answer.read()
        times.append((time.perf_counter() - started) * 1e3)
        if answer.status != 201:
            raise BenchmarkError(f"{device.project} answered {answer.status}")
    connection.close()
    return times


def cold(context: Context, emit: Emit) -> None:
    """Latency of the first event of a stopped project, and of the one after it.

    They start in a row, and once more with a pause before each. The baseline is a process for
    each, without a node: a bare Tornado handler, from its start to its first answer.
    """
    count = context.size(COLD_PROJECTS, quick=10)
    title = context.title(f"{count} projects that do not run", timed=False)
    table = Table(
        title,
        report.P50,
        (f"node, {ALONE}", f"node, {SECOND}", PROCESS),
        plots=(report.P50, report.P99),
    )
    if "tornado" not in context.peers:
        table.missing[PROCESS] = "not asked for"
    with context.folder() as folder, running_nodes(context, folder) as nodes:
        devices_of = {
            name: [deploy(node, f"cold{n}")[1][0] for n in range(count)]
            for name, node in nodes.items()
        }
        devices = devices_of["node"]
        for node in nodes.values():
            node.stop()
        for number in range(context.rounds):
            for name, node in nodes.items():
                own_devices = devices_of[name]
                for what, pause_s in ((FIRST, 0.0), (ALONE, PAUSE_S)):
                    node.start(ready=False)
                    wait_until_live(node)
                    times = _round_trips(node.http_port, own_devices, pause_s)
                    table.add(f"{name}, {what}", _quantiles(times))
                    if what == ALONE:
                        times = _round_trips(node.http_port, own_devices)
                        table.add(f"{name}, {SECOND}", _quantiles(times))
                    node.stop()
            if "tornado" in context.peers:
                own = folder / f"round{number}"
                own.mkdir()
                starts = range(context.size(10, quick=2))
                times = [_peer_start_ms(HTTP_PEERS[0], own / f"{n}", devices) for n in starts]
                table.add(PROCESS, _quantiles(times))
    emit(table)


def _quantiles(times: list[float]) -> Figures:
    return {
        report.P50: quantile(times, 0.5),
        report.P99: quantile(times, 0.99),
        "max ms": max(times),
    }


def start_up(context: Context, emit: Emit) -> None:
    """Time from the command to the first event answered 201, which starts the project."""
    missing = {
        peer.name: peer.missing() if peer.name in context.peers else "not asked for"
        for peer in HTTP_PEERS
    }
    table = Table(
        context.title("from the command to the first event answered", timed=False),
        START_MS,
        PEER_NAMES,
        {name: reason for name, reason in missing.items() if reason},
    )
    with context.folder() as folder, running_nodes(context, folder) as nodes:
        devices = [device for node in nodes.values() for device in deploy(node)[1]]
        for node in nodes.values():
            node.stop()
        for number in range(context.rounds):
            for (name, node), device in zip(nodes.items(), devices, strict=True):
                table.add(name, {START_MS: _node_start_ms(node, device)})
            for peer in HTTP_PEERS:
                if not missing[peer.name]:
                    own = folder / f"{peer.name}-{number}"
                    table.add(peer.name, {START_MS: _peer_start_ms(peer, own, devices)})
    emit(table)


def _node_start_ms(node: RunningNode, device: Device) -> float:
    started = time.perf_counter()
    node.start(ready=False)
    wait_for(lambda: answers_201(node.http_port, device), "the node answers an event")
    took = time.perf_counter() - started
    node.stop()
    return took * 1e3


def _peer_start_ms(peer: Peer, folder: Path, devices: list[Device]) -> float:
    folder.mkdir()
    started = time.perf_counter()
    with peer.running(folder, devices):
        return (time.perf_counter() - started) * 1e3


def memory_held(context: Context, emit: Emit) -> None:
    """Memory of node and baselines after a few events, after a million, per project and client."""
    few, many = context.size(FEW_EVENTS, quick=500), context.size(MANY_EVENTS, quick=20_000)
    theirs = context.size(PEER_EVENTS, quick=2_000)
    columns = (report.PSS, report.RSS)
    title = f"memory held; baselines after {theirs:,} events"
    table = Table(title, report.PSS, PEER_NAMES, plots=columns)
    for name, checkout in versions(context).items():
        with context.folder() as folder, running_node(folder, checkout=checkout) as node:
            _, devices = deploy(node)
            server = node_server(node)
            _send(folder, server.port, devices, few)
            table.add(f"{name}, {few:,} events", _held(server.roots))
            if checkout is None:
                for handler, share in (("sum", many // 2), ("kv", many - many // 2)):
                    _send(folder, server.port, devices, share, handler)
                table.add(f"{name}, {many:,} events later", _held(server.roots))
                for part, figures in _parts(server.roots).items():
                    table.add(f"  of it {part}", figures)
            before = _held(server.roots)
            further = [deploy(node, f"more{n}")[1][0] for n in range(FURTHER_PROJECTS)]
            _send(folder, server.port, further, few * FURTHER_PROJECTS)
            together = _held(server.roots)
            added = {key: (together[key] - before[key]) / FURTHER_PROJECTS for key in before}
            table.add(f"{name}, each further project", added)
            clients = context.size(IDLE_CLIENTS, quick=100)
            with _idle_clients(node.mqtt_port, clients):
                idle = _held(server.roots)
                added = {key: idle[key] - together[key] for key in idle}
                table.add(f"{name}, {clients:,} idle MQTT clients", added)
    # Without the node: pages that a baseline in Python shares with it would count half.
    with context.folder() as folder, running_peers(context.peers, folder, devices) as found:
        peers, table.missing = found
        for peer in peers:
            _send(folder, peer.port, devices, theirs, works=peer.works)
            table.add(peer.name, _held(peer.roots))
    emit(table)


def _send(
    folder: Path,
    port: int,
    devices: list[Device],
    count: int,
    handler: str = "sum",
    *,
    works: bool = True,
) -> None:
    requests = event_requests(folder / "requests", devices, handler)
    words = ["-p", port, "-f", requests, "-c", 64, "-d", LIMIT_S, "-w", 0, "-n", count]
    found = run_tool("httpload", *words, "-e", int(works), seconds=LIMIT_S)
    require_good(f"port {port}", found)
    if found["answered"] < count:
        raise BenchmarkError(
            f"only {found['answered']:.0f} of {count} events were answered in time"
        )


@contextmanager
def _idle_clients(port: int, count: int) -> Iterator[None]:
    """MQTT clients that are connected and send nothing."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, count + 1_000)), hard))
    with ExitStack() as opened:
        for number in range(count):
            client = opened.enter_context(MqttClient(port))
            client.connect(f"idle-{number}")
        yield


def _held(roots: tuple[int, ...], *, below: bool = True) -> Figures:
    held = memory(roots, below=below)
    return {report.PSS: held.pss_mib, report.RSS: held.rss_mib}


def _parts(roots: tuple[int, ...]) -> dict[str, Figures]:
    """The processes of a node by what they call themselves."""
    parts: dict[str, Figures] = {}
    for pid in tree(roots):
        alone = _held((pid,), below=False)
        before = parts.get(part_of(pid), dict.fromkeys(alone, 0.0))
        parts[part_of(pid)] = {column: before[column] + value for column, value in alone.items()}
    return parts
