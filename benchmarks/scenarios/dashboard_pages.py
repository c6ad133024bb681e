"""Pages of the dashboard in a real Chromium: how long they take, and what a live list costs."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.context import Context, Emit
from benchmarks.measure import BenchmarkError, wait_for
from benchmarks.node import deploy, node_server, running_node
from benchmarks.report import OTHERS, RATE, Budgets, Figures, Table
from benchmarks.scenarios.http_load import CONNECTIONS, DEVICES, Load, measure
from benchmarks.servers import PROJECT, answers_201, event_requests, spawned
from tests.support.browser import Visit, chromium
from tests.support.tools import free_port

FIRST, AGAIN = "first ms", "again ms"
FIRST_ASKED, AGAIN_ASKED = "first requests", "again requests"
SIGN_IN, BARE = "sign-in", "bare page"
DRAWN_LIMIT_MS, AT_ONCE_LIMIT_MS = 300, 100
"""With a request and without any, files of the page included."""
EVENT_RATES = (1_000, 5_000)
FRAMES, TASK, BUSY = "frames p95 ms", "longest task ms", "main thread cores"
HEAP, NODES = "heap MiB", "DOM nodes"
TAIL_LIMITS = {FRAMES: 33, BUSY: 0.25, HEAP: 30, NODES: 3_000}
TABS = (
    *("flow", "events", "logs", "letters", "data", "applets", "publishers", "triggers"),
    *("transactions", "console", "settings"),
)
NODE = ("health", "chains", "accounts", "keys", "audit", "refused", "settings", "log")
_SIGN_IN = "button.primary.wide"
# What a browser takes for the smallest page with a module that makes the same button.
_BARE = """<!doctype html><title>bare</title><link rel="icon" href="data:,">
<script type="module">
const made = Object.assign(document.createElement('button'), { className: 'primary wide' });
document.body.append(made);
</script>"""
# Notes when the frame with the sign-in form is drawn, counted from the start of the navigation.
_WATCH = f"""performance.setResourceTimingBufferSize(10_000);
new MutationObserver(() => {{
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
  const loaded = () => performance.getEntriesByType('resource').length;
  const before = loaded(), begun = performance.now();
  document.querySelector(`a[href="${address}"]`).click();
  const look = () => {
    const whole = document.querySelector('#main h1') && !document.querySelector('#main .waiting');
    const there = location.pathname === address && whole;
    const end = () => drawn([performance.now() - begun, loaded() - before]);
    requestAnimationFrame(there ? end : look);
  };
  requestAnimationFrame(look);
})"""


def pages(context: Context, emit: Emit) -> Budgets:
    """From the address to the sign-in, and from a click until a page is drawn."""
    signing_in = Table(
        context.title("the sign-in in a new browser, and once more; ms until drawn", timed=False),
        main=FIRST,
        baselines=[BARE],
    )
    table = Table(context.title("pages, ms from the click until drawn", timed=False), main=FIRST)
    with context.folder() as folder, running_node(folder) as node, chromium() as browser:
        _, (device,) = deploy(node)
        if not all(answers_201(node.http_port, device) for _ in range(100)):
            raise BenchmarkError("the node refused events")
        for _ in range(context.rounds):
            with _bare_page(folder) as address:
                seen = Visit(browser, address, watch=_WATCH)
                signing_in.add(BARE, _opened(seen, address))
                seen.close()
            address = f"http://localhost:{node.dashboard_port}"
            seen = Visit(browser, address, expected=["status of 401"], watch=_WATCH)
            signing_in.add(SIGN_IN, _opened(seen, f"{address}/signin"))
            for name, figures in _walk(seen, address):
                table.add(name, figures)
            seen.close()
    emit(signing_in)
    emit(table)
    figures = signing_in.medians()[SIGN_IN]
    budgets = [(f"{SIGN_IN}, {which}", figures[which], DRAWN_LIMIT_MS) for which in (FIRST, AGAIN)]
    return budgets + _slowest(table)


def _slowest(table: Table) -> Budgets:
    """The slowest page that sent requests, and the slowest that sent none."""
    found: dict[int, tuple[float, str]] = {}
    for name, figures in table.medians().items():
        for took, asked in ((FIRST, FIRST_ASKED), (AGAIN, AGAIN_ASKED)):
            limit = DRAWN_LIMIT_MS if figures[asked] else AT_ONCE_LIMIT_MS
            found[limit] = max(found.get(limit, (0, "")), (figures[took], f"{name}, {took}"))
    return [(f"slowest page: {which}", took, limit) for limit, (took, which) in found.items()]


@contextmanager
def _bare_page(folder: Path) -> Iterator[str]:
    site = folder / "bare"
    site.mkdir(exist_ok=True)
    (site / "index.html").write_text(_BARE)
    port = free_port()
    command = [sys.executable, "-m", "http.server", port, "-b", "127.0.0.1", "-d", site]
    with spawned(command, folder / "bare.log"):
        wait_for(lambda: _is_open(port), "the bare page is served")
        yield f"http://localhost:{port}"


def _is_open(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def _opened(seen: Visit, address: str) -> Figures:
    """How long a page takes until it has the button, the first time and again."""
    drawn = []
    for _ in range(2):
        seen.page.goto(address)
        drawn.append(seen.page.wait_for_function("() => window.drawnAt").json_value())
    return {FIRST: drawn[0], AGAIN: drawn[1]}


def _sign_in(seen: Visit, address: str) -> None:
    """Open an address, and sign in there."""
    seen.page.goto(address)
    seen.page.get_by_label("Username").fill("admin")
    seen.page.get_by_label("Password").fill("correct horse")
    seen.page.get_by_role("button", name="Sign in", exact=True).click()


def _walk(seen: Visit, address: str) -> Iterator[tuple[str, Figures]]:
    """One round: sign in and open every page twice."""
    _sign_in(seen, address)
    seen.page.get_by_role("heading", name="Overview").wait_for()
    project = f"/projects/{PROJECT}"
    within = [f"{project}/{tab}" for tab in TABS]
    outside = ["/projects", *(f"/node/{name}" for name in NODE), "/"]
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(2):
        for path in (*outside, project, *within):
            found.setdefault(path, []).append(seen.page.evaluate(_CHANGE, path))
    for path, ((first, asked), (again, asked_again)) in found.items():
        yield path, {FIRST: first, FIRST_ASKED: asked, AGAIN: again, AGAIN_ASKED: asked_again}


def tail(context: Context, emit: Emit) -> Budgets:
    """A page in Chromium that shows the events of a project live: frames, tasks, memory."""
    budgets: Budgets = []
    with context.folder() as folder, running_node(folder) as node, chromium() as browser:
        _, devices = deploy(node, devices=DEVICES)
        load = Load(node_server(node), event_requests(folder / "events", devices))
        measure(load, CONNECTIONS, context.seconds)
        address = f"http://localhost:{node.dashboard_port}"
        seen = Visit(browser, f"{address}", expected=["status of 401"], watch=_TASKS)
        _sign_in(seen, f"{address}/projects/{PROJECT}/events")
        seen.page.get_by_role("heading", name=PROJECT).wait_for()
        for rate in EVENT_RATES:
            table = Table(context.title(f"a page that follows {rate:,} events/s"), main=FRAMES)
            for _ in range(context.rounds):
                table.add("the page", _watched(seen, load, rate, context.seconds))
            emit(table)
            found = table.medians()["the page"]
            what = f"live list at {rate:,} events/s"
            budgets += [
                (f"{what}: {name}", found[name], most) for name, most in TAIL_LIMITS.items()
            ]
        seen.close()
    return budgets


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
