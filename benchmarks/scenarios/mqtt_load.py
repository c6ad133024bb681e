"""The scenario of events over MQTT, counted where they are handled."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from paho.mqtt import client as mqtt_client
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks import report
from benchmarks.baselines import install
from benchmarks.baselines.http_peers import NOT_INSTALLED, nodered, write_work
from benchmarks.context import Context, Emit
from benchmarks.measure import BenchmarkError, CpuUsage, memory, wait_for
from benchmarks.node import deploy, node_server, running_node
from benchmarks.report import Figures, Table
from benchmarks.servers import PROJECT, Device, check, spawned
from benchmarks.tools import run_tool
from fieldbrook.actors.runtime import free_port
from fieldbrook.storage.registry.service import RegistryReader

PEER_NAMES = ("mosquitto-paho", "mosquitto-nodered")
NODE_BEHIND = "node behind mosquitto"
DEVICES = 50
CONNECTIONS = 64
WINDOW = 1_024
RATE = 5_000
_WARM_S = 0.7
_LIMIT = 1_000_000  # messages of one measurement
_SETTLE_S = 0.3
_READY_S = 30.0

_MOSQUITTO_CONFIG = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
log_dest none
set_tcp_nodelay true
max_inflight_messages 1000
max_queued_messages 0
"""


@dataclass(frozen=True)
class Route:
    """A way from devices to a handler: the broker's port, the processes, the count's file."""

    name: str
    port: int
    roots: tuple[int, ...]
    count: Path
    devices: list[Device]

    def handled(self) -> int:
        """How many messages were handled so far."""
        return int.from_bytes(self.count.read_bytes(), "little")


def _empty_count(folder: Path) -> Path:
    count = folder / "count"
    count.write_bytes(bytes(8))
    return count


@contextmanager
def _running_mosquitto(folder: Path) -> Iterator[tuple[int, int]]:
    """Its port and its process."""
    port = free_port()
    config = folder / "mosquitto.conf"
    config.write_text(_MOSQUITTO_CONFIG.format(port=port))
    with spawned([install.program("mosquitto"), "-c", config], folder / "mosquitto.log") as pid:
        wait_for(lambda: _listens(port), "mosquitto listens")
        yield port, pid


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def _node_route(folder: Path, name: str) -> Iterator[Route]:
    """A node with its own broker, or behind mosquitto."""
    folder.mkdir()
    with ExitStack() as stack:
        flags: tuple[str, ...] = ()
        brokers: tuple[int, ...] = ()
        port = 0
        if name == NODE_BEHIND:
            port, pid = stack.enter_context(_running_mosquitto(folder))
            flags, brokers = ("--mqtt-broker", f"127.0.0.1:{port}"), (pid,)
        node = stack.enter_context(running_node(folder, *flags))
        applet, devices = deploy(node, devices=DEVICES)
        reader = RegistryReader(node.data / "registry")
        project = reader.project_named(PROJECT)
        reader.close()
        assert project is not None
        count = _empty_count(folder)
        check(node_server(node), devices[0])  # which starts the workers
        places = (node.data / "journal", project.project_id, applet, count)
        watch = [sys.executable, "-m", "benchmarks.count_watch", *places]
        stack.enter_context(spawned(watch, folder / "watch.log"))
        roots = (node.process.pid, *brokers)
        yield Route(name, port or node.mqtt_port, roots, count, devices)


@contextmanager
def _peer_route(folder: Path, name: str) -> Iterator[Route]:
    """mosquitto, and a subscriber that does the same work."""
    devices = [Device(PROJECT, f"d{number}", f"token-{number}-" * 9) for number in range(DEVICES)]
    write_work(folder, devices)
    count = _empty_count(folder)
    with _running_mosquitto(folder) as (port, broker):
        if name == "mosquitto-paho":
            module = "benchmarks.baselines.paho_client"
            command: Sequence[object] = [sys.executable, "-m", module, port, PROJECT, folder, count]
        else:
            command = _nodered_command(folder, port, count)
        with spawned(command, folder / "peer.log") as pid:
            yield Route(name, port, (broker, pid), count, devices)


def _nodered_command(folder: Path, port: int, count: Path) -> Sequence[object]:
    broker: dict[str, object] = {"id": "b", "type": "mqtt-broker", "broker": "127.0.0.1"}
    broker |= {"port": str(port), "clientid": "baseline", "autoConnect": True, "usetls": False}
    broker |= {"protocolVersion": "4", "keepalive": "60", "cleansession": True}
    takes: dict[str, object] = {"id": "in", "type": "mqtt in", "z": "t", "topic": PROJECT}
    takes |= {"qos": "1", "datatype": "utf8", "broker": "b", "inputs": 0, "wires": [["work"]]}
    works: dict[str, object] = {"id": "work", "type": "function", "z": "t", "outputs": 1}
    works |= {"func": "global.get('counted')(msg.payload); return null;", "wires": [[]]}
    tab: dict[str, object] = {"id": "t", "type": "tab", "label": "events"}
    flow = [tab, broker, takes, works]
    return nodered(folder, free_port(), flow, TALLY=count)


