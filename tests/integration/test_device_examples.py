"""The examples of devices, run against a node that answers, is unreachable, dies, or whose answer
is lost."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.applets import TALLY
from tests.support.nodes import RunningNode, StartNode, strategies, until
from tests.support.tools import LIMIT_S, require_tool

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
NAMES = ("device-python", "device-javascript", "device-arduino")


class Place:
    """A project whose events are counted, and its publisher."""

    def __init__(self, node: RunningNode) -> None:
        self.node = node
        node.create_project("room")
        handlers = strategies(TEMPERATURE="start")
        self.applet_id: str = node.deploy("room", TALLY, strategies=handlers)["appletID"]
        self.token: str = node.add_publisher("room", "sensor-1")["token"]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.node.http_port}"

    def count(self) -> int:
        return self.node.count("room", self.applet_id)


@pytest.fixture(scope="module")
def place(start_module_node: StartNode) -> Place:
    return Place(start_module_node())


@pytest.fixture(scope="module")
def sketch(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], str]:
    """Builds the sketch for this computer, at its first use."""
    built: list[str] = []

    def build() -> str:
        require_tool("g++")
        if not built:
            folder = tmp_path_factory.mktemp("sketch")
            done = subprocess.run(
                ["bash", str(EXAMPLES / "device-arduino" / "build.sh"), str(folder)],
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            built.append(done.stdout.strip())
        return built[0]

    return build


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(sketch: Callable[[], str], tmp_path: Path) -> Iterator[Start]:
    """Starts the device of an example, which sends so many readings and ends."""
    started: list[subprocess.Popen[str]] = []

    def run(name: str, place: Place, readings: int, **variables: str) -> subprocess.Popen[str]:
        given = {
            "FIELDBROOK_URL": place.url,
            "FIELDBROOK_PROJECT": "room",
            "FIELDBROOK_PUBLISHER": "sensor-1",
            "FIELDBROOK_PUBLISHER_TOKEN": place.token,
            "SENSOR_QUEUE": str(tmp_path / "queue"),
            "SENSOR_PAUSE_S": "0.05",
            "SENSOR_FLUSH_S": str(LIMIT_S),
            "PYTHONPATH": str(ROOT),
            **variables,
        }
        command = {
            "device-python": lambda: [sys.executable, str(EXAMPLES / name / "sensor.py")],
            "device-javascript": lambda: [require_tool("node"), str(EXAMPLES / name / "sensor.js")],
            "device-arduino": lambda: [sketch()],
        }[name]()
        process = subprocess.Popen(
            [*command, str(readings)],
            env={**os.environ, **given, **_of_the_sketch(given), "NODE_READINGS": str(readings)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def _of_the_sketch(given: Mapping[str, str]) -> dict[str, str]:
    return {
        "NODE_URL": given["FIELDBROOK_URL"],
        "NODE_PROJECT": given["FIELDBROOK_PROJECT"],
        "NODE_TOKEN": given["FIELDBROOK_PUBLISHER_TOKEN"],
    }


def said(process: subprocess.Popen[str]) -> list[str]:
    """Return everything that a device printed until its end."""
    return process.communicate(timeout=LIMIT_S)[0].splitlines()


@contextmanager
def lossy(place: Place, losses: int) -> Iterator[tuple[str, list[bytes]]]:
    """A proxy that forwards requests to the node, and loses its first answers. Gives its address
    and the requests: target and body of each."""
    seen: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen.append(self.path.encode() + b" " + body)
            connection = http.client.HTTPConnection("127.0.0.1", place.node.http_port)
            connection.request("POST", self.path, body, dict(self.headers))
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            if len(seen) <= losses:
                self.close_connection = True
                return
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.thorough("device-python")
def test_each_reading_is_committed_once(name: str, place: Place, start: Start) -> None:
    before = place.count()
    lines = said(start(name, place, 4))
    assert sum("committed" in line for line in lines) == 4, lines
    assert place.count() == before + 4


@pytest.mark.parametrize("name", NAMES)
def test_an_event_whose_answers_are_lost_is_sent_again_as_it_was_and_runs_once(
    name: str, place: Place, start: Start
) -> None:
    before = place.count()
    with lossy(place, 3) as (url, seen):
        lines = said(start(name, place, 1, FIELDBROOK_URL=url))
    assert sum("committed" in line for line in lines) == 1, lines
    assert len(seen) == 4
    assert len(set(seen)) == 1
    assert place.count() == before + 1


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_token_is_told_and_ends_no_device(name: str, place: Place, start: Start) -> None:
    before = place.count()
    lines = said(start(name, place, 2, FIELDBROOK_PUBLISHER_TOKEN="wrong"))
    assert sum("refused" in line for line in lines) == 2, lines
    assert place.count() == before


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.thorough("python", "javascript")
def test_a_device_outlives_a_node_that_is_killed(
    name: str, start_node: StartNode, start: Start
) -> None:
    place = Place(start_node())
    process = start(name, place, 30)
    until(place.count, "the device sends")
    place.node.kill()
    place.node.start()
    lines = said(process)
    assert sum("committed" in line for line in lines) == 30, lines
    assert place.count() == 30


@pytest.mark.thorough
def test_the_python_device_keeps_its_readings_until_there_is_a_node(
    start_node: StartNode, start: Start
) -> None:
    place = Place(start_node())
    place.node.stop()
    first = start("device-python", place, 3, SENSOR_FLUSH_S="0.1")
    lines = said(first)
    assert first.returncode == 1
    assert lines[-1].startswith("3 readings wait for the node: ")
    place.node.start()
    lines = said(start("device-python", place, 0))
    assert lines[0] == "3 readings of an earlier run wait"
    assert place.count() == 3


def test_the_javascript_device_tells_an_event_without_a_strategy(
    place: Place, start: Start
) -> None:
    process = start("device-javascript", place, 1, SENSOR_TYPE="NOBODY")
    assert "StrategyNotFound" in said(process)[0]
    assert process.returncode == 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.thorough("javascript", "arduino")
def test_a_run_script_shows_the_device_at_work(name: str, place: Place, tmp_path: Path) -> None:
    for tool in {"device-javascript": ["node"], "device-arduino": ["g++"]}.get(name, []):
        require_tool(tool)
    copied = tmp_path / "examples"
    subprocess.run(["cp", "-R", str(EXAMPLES), str(copied)], check=True)
    done = subprocess.run(
        ["bash", str(copied / name / "run.sh"), name.replace("-", "_")],
        cwd=tmp_path,
        env={
            **os.environ,
            "XDG_CONFIG_HOME": str(tmp_path),
            "PYTHONPATH": str(ROOT),
            "PYTHON": sys.executable,
            "FIELDBROOK_SERVER": place.url,
            "FIELDBROOK_TOKEN": place.node.token,
            "FIELDBROOK_COMMAND": f"{sys.executable} -m fieldbrook",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "3"
