"""What the dashboard costs: pages in a real Chromium, and the streams that pages follow."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from benchmarks.context import Context, Emit
from benchmarks.measure import BenchmarkError, cpu_s
from benchmarks.node import deploy, node_server, running_node
from benchmarks.report import OTHERS, P50, P99, RATE, Figures, Table
from benchmarks.scenarios.http_load import CONNECTIONS, DEVICES, Load, measure
from benchmarks.servers import PROJECT, answers_201, event_requests
from benchmarks.tools import turns
from tests.support.browser import Visit, chromium
from tests.support.nodes import RunningNode, part_of
from tests.support.streams import StreamClient

FIRST, AGAIN = "first ms", "again ms"
GATEWAY, PER_EVENT, TURN = "gateway cores", "gateway us/event", "longest turn ms"
FOLLOWERS = {"nobody": 0, "one page": 1, "ten pages": 10}
EVENT_RATES = (1_000, 5_000, 0)
"""Events/s; 0 is as fast as the node answers."""
FRAMES, TASK, BUSY = "frames p95 ms", "longest task ms", "main thread cores"
HEAP, NODES = "heap MiB", "DOM nodes"
TABS = (
    *("flow", "events", "logs", "letters", "data", "applets", "publishers", "triggers"),
    *("transactions", "console", "settings"),
)
NODE = ("health", "chains", "accounts", "keys", "audit", "refused", "settings", "log")
_SIGN_IN = "button.primary.wide"
# Notes when the frame with the sign-in form is drawn, counted from the start of the navigation.
_WATCH = f"""new MutationObserver(() => {{
  if (!document.querySelector('{_SIGN_IN}')) return;
  requestAnimationFrame(() => (window.drawnAt ??= performance.now()));
}}).observe(document, {{ childList: true, subtree: true }})"""
# The times between frames, and tasks of more than 50 ms (W3C Long Tasks).
_TASKS = """(() => {
  window.seen = { frames: [], tasks: [0] };
  let before = performance.now();
  const frame = (now) => {
    seen.frames.push(now - before);
    before = now;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
  const note = (list) => seen.tasks.push(...list.getEntries().map((one) => one.duration));
  new PerformanceObserver(note).observe({ type: 'longtask', buffered: true });
})()"""
# From the click to the frame that has the page and nothing that is still awaited.
_CHANGE = """(address) => new Promise((drawn) => {
  const begun = performance.now();
  document.querySelector(`a[href="${address}"]`).click();
  const look = () => {
    const whole = document.querySelector('#main h1') && !document.querySelector('#main .waiting');
    const there = location.pathname === address && whole;
    requestAnimationFrame(there ? () => drawn(performance.now() - begun) : look);
  };
  requestAnimationFrame(look);
})"""


def pages(context: Context, emit: Emit) -> None:
    """Pages of the dashboard in Chromium: the sign-in, and from a click until a page is drawn."""
    title = context.title("pages of the dashboard, median ms until drawn", timed=False)
    table = Table(title, main=FIRST, plots=(FIRST, AGAIN))
    with context.folder() as folder, running_node(folder) as node, chromium() as browser:
        _, (device,) = deploy(node)
        sent = [answers_201(node.http_port, device) for _ in range(100)]
        if not all(sent):
            raise BenchmarkError("the node refused events")
        for _ in range(context.rounds):
            for name, figures in _walk(node, browser):
                table.add(name, figures)
    emit(table)


def _sign_in(seen: Visit, address: str) -> None:
    """Open an address, and sign in there."""
    seen.page.goto(address)
    seen.page.get_by_label("Username").fill("admin")
    seen.page.get_by_label("Password").fill("correct horse")
    seen.page.get_by_role("button", name="Sign in", exact=True).click()


def _walk(node: RunningNode, browser: Any) -> Iterator[tuple[str, Figures]]:
    """One round: a new browser signs in and opens every page twice."""
    address = f"http://localhost:{node.dashboard_port}"
    seen = Visit(browser, address, expected=["status of 401"], watch=_WATCH)
    drawn = []
    for _ in range(2):
        seen.page.goto(f"{address}/signin")
        drawn.append(seen.page.wait_for_function("() => window.drawnAt").json_value())
    yield "sign-in", {FIRST: drawn[0], AGAIN: drawn[1]}
    _sign_in(seen, address)
    seen.page.get_by_role("heading", name="Overview").wait_for()
    project = f"/projects/{PROJECT}"
    within = [f"{project}/{tab}" for tab in TABS]
    outside = ["/projects", *(f"/node/{name}" for name in NODE), "/"]
    found: dict[str, list[float]] = {}
    for _ in range(2):
        for address in (*outside, project, *within):
            took = seen.page.evaluate(_CHANGE, address)
            found.setdefault(address, []).append(took)
    for address, (first, again) in found.items():
        yield address, {FIRST: first, AGAIN: again}
    seen.close()


def tail(context: Context, emit: Emit) -> None:
    """A page in Chromium that shows the events of a project live: frames, tasks, memory."""
    with context.folder() as folder, running_node(folder) as node, chromium() as browser:
        _, devices = deploy(node, devices=DEVICES)
        load = Load(node_server(node), event_requests(folder / "events", devices))
        measure(load, CONNECTIONS, context.seconds)
        address = f"http://localhost:{node.dashboard_port}"
        seen = Visit(browser, f"{address}", expected=["status of 401"], watch=_TASKS)
        _sign_in(seen, f"{address}/projects/{PROJECT}/events")
        seen.page.get_by_role("heading", name=PROJECT).wait_for()
        for rate in EVENT_RATES[:2]:
            table = Table(context.title(f"a page that follows {rate:,} events/s"), main=FRAMES)
            for _ in range(context.rounds):
                table.add("the page", _watched(seen, load, rate, context.seconds))
            emit(table)
        seen.close()


def _watched(seen: Visit, load: Load, rate: int, seconds: float) -> Figures:
    """What a page does while its list grows. Heap and nodes are those after a collection."""
    devtools = seen.context.new_cdp_session(seen.page)
    devtools.send("Performance.enable")

    def read() -> dict[str, float]:
        answer = devtools.send("Performance.getMetrics")
        return {each["name"]: each["value"] for each in answer["metrics"]}

    seen.page.evaluate("() => { window.seen.frames = []; window.seen.tasks = [0]; }")
    before, at = read(), time.monotonic()
    figures = measure(load, CONNECTIONS, seconds, rate)
    after, passed_s = read(), time.monotonic() - at
    frames, tasks = seen.page.evaluate("() => [window.seen.frames, window.seen.tasks]")
    devtools.send("HeapProfiler.collectGarbage")
    held = read()
    devtools.detach()
    return {
        RATE: figures[RATE],
        FRAMES: sorted(frames)[int(len(frames) * 0.95)],
        TASK: max(tasks),
        BUSY: (after["TaskDuration"] - before["TaskDuration"]) / passed_s,
        HEAP: held["JSHeapUsedSize"] / (1 << 20),
        NODES: held["Nodes"],
        OTHERS: figures[OTHERS],
    }


def followers(context: Context, emit: Emit) -> None:
    """The CPU and the longest turn of the gateway, with 0, 1 and 10 pages that follow events."""
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
            table = Table(title, main=main, baselines=["nobody"], plots=(PER_EVENT, P99))
            for _ in range(context.rounds):
                for name, number in FOLLOWERS.items():
                    with _following(node, number):
                        figures = _beside(load, gateway, folder, rate, context.seconds)
                    table.add(name, figures)
            emit(table)


def _beside(load: Load, gateway: int, folder: Path, rate: int, seconds: float) -> Figures:
    used, at = cpu_s([gateway]), time.monotonic()
    figures = measure(load, CONNECTIONS, seconds, rate)
    cores = (cpu_s([gateway]) - used) / (time.monotonic() - at)
    return {
        RATE: figures[RATE],
        GATEWAY: cores,
        PER_EVENT: cores / figures[RATE] * 1e6,
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