def _send(port: int, *payloads: str) -> None:
    """Publish as a device does, and wait for the acknowledgements."""
    client = mqtt_client.Client(CallbackAPIVersion.VERSION2, client_id=f"check-{os.getpid()}")
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        for payload in payloads:
            client.publish(PROJECT, payload, qos=1).wait_for_publish(10)
    finally:
        client.disconnect()
        client.loop_stop()


def _check(route: Route) -> None:
    """Good messages are counted, and one with a broken token is not.

    Raises:
        BenchmarkError: otherwise.
    """
    device = route.devices[0]
    good, broken = json.dumps(device.message("tally")), device.message("tally")
    broken["header"]["token"] += "x"
    limit = time.monotonic() + _READY_S
    while not route.handled():  # nobody keeps messages for a subscriber that is not there yet
        if time.monotonic() > limit:
            raise BenchmarkError(f"{route.name} handles no message")
        _send(route.port, good)
        time.sleep(_SETTLE_S)
    before = route.handled()
    _send(route.port, json.dumps(broken), good)
    wait_for(lambda: route.handled() > before, f"{route.name} handles a message")
    time.sleep(_SETTLE_S)
    if route.handled() != before + 1:
        raise BenchmarkError(f"{route.name} does not check tokens")


def _measure(
    route: Route, messages: Path, qos: int, window: int, seconds: float, rate: int = 0
) -> Figures:
    words: list[object] = ["-p", route.port, "-f", messages, "-k", route.count, "-q", qos]
    words += ["-c", CONNECTIONS, "-m", window, "-r", rate]
    words += ["-d", seconds, "-w", _WARM_S, "-n", _LIMIT]
    with CpuUsage(route.roots) as watch:
        found = run_tool("mqttload", *words, seconds=seconds + _WARM_S)
    lost = found["sent"] - found["handled"]
    if not found["timed"] or (qos and (lost > 0 or found["acknowledged"] < found["sent"])):
        raise BenchmarkError(
            f"{route.name}: sent {found['sent']:.0f}, handled {found['handled']:.0f}, "
            f"acknowledged {found['acknowledged']:.0f}"
        )
    held = memory(route.roots)
    return {
        report.RATE: found["timed"] / found["seconds"],
        report.P50: found["p50"] / 1e3,
        report.P99: found["p99"] / 1e3,
        report.CPU: watch.used_s / found["handled"] * 10_000,
        report.PSS: held.pss_mib,
        report.RSS: held.rss_mib,
        report.OTHERS: watch.other_cores,
        "lost": lost,
    }


def _routes(context: Context, folder: Path, stack: ExitStack) -> tuple[list[Route], dict[str, str]]:
    """Start every way that can run here; returns why the others are missing."""
    missing = {name: "not asked for" for name in PEER_NAMES if name not in context.peers}
    routes = [stack.enter_context(_node_route(folder / "node", "node"))]
    wanted = [NODE_BEHIND, *(name for name in PEER_NAMES if name in context.peers)]
    for name in wanted:
        reason = "" if install.program("mosquitto") else "not installed (Debian: mosquitto)"
        if not reason and name == "mosquitto-nodered" and install.node_red() is None:
            reason = NOT_INSTALLED
        if reason:
            missing[name] = reason
        elif name == NODE_BEHIND:
            routes.append(stack.enter_context(_node_route(folder / "behind", name)))
        else:
            routes.append(stack.enter_context(_peer_route(folder / name, name)))
    return routes, missing


def mqtt(context: Context, emit: Emit) -> None:
    """Messages at QoS 0 and 1, a window of them on their way, and one in flight per device; the
    time until PUBACK at 5,000 messages/s, counted from when a message was due."""
    with context.folder() as folder, ExitStack() as stack:
        routes, missing = _routes(context, folder, stack)
        loads = []
        for route in routes:
            _check(route)
            messages = folder / f"{route.name}.messages"
            lines = (f"{PROJECT}\t{json.dumps(d.message('tally'))}\n" for d in route.devices)
            messages.write_text("".join(lines))
            loads.append((route, messages))
        for qos, window in ((0, WINDOW), (1, WINDOW), (1, 0)):
            how = f"{window:,} on their way" if window else "one in flight each"
            title = context.title(f"QoS {qos}, {CONNECTIONS} connections, {how}")
            table = Table(title, baselines=PEER_NAMES, missing=missing)
            for _ in range(context.rounds):
                for route, messages in loads:
                    table.add(route.name, _measure(route, messages, qos, window, context.seconds))
            emit(table)
        title = context.title(f"QoS 1, {CONNECTIONS} connections, {RATE:,} messages/s due")
        table = Table(title, report.P99, PEER_NAMES, missing, (report.P50, report.P99))
        for _ in range(context.rounds):
            for route, messages in loads:
                table.add(route.name, _measure(route, messages, 1, 0, context.seconds, RATE))
        emit(table)
