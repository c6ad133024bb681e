"""What pages that follow events live cost the node: the streams of pages, without a browser."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.synchronize import Event
from pathlib import Path

from benchmarks.context import Context, Emit
from benchmarks.measure import BenchmarkError, cpu_s
from benchmarks.node import deploy, node_server, running_node
from benchmarks.report import CPU, OTHERS, P50, P99, RATE, Budgets, Figures, Table
from benchmarks.scenarios.http_load import CONNECTIONS, DEVICES, Load, measure
from benchmarks.servers import PROJECT, event_requests
from benchmarks.tools import turns
from tests.support.nodes import RunningNode, part_of
from tests.support.streams import StreamClient

GATEWAY, PER_EVENT, TURN = "gateway cores", "gateway us/event", "longest turn ms"
NOBODY = "nobody"
FOLLOWERS = {NOBODY: 0, "one page": 1, "ten pages": 10}
EVENT_RATES = (1_000, 5_000, 0)
"""Events/s; 0 is as fast as the node answers."""
CORES_LIMIT, TURN_LIMIT_MS, RATE_LIMIT, P99_LIMIT = 0.05, 5, 5, 10
"""Cores of the gateway and per cents of rate and latency, each against nobody who follows."""


def followers(context: Context, emit: Emit) -> Budgets:
    """The CPU and the longest turn of the gateway, with 0, 1 and 10 pages that follow events."""
    budgets: Budgets = []
    with (
        context.folder() as folder,
        running_node(folder, environment=turns.environment(folder)) as node,
    ):
        server = node_server(node)
        _, devices = deploy(node, devices=DEVICES)
        load = Load(server, event_requests(folder / "events", devices))
        (gateway,) = [pid for pid in node.processes() if part_of(pid) == "fb-http:0"]
        measure(load, CONNECTIONS, context.seconds)  # the project runs and its caches are warm
        for rate in EVENT_RATES:
            events = f"{rate:,} events/s" if rate else "as many events as are answered"
            title = context.title(f"{events}, and pages that follow them")
            main = GATEWAY if rate else RATE
            table = Table(title, main=main, baselines=[NOBODY], plots=(PER_EVENT, P99))
            for _ in range(context.rounds):
                for name, number in FOLLOWERS.items():
                    with _following(node, number):
                        figures = _beside(load, gateway, folder, rate, context.seconds)
                    table.add(name, figures)
            emit(table)
            budgets += _budgets(table, events, limited=rate > 0)
    return budgets


def _budgets(table: Table, events: str, *, limited: bool) -> Budgets:
    """What pages add to the rounds of nobody, and the turns of the loop."""
    found: Budgets = []
    for name in FOLLOWERS:
        turn = max(table.values(name, TURN))
        found.append((f"{events}, {name}: longest turn, ms", turn, TURN_LIMIT_MS))
        if name == NOBODY:
            continue
        if limited:
            more = _against_nobody(table, name, GATEWAY, lambda own, alone: own - alone)
            found.append((f"{events}, {name}: more cores of the gateway", more, CORES_LIMIT))
            continue
        less = _against_nobody(table, name, RATE, lambda own, alone: (1 - own / alone) * 100)
        # On a machine with other load the rate says little, and the processor time more.
        more = _against_nobody(table, name, CPU, lambda own, alone: (own / alone - 1) * 100)
        longer = _against_nobody(table, name, P99, lambda own, alone: (own / alone - 1) * 100)
        found.append((f"{events}, {name}: fewer of them, %", less, RATE_LIMIT))
        found.append((f"{events}, {name}: more CPU for each, %", more, RATE_LIMIT))
        found.append((f"{events}, {name}: longer p99, %", longer, P99_LIMIT))
    return found


def _against_nobody(
    table: Table, name: str, column: str, compare: Callable[[float, float], float]
) -> float:
    """The median over the rounds: both sides of a round meet the same other load."""
    pairs = zip(table.values(name, column), table.values(NOBODY, column), strict=True)
    return statistics.median(compare(own, alone) for own, alone in pairs)


def _beside(load: Load, gateway: int, folder: Path, rate: int, seconds: float) -> Figures:
    used, at = cpu_s([gateway]), time.monotonic()
    figures = measure(load, CONNECTIONS, seconds, rate)
    cores = (cpu_s([gateway]) - used) / (time.monotonic() - at)
    return {
        RATE: figures[RATE],
        GATEWAY: cores,
        PER_EVENT: cores / figures[RATE] * 1e6,
        CPU: figures[CPU],
        TURN: turns.longest_ms(folder, gateway, at),
        P50: figures[P50],
        P99: figures[P99],
        OTHERS: figures[OTHERS],
    }


@contextmanager
def _following(node: RunningNode, number: int) -> Iterator[None]:
    """That many pages follow the events of the project, while the block runs."""
    if not number:
        yield
        return
    over, ready = multiprocessing.Event(), multiprocessing.Event()
    arguments = node.dashboard_port, node.token, number, ready, over
    process = multiprocessing.Process(target=_follow, args=arguments)
    process.start()
    try:
        if not ready.wait(10):
            raise BenchmarkError("the streams did not begin")
        yield
    finally:
        over.set()
        process.join(10)
        if process.exitcode != 0:
            process.kill()


def _follow(port: int, token: str, number: int, ready: Event, over: Event) -> None:
    with ExitStack() as streams:
        clients = []
        for _ in range(number):
            client = StreamClient(port, token, host="localhost")
            streams.callback(client.close)
            client.follow(1, "events", project=PROJECT)
            client.next()
            clients.append(client)
        ready.set()
        while not over.is_set():
            for client in clients:
                with suppress(TimeoutError):
                    client.socket.recv(0.25 / number)
