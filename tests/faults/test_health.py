"""Each health condition, with a real cause; it is cleared when the cause is gone."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import threading
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb
import pytest

from fieldbrook.storage.project import outbox
from tests.faults.applet import counter
from tests.support.applets import SENDER, TALLY
from tests.support.brokers import Mosquitto
from tests.support.nodes import (
    RunningNode,
    StartNode,
    alive,
    message,
    part_of,
    parts,
    strategies,
    until,
    worker_of,
)

_MIB = 1 << 20
_WATCHDOG_S = 3  # a hung process is reported after half of it, and killed after all of it


class Watched:
    """A node with frequent checks, with a project of the tally applet and a project that fills its
    store."""

    def __init__(self, start: StartNode, *flags: str, command: str = "up") -> None:
        self.node = start(
            *("--watchdog-s", str(_WATCHDOG_S), "--deadline-ms", "1000"),
            *("--project-map-bytes", str(2 * _MIB), *flags),
            command=command,
        )

    def project(self, name: str, module: bytes = TALLY, **more: Any) -> Any:
        self.node.create_project(name)
        applet = self.node.deploy(name, module, **more)
        publisher = self.node.add_publisher(name, "d")
        assert self.node.send(name, message(publisher, b"first")).status == 201
        # A reader of the history makes the project write its store, which is thereby created.
        assert self.node.call("GET", f"/event_log/{name}").json["data"]
        return applet, publisher

    def folder(self, applet: Any) -> Path:
        projects = self.node.call("GET", "/project").json["data"]
        found = next(p for p in projects if p["projectID"] == applet["projectID"])
        return self.node.data / "projects" / str(found["projectID"])

    def states(self) -> defaultdict[str, set[str]]:
        found: defaultdict[str, set[str]] = defaultdict(set)
        for row in self.node.call("GET", "/health").json["data"]:
            found[row["part"]].add(row["state"])
        return found

    def begins(self, part: str, state: str) -> None:
        def named() -> bool:
            status, body = self.liveness()
            assert status == 200
            return any(state in text for text in body.values()) and state in self.states()[part]

        until(named, f"{part} is {state}")

    def ends(self, part: str, state: str) -> None:
        until(lambda: part not in self.states(), f"{part} is well again")
        log = self.node.log
        assert log.count(f"{part}: {state}: ") == 1, log
        assert log.count(f"{part}: {state} has ended after ") == 1, log

    def liveness(self) -> tuple[int, dict[str, str]]:
        answer = self.node.call("GET", "/liveness")
        return answer.status, answer.json

    def process(self, part: str) -> int:
        return parts(self.node)[part]

    def process_or_none(self, part: str) -> int | None:
        return parts(self.node).get(part)


@pytest.fixture(scope="module")
def watched(start_module_node: StartNode) -> Watched:
    return Watched(start_module_node)


@pytest.mark.parametrize("part", ["mqtt:0", "scheduler", "registry"])
@pytest.mark.thorough("mqtt:0")
def test_a_process_that_hangs_is_named_replaced_and_well_again(watched: Watched, part: str) -> None:
    pid = watched.process(f"fb-{part}")
    os.kill(pid, signal.SIGSTOP)
    watched.begins(part, "hung")
    until(lambda: not alive(pid), "it is killed")
    watched.ends(part, "hung")


def test_a_gateway_that_hung_is_replaced_and_tells_of_it_afterwards(watched: Watched) -> None:
    pid = watched.process("fb-http:0")
    os.kill(pid, signal.SIGSTOP)
    until(lambda: not alive(pid), "it is killed")
    until(lambda: watched.process_or_none("fb-http:0") not in (pid, None), "there is another")

    def told() -> bool:
        try:
            recent = watched.node.call("GET", "/health").json["recent"]
        except OSError:  # it does not listen yet
            return False
        return ("http:0", "hung") in {(row["part"], row["state"]) for row in recent}

    until(told, "what was wrong is told")
    watched.ends("http:0", "hung")


def test_a_process_that_only_paused_is_well_again_and_stays(watched: Watched) -> None:
    applet, _ = watched.project("pausing")
    pid = worker_of(watched.node, applet["projectID"])
    part = part_of(pid).removeprefix("fb-")
    os.kill(pid, signal.SIGSTOP)
    try:
        watched.begins(part, "hung")
    finally:
        os.kill(pid, signal.SIGCONT)
    watched.ends(part, "hung")


def test_a_handler_that_never_ends_is_named_until_others_do(watched: Watched) -> None:
    strategies = [
        {"eventType": "DEFAULT", "handler": "start"},
        {"eventType": "SPIN", "handler": "spin"},
    ]
    applet, publisher = watched.project("spinning", strategies=strategies)
    part = f"project:{applet['projectID']}"
    with _repeatedly(watched.node, "spinning", message(publisher, b"", "SPIN")) as spinning:
        watched.begins(part, "hung_guest")
    assert {sent.result() for sent in spinning} == {201}
    watched.ends(part, "hung_guest")


@pytest.mark.thorough
def test_a_checkpoint_that_hangs_holds_up_no_event_and_is_named_until_it_goes_on(
    watched: Watched,
) -> None:
    applet, publisher = watched.project("stuck")
    part = f"project:{applet['projectID']}"
    environment = lmdb.open(str(watched.folder(applet)), max_dbs=16, map_size=2 * _MIB)
    try:
        with environment.begin(write=True):  # every writer of the store now waits for this lock
            assert watched.node.send("stuck", message(publisher, b"waits")).status == 201
            watched.begins(part, "stuck_batch")
    finally:
        environment.close()
    watched.ends(part, "stuck_batch")


def test_a_worker_whose_journal_cannot_be_written_ends_and_the_next_one_goes_on(
    watched: Watched,
) -> None:
    applet, publisher = watched.project("nodisk", counter(1, 16_384))
    first = until(lambda: worker_of(watched.node, applet["projectID"]), "its process")
    _, hard = resource.prlimit(first, resource.RLIMIT_FSIZE)
    # Nothing can be written beyond this size, as with an exhausted quota.
    resource.prlimit(first, resource.RLIMIT_FSIZE, (4_096, hard))
    numbers = iter(range(10_000))

    def send() -> int:
        name = f"{next(numbers):06}".encode()
        return watched.node.send("nodisk", message(publisher, name)).status

    until(lambda: send() != 201, "an event is not acknowledged")
    until(lambda: send() == 201, "the next worker takes events")
    second = until(lambda: worker_of(watched.node, applet["projectID"]), "its process")
    assert second != first
    until(lambda: watched.node.call("GET", "/readiness").status == 200, "the node is well")


def test_a_store_at_its_limit_is_named_until_there_is_room(watched: Watched) -> None:
    applet, publisher = watched.project("full", counter(1, 65_536))
    part = f"project:{applet['projectID']}"

    def send(number: int) -> int:
        return watched.node.send("full", message(publisher, f"{number:06}".encode())).status

    numbers = iter(range(1_000))
    until(lambda: send(next(numbers)) == 507, "an event is refused")
    watched.begins(part, "store_full")
    # The limit of one project is no reason to send events of other projects to another node.
    assert watched.node.call("GET", "/readiness").status == 200
    environment = lmdb.open(str(watched.folder(applet)), max_dbs=16, map_size=2 * _MIB)
    pairs = environment.open_db(b"kv")
    with environment.begin(write=True) as txn:
        txn.drop(pairs, delete=False)
    environment.close()
    watched.ends(part, "store_full")
    assert send(next(numbers)) == 201


def test_a_project_whose_store_is_damaged_is_named_until_it_is_put_back(watched: Watched) -> None:
    applet, publisher = watched.project("damaged")
    part = f"project:{applet['projectID']}"
    data = watched.folder(applet) / "data.mdb"
    good = data.read_bytes()
    pid = until(lambda: worker_of(watched.node, applet["projectID"]), "its process")
    data.unlink()
    data.write_bytes(b"this is not a store" * 4096)
    os.kill(pid, signal.SIGKILL)

    def refused() -> bool:
        answer = watched.node.send("damaged", message(publisher, b"refused"))
        return b"keeps failing" in answer.body

    until(refused, "its events are refused")
    watched.begins(part, "cannot_start")
    data.unlink()
    data.write_bytes(good)
    watched.ends(part, "cannot_start")
    assert watched.node.send("damaged", message(publisher, b"second")).status == 201


def test_a_module_that_cannot_be_read_is_named_until_it_can(watched: Watched) -> None:
    applet, publisher = watched.project("modules", TALLY + b";; of its own")
    part = f"project:{applet['projectID']}"
    pid = until(lambda: worker_of(watched.node, applet["projectID"]), "its process")
    folder = watched.node.data / "modules"
    away = watched.node.data / "away"
    folder.rename(away)
    folder.mkdir()
    os.kill(pid, signal.SIGKILL)
    (result,) = until(lambda: _handled(watched.node, message(publisher, b"x")), "an event")
    assert result["code"] == -1
    watched.begins(part, "module_unreadable")
    folder.rmdir()
    away.rename(folder)
    watched.ends(part, "module_unreadable")
    (result,) = until(lambda: _handled(watched.node, message(publisher, b"y")), "an event")
    assert result["code"] == 0


def test_a_secret_that_cannot_be_read_is_named_before_a_restart_needs_it(watched: Watched) -> None:
    key = watched.node.data / "secrets" / "token.key"
    good = key.read_bytes()
    key.write_bytes(b"short")
    watched.begins("secrets", "unreadable")
    key.write_bytes(good)
    watched.ends("secrets", "unreadable")


def test_a_registry_that_is_damaged_is_named_and_events_go_on(watched: Watched) -> None:
    _, publisher = watched.project("goeson")
    data = watched.node.data / "registry" / "data.mdb"
    away = data.with_name("away.mdb")
    data.rename(away)
    data.write_bytes(b"this is not a store" * 4096)
    os.kill(watched.process("fb-registry"), signal.SIGKILL)
    until(lambda: "cannot_start" in watched.states()["registry"], "it is named")
    assert watched.node.send("goeson", message(publisher, b"second")).status == 201
    data.unlink()
    away.rename(data)
    watched.ends("registry", "cannot_start")
    assert watched.node.call("POST", "/project", {"name": "after"}).status == 201


@pytest.mark.thorough
def test_a_broker_that_is_gone_is_named_until_it_is_back(
    start_node: StartNode, tmp_path: Path
) -> None:
    (tmp_path / "b").mkdir()
    with Mosquitto(tmp_path / "b") as broker:
        watched = Watched(start_node, "--mqtt-broker", f"127.0.0.1:{broker.port}", command="node")
        broker.kill()
        watched.begins("mqtt:0", "no_broker")
        assert watched.liveness()[1]["Broker"].startswith("no_broker")
        broker.start()
        watched.ends("mqtt:0", "no_broker")
        assert json.loads(json.dumps(watched.liveness()[1]["Broker"])) == "ok"


def _handled(node: RunningNode, event: Any) -> Any:
    """Return the results of an event of the project `modules`; none while it is not available."""
    answer = node.send("modules", event)
    return answer.json["results"] if answer.status == 201 else None


def _send_aside(node: RunningNode, project: str, event: Any) -> Future[int]:
    pool = ThreadPoolExecutor(1)
    sent = pool.submit(lambda: node.send(project, event).status)
    pool.shutdown(wait=False)
    return sent


@contextmanager
def _repeatedly(node: RunningNode, project: str, event: Any) -> Iterator[list[Future[int]]]:
    """Run two devices that send an event again as soon as it is handled, until the end of the
    context, so that there is always a waiting event."""
    over = threading.Event()

    def send() -> int:
        status = 201
        while status == 201 and not over.is_set():
            status = node.send(project, event).status
        return status

    with ThreadPoolExecutor(2) as pool:
        try:
            yield [pool.submit(send) for _ in range(2)]
        finally:
            over.set()


@pytest.mark.thorough
def test_messages_that_a_restored_node_holds_back_are_counted_until_they_are_released(
    start_node: StartNode, tmp_path: Path
) -> None:
    data = tmp_path / "n"
    data.mkdir(mode=0o700)
    outbox.park(data)
    held = Watched(start_node)
    held.project("sender", SENDER, strategies=strategies(DEFAULT="publish"))
    held.begins("outbox", "parked")

    def detail() -> str:
        rows = held.node.call("GET", "/health").json["data"]
        return next((row["detail"] for row in rows if row["state"] == "parked"), "")

    until(lambda: detail().startswith("1 parked, of 1 projects"), "it counts")
    assert b"fieldbrook_outbox_parked 1.0" in held.node.call("GET", "/metrics").body
    assert b'health_state{state="parked"} 1.0' in held.node.call("GET", "/metrics").body
    assert outbox.release(data)
    held.ends("outbox", "parked")
    until(
        lambda: re.search(
            rb'fieldbrook_outbox_pending\{project="\d+"\} 0\.0',
            held.node.call("GET", "/metrics").body,
        ),
        "all has left",
    )
    assert b'health_state{state="parked"} 0.0' in held.node.call("GET", "/metrics").body
