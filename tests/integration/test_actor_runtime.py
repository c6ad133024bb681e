"""The node's changes to the actor runtime: each test fails without one of them."""

from __future__ import annotations

import ctypes
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from thespian.system.transport.streamBuffer import ReceiveBuffer, toSendBuffer

from fieldbrook.actors.runtime import (
    Address,
    NodeActor,
    SignedPickle,
    UnauthenticatedFrameError,
    describe_exit,
)
from tests.support.applets import TALLY
from tests.support.nodes import RunningNode, StartNode, alive, message, parts, until
from tests.support.tools import LIMIT_S, free_port

SLOW_S = 20.0  # on an idle machine it takes one or two seconds
CHILDREN = ("fb-worker:0", "fb-worker:1", "fb-registry", "fb-http:0", "fb-mqtt:0", "fb-scheduler")
PARTS = {"fb-core", "fb-root", "fb-admin", "fb-actor", *CHILDREN}
SIGNALS = {
    signal.SIGSEGV: "Segmentation fault",
    signal.SIGBUS: "Bus error",
    signal.SIGILL: "Illegal instruction",
    signal.SIGFPE: "Floating point exception",
    signal.SIGABRT: "Aborted",
}


FLAGS = ("--bind", "0.0.0.0")  # noqa: S104 - what must not be reached from outside would be


def whole(node: RunningNode) -> RunningNode:
    """Return the node when all of its processes run; a process has another name while it is
    forked."""
    until(lambda: parts(node).keys() >= PARTS, "all processes of the node run")
    return node


@pytest.fixture(scope="module")
def lasting(start_module_node: StartNode) -> RunningNode:
    return start_module_node(*FLAGS, command="node")


@pytest.fixture
def node(lasting: RunningNode) -> RunningNode:
    """A node that the tests share, because it recovers from their faults."""
    return whole(lasting)


@pytest.fixture(scope="module")
def gateways(start_module_node: StartNode) -> RunningNode:
    """A node with a gateway for each fatal signal."""
    return start_module_node("--http-gateways", str(len(SIGNALS)), name="g", command="node")


@pytest.fixture
def mortal(start_node: StartNode) -> RunningNode:
    """A node for a test that kills it."""
    return whole(start_node(*FLAGS, command="node"))


def listeners(pids: list[int]) -> set[tuple[str, int]]:
    """Return addresses and ports of the listening IPv4 sockets of some processes."""
    inodes = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed after it was listed
                target = str(link.readlink())
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
    found = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        local, _, state, *rest = line.split()[1:]
        if state == "0A" and rest[5] in inodes:
            address, port = local.split(":")
            packed = bytes.fromhex(address)[::-1]
            found.add((socket.inet_ntoa(packed), int(port, 16)))
    return found


