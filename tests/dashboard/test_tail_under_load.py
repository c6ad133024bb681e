"""The live list during thousands of events per second: it stays smooth and small.

Browser, node, load and other tests share the cores here, so the processor time of frames is looked
at; `python -m benchmarks dashboard` measures how long they take.
"""

from __future__ import annotations

import json
import threading

import pytest

from tests.dashboard.conftest import Open
from tests.dashboard.project import Project
from tests.support.nodes import RunningNode, flood, message

pytestmark = pytest.mark.timeout(300)
EVENTS = 40_000
FRAME_MS = 33
HEAP_BYTES = 30 << 20
DOM_NODES = 3_000
_WATCH_FRAMES = """() => {
  window.frames = 0;
  const frame = () => { frames += 1; requestAnimationFrame(frame); };
  requestAnimationFrame(frame);
}"""


@pytest.mark.thorough
def test_the_list_is_smooth_and_small_beside_a_flood(node: RunningNode, signed_in: Open) -> None:
    project = Project(node)
    seen = signed_in(node, f"{project.path}/events")
    page = seen.page
    page.get_by_text("No events yet").wait_for()
    devtools = seen.context.new_cdp_session(page)
    devtools.send("Performance.enable", {"timeDomain": "threadTicks"})

    def measured(name: str) -> float:
        metrics = devtools.send("Performance.getMetrics")["metrics"]
        return next(float(each["value"]) for each in metrics if each["name"] == name)

    page.evaluate(_WATCH_FRAMES)
    before_s = measured("TaskDuration")
    body = json.dumps(message(project.publishers["sensor-1"], b"ck", "START")).encode()
    accepted: list[int] = []
    load = threading.Thread(
        target=lambda: accepted.append(flood(node.http_port, project.name, body, EVENTS))
    )
    load.start()
    while load.is_alive():
        page.evaluate("new Promise(requestAnimationFrame)")
    load.join()
    frames, busy_s = page.evaluate("window.frames"), measured("TaskDuration") - before_s
    assert accepted == [EVENTS]
    page.wait_for_function(
        "(all) => document.querySelector('.counts').textContent.replaceAll(',', '').includes(all)",
        arg=str(EVENTS),
    )
    assert 0 < busy_s * 1_000 / frames <= FRAME_MS
    devtools.send("HeapProfiler.collectGarbage")
    assert measured("JSHeapUsedSize") <= HEAP_BYTES
    assert measured("Nodes") <= DOM_NODES
