#!/usr/bin/env python3
"""Takes pictures of the dashboard, with a node that has projects, publishers and events.

`scripts/pictures` runs this module. The pictures show clocks and figures, so the pictures of two
runs differ.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import wasmtime

from tests.dashboard.conftest import session_of
from tests.support.browser import Visit, chromium
from tests.support.nodes import RunningNode, message, strategies

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "pictures"
PROJECTS = {"greenhouse": 3, "fleet": 5, "weather": 2}
PAGES = (
    ("overview", "/", ".chart canvas"),
    ("flow", "/projects/greenhouse/flow", "#main svg"),
    ("event", "/projects/greenhouse/events", ".row"),
    ("letters", "/projects/greenhouse/letters", ".group"),
    ("console", "/projects/greenhouse/console", "textarea"),
)
SECONDS = 45
_FAILING = """
(module (memory (export "memory") 1)
  (func (export "alloc") (param i32) (result i32) i32.const 1024)
  (func (export "check") (param i32) (result i32) unreachable))
"""


def main() -> int:
    """Take all pictures."""
    with tempfile.TemporaryDirectory() as folder:
        node = RunningNode(Path(folder) / "data")
        try:
            node.log_in()
            publishers = {name: set_up(node, name, number) for name, number in PROJECTS.items()}
            done = threading.Event()
            load = threading.Thread(target=send, args=(node, publishers, done))
            load.start()
            try:
                take(node, done)
            finally:
                done.set()
                load.join()
        finally:
            node.stop()
    return 0


def set_up(node: RunningNode, name: str, number: int) -> list[Any]:
    """Create a project with the counter example, an applet that fails, and publishers."""
    node.create_project(name)
    counter = (ROOT / "examples" / "counter" / "counter.wat").read_text()
    node.deploy(
        name,
        bytes(wasmtime.wat2wasm(counter)),
        "counter",
        strategies=strategies(DEFAULT="start", TEMPERATURE="start"),
    )
    failing = bytes(wasmtime.wat2wasm(_FAILING))
    node.deploy(name, failing, "validator", strategies=strategies(SELFTEST="check"))
    return [node.add_publisher(name, f"sensor-{place}") for place in range(1, number + 1)]


def send(node: RunningNode, publishers: dict[str, list[Any]], done: threading.Event) -> None:
    """Send events until `done`, about 80 a second."""
    chance = random.Random(1)  # noqa: S311 - the same events each time
    names, number = list(publishers), 0
    while not done.wait(chance.uniform(0, 0.025)):
        number += 1
        project = chance.choices(names, [8, 3, 1])[0]
        kind = chance.choices(["DEFAULT", "TEMPERATURE", "SELFTEST"], [60, 40, 1])[0]
        temperature, humidity = round(chance.gauss(21, 1.5), 1), chance.randint(35, 60)
        payload = json.dumps({"temperature": temperature, "humidity": humidity}).encode()
        sent = message(chance.choice(publishers[project]), payload, kind)
        sent["header"]["event_id"] = f"reading-{project}-{number:06}"
        node.send(project, sent)


def take(node: RunningNode, done: threading.Event) -> None:
    """Open the pages and write their pictures."""
    done.wait(SECONDS)  # so that the charts show a line, not a dot
    with chromium() as browser:
        seen = Visit(browser, f"http://localhost:{node.dashboard_port}")
        kept = json.dumps(session_of(node))
        seen.context.add_init_script(f"sessionStorage['fieldbrook.session'] ??= {kept}")
        seen.page.set_viewport_size({"width": 1280, "height": 800})
        for name, path, ready in PAGES:
            seen.page.goto(seen.address + path)
            seen.page.locator(ready).first.wait_for()
            seen.page.wait_for_timeout(3_000)  # until figures and rows arrive
            if name == "event":
                seen.page.locator(".row").nth(4).click()
                seen.page.get_by_text("Committed and answered").wait_for()
            write(seen, name)
        seen.close()


def write(seen: Visit, name: str) -> None:
    """Write a picture of the page."""
    path = PICTURES / f"dashboard-{name}.png"
    seen.page.screenshot(path=path)
    print(path.relative_to(ROOT))


if __name__ == "__main__":
    sys.exit(main())