class Marked:
    """Unpickling this creates a file, like code in an attacker's frame."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (self.path,)


def test_actor_traffic_listens_on_the_loopback_only(node: RunningNode) -> None:
    found = listeners(node.processes())
    public = {port for address, port in found if address != "127.0.0.1"}
    assert public == {node.http_port, node.mqtt_port}
    assert len(found) > 4


def test_a_frame_without_the_key_is_not_unpickled_and_harms_nothing(
    node: RunningNode, tmp_path: Path
) -> None:
    marker = tmp_path / "unpickled"
    before = parts(node)
    frame = toSendBuffer(("x", Marked(marker)))
    ports = [port for _, port in listeners(node.processes()) if port != node.http_port]
    for port in ports:
        for attack in (
            frame,
            b"40>" + b"\0" * 40,
            b"GET / HTTP/1.1>\r\n\r\n",
            b"-1>",
            b"%d>x" % (1 << 62),
            b"\xff" * 99,
        ):
            # It may be closed at any moment from here on.
            address = ("127.0.0.1", port)
            with socket.create_connection(address, LIMIT_S) as connection, suppress(OSError):
                connection.settimeout(1)
                connection.sendall(attack)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(100)
    assert node.call("GET", "/").status == 204
    assert parts(node) == before
    assert not marker.exists()
    # The same bytes have their effect on a runtime without the changes.
    careless = ReceiveBuffer(pickle.loads)
    careless.addMore(frame)
    careless.completed()
    assert marker.exists()


@pytest.mark.thorough
def test_unfinished_frames_at_the_actors_ports_hold_nothing_up_and_are_closed(
    node: RunningNode,
) -> None:
    root = {port for _, port in listeners([parts(node)["fb-root"]])}
    ports = [port for port in actor_ports(node) if port in root]
    before = parts(node)
    with ExitStack() as stack:
        opened: list[socket.socket] = []
        for port in ports:
            for number in range(1000 // len(ports)):
                connection = socket.create_connection(("127.0.0.1", port), LIMIT_S)
                opened.append(stack.enter_context(connection))
                with suppress(ConnectionError):  # closed already, because others came after it
                    connection.sendall((b"5000>partly", b"", b"123")[number % 3])
        started = time.monotonic()
        node.create_project("room")
        applet = node.deploy("room", TALLY)
        publisher = node.add_publisher("room", "d")
        assert node.send("room", message(publisher)).status == 201
        assert node.count("room", applet["appletID"]) == 1
        assert time.monotonic() - started < SLOW_S
        # A few bytes at intervals do not prolong the limit.
        until(lambda: not any(map(lasts, opened)), "all are closed")
    assert {name: alive(pid) for name, pid in before.items()} == dict.fromkeys(before, True)


def actor_ports(node: RunningNode) -> list[int]:
    """Return the ports at which actors wait for messages: without the ports that the main process
    holds for the gateways, and without that of the core, which nobody reads."""
    others = {port for _, port in listeners([node.process.pid, parts(node)["fb-core"]])}
    return sorted({port for _, port in listeners(node.processes())} - others)


def lasts(connection: socket.socket) -> bool:
    """Send a byte of the frame; return whether the other end still waits for the rest."""
    if connection.fileno() < 0:
        return False
    try:
        connection.setblocking(False)
        connection.send(b"1")
        if connection.recv(1):
            return True
    except BlockingIOError:
        return True
    except OSError:
        pass
    connection.close()
    return False


@pytest.mark.parametrize("head", [b"9" * 21, b"1048577>", b"-1>", b"x>"])
def test_a_frame_whose_length_is_none_or_too_large_is_not_read(
    node: RunningNode, head: bytes
) -> None:
    for port in actor_ports(node):
        with socket.create_connection(("127.0.0.1", port), LIMIT_S) as connection:
            connection.sendall(head)
            with suppress(ConnectionResetError):  # bytes after the length are not read
                assert connection.recv(1) == b""


def test_a_frame_is_refused_before_it_is_unpickled(tmp_path: Path) -> None:
    marker = tmp_path / "unpickled"
    signed = SignedPickle(b"k" * 32)
    good = signed.dumps({"a": 1})
    assert signed.loads(good) == {"a": 1}
    forged = SignedPickle(b"other").dumps(Marked(marker))
    for bad in (b"", good[:31], b"\0" + good, good + b"\0", forged, forged[32:]):
        with pytest.raises(UnauthenticatedFrameError):
            signed.loads(bad)
    assert not marker.exists()


def test_sends_are_neither_throttled_nor_described(tmp_path: Path) -> None:
    script = (
        "from pathlib import Path; from fieldbrook.actors import runtime;"
        f"runtime.harden(Path({str(tmp_path)!r}));"
        "import thespian.system.systemCommon as c; from thespian.system import transport as t;"
        "assert c.RATE_THROTTLE == 10**9;"
        "intent = t.TransmitIntent('nobody', 'x' * 100);"
        "assert intent.identify() == 'intent'"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=LIMIT_S)


def test_everything_dies_with_the_nodes_process(mortal: RunningNode) -> None:
    assert len(mortal.processes()) >= 6
    mortal.kill()


@pytest.mark.parametrize("name", ["fb-core", "fb-root", "fb-admin"])
def test_all_parts_start_again_when_one_of_the_core_dies_and_clients_wait_meanwhile(
    node: RunningNode, name: str
) -> None:
    pids = parts(node)
    old = {pid for part, pid in pids.items() if part != "fb-node"}
    os.kill(pids[name], signal.SIGKILL)
    until(lambda: not any(alive(pid) for pid in old), "nothing is left of it")
    assert node.call("GET", "/").status == 204, "no connection is refused"
    with socket.create_connection(("127.0.0.1", node.mqtt_port), LIMIT_S):
        pass
    assert node.process.poll() is None
    assert not old & set(node.processes())


@pytest.mark.thorough
def test_the_node_ends_when_its_core_dies_again_and_again(mortal: RunningNode) -> None:
    killed: set[int] = set()
    while mortal.process.poll() is None:
        core = parts(mortal).get("fb-core", 0)
        if core and core not in killed:
            os.kill(core, signal.SIGKILL)
            killed.add(core)
    assert mortal.process.wait(LIMIT_S) == 1
    assert len(killed) == 4
    assert "times in a row: the node ends" in mortal.log


def test_the_node_survives_the_death_of_the_runtimes_logging_process(mortal: RunningNode) -> None:
    before = parts(mortal)
    logger = before["fb-actor"]
    os.kill(logger, signal.SIGKILL)
    until(lambda: not alive(logger), "the logging process is gone")
    old = before["fb-registry"]
    os.kill(old, signal.SIGKILL)
    until(
        lambda: parts(mortal).get("fb-registry", old) != old,
        "the supervisor still restarts children",
    )
    assert mortal.process.poll() is None
    assert mortal.call("GET", "/").status == 204


@pytest.mark.parametrize("name", CHILDREN)
def test_a_part_that_is_killed_comes_back(node: RunningNode, name: str) -> None:
    old = parts(node)[name]
    os.kill(old, signal.SIGKILL)
    until(lambda: parts(node).get(name, old) != old, f"{name} is started again")

    def serves() -> bool:
        try:
            return node.call("GET", "/liveness").status == 200
        except OSError:
            return False

    until(serves, "it serves")


def _rests(pid: int) -> bool:
    """Return whether no thread of a process has run for a moment."""

    def states() -> list[str]:
        statuses = [each.read_text() for each in Path(f"/proc/{pid}/task").glob("*/status")]
        return re.findall(r"^(?:State|\w*ctxt_switches):.*$", "".join(statuses), re.MULTILINE)

    before = states()
    time.sleep(0.02)
    return states() == before and not any("(running)" in state for state in before)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_fatal_signal_ends_a_part_with_the_traceback_of_all_threads_and_it_is_started_again(
    gateways: RunningNode, number: signal.Signals
) -> None:
    part = f"http:{list(SIGNALS).index(number)}"
    until(lambda: gateways.call("GET", "/health").json["parts"].get(part) == "up", "it serves")
    old = parts(gateways)[f"fb-{part}"]
    until(
        lambda: _rests(old), "none of its threads runs"
    )  # the traceback of one that does may fail
    os.kill(old, number)
    until(lambda: not alive(old), "the process has ended")
    until(lambda: parts(gateways).get(f"fb-{part}", old) != old, "the gateway is started again")
    until(lambda: f"{part}: {number.name} ended it after" in gateways.log, "the log has the signal")
    _, _, report = gateways.log.partition(f"Fatal Python error: {SIGNALS[number]}\n")
    assert len(re.findall(r"^(?:Current thread|Thread) 0x", report, re.MULTILINE)) >= 2, report
    assert "gateway/http/server.py" in report or "gateway/base.py" in report, report


def test_a_project_that_has_run_a_module_ends_by_a_fatal_signal_as_well(node: RunningNode) -> None:
    """The WebAssembly engine has signal handlers of its own for the traps of modules."""
    node.create_project("fatal")
    applet = node.deploy("fatal", TALLY)
    publisher = node.add_publisher("fatal", "d")
    assert node.send("fatal", message(publisher)).status == 201
    old = next(pid for name, pid in parts(node).items() if name.startswith("project"))
    os.kill(old, signal.SIGSEGV)
    until(lambda: not alive(old), "the process has ended")
    assert "Fatal Python error: Segmentation fault" in node.log
    until(lambda: node.send("fatal", message(publisher)).status == 201, "another takes events")
    assert node.count("fatal", applet["appletID"]) >= 2


def test_memory_that_is_not_there_ends_the_process_that_touches_it(tmp_path: Path) -> None:
    """The signal comes from a real fault: after a handler that returns, the same instruction would
    fail forever."""
    script = (
        "import logging, sys; from pathlib import Path; from fieldbrook.actors import runtime;"
        "from fieldbrook.system.process_tree import kill_descendants;"
        "from fieldbrook.system.process import report_fatal_signals; report_fatal_signals();"
        f"runtime.harden(Path({str(tmp_path)!r}));"
        "tree = runtime.ActorTree('tests.integration.test_actor_runtime.Faulty');"
        "print(tree.ask('fault', 30, str)); tree.shutdown(); kill_descendants()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.stdout == "SIGSEGV ended it\n", done.stderr
    assert "Fatal Python error: Segmentation fault" in done.stderr


class Faulty(NodeActor):
    """An actor with a child that reads unmapped memory; it reports how that child ended."""

    def receive(self, message: object, sender: Address) -> None:
        """Handle `fault` from the test, `now` from the parent."""
        if message == "now":
            ctypes.string_at(8)
        self._asked = sender
        self._child = self.createActor("tests.integration.test_actor_runtime.Faulty")
        self.send(self._child, "now")

    def child_exited(self, address: Address) -> None:
        """Report to the test."""
        self.send(self._asked, describe_exit(self.exit_code(self._child)))


def test_the_end_of_every_child_is_known_though_two_end_at_once_and_one_before_it_connects(
    tmp_path: Path,
) -> None:
    script = (
        "from pathlib import Path; from fieldbrook.actors import runtime;"
        "from fieldbrook.system.process_tree import kill_descendants;"
        f"runtime.harden(Path({str(tmp_path)!r}));"
        "tree = runtime.ActorTree('tests.integration.test_actor_runtime.Losing');"
        "print(tree.ask('lose', 30, list)); tree.shutdown(); kill_descendants()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.stdout == "[5, 5, -9]\n", done.stderr


class Losing(NodeActor):
    """An actor with three children: two end by themselves, and one is killed while it starts."""

    def receive(self, message: object, sender: Address) -> None:
        """Handle `lose` from the test, `end` from the parent."""
        if message == "end":
            os._exit(5)
        name = "tests.integration.test_actor_runtime.Losing"
        self._asked, self._lost = sender, [self.createActor(name) for _ in range(3)]
        self.kill_child(self._lost[2])
        for child in self._lost[:2]:
            self.send(child, "end")
        self.wake_after(0.05, "look")

    def child_exited(self, address: Address) -> None:
        """Do nothing: this is not called for all of them."""

    def woken(self, payload: object) -> None:
        """Report to the test when all have ended."""
        if all(map(self.has_exited, self._lost)):
            self.send(self._asked, [self.exit_code(child) for child in self._lost])
        else:
            self.wake_after(0.05, payload)


@pytest.mark.thorough
def test_a_stopped_process_does_not_keep_the_node_from_stopping(mortal: RunningNode) -> None:
    pids = mortal.processes()
    os.kill(parts(mortal)["fb-mqtt:0"], signal.SIGSTOP)
    mortal.stop(signal.SIGTERM)
    assert mortal.process.returncode == 0
    until(lambda: not any(alive(pid) for pid in pids), "nothing is left of it")


@pytest.mark.parametrize("command", ["node", "up"])
def test_a_taken_port_is_named_and_nothing_is_left_running(
    node: RunningNode, tmp_path: Path, command: str
) -> None:
    other = subprocess.run(
        [
            *(sys.executable, "-m", "fieldbrook", command, "--data", str(tmp_path / "m")),
            *("--http-port", str(node.http_port), "--bind", "127.0.0.1"),
            *("--mqtt-port", str(free_port()), "--dashboard-port", str(free_port())),
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert other.returncode == 2
    assert f"port {node.http_port} on 127.0.0.1: Address already in use" in other.stderr
    assert "starting again" not in other.stderr
    left = [p for p in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path / "m") in _text(p)]
    assert left == []


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # the process has just ended
        return ""
