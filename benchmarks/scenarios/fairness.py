"""What a quiet client feels of noisy ones: of another project, of its own, and of bad tokens."""

from __future__ import annotations

import ctypes
import http.client
import json
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event

from benchmarks.context import Context, Emit
from benchmarks.measure import BenchmarkError, quantile
from benchmarks.node import deploy, node_server, running_node, running_nodes
from benchmarks.report import P50, P99, Figures, Table
from benchmarks.servers import Device, check, event_path
from tests.support.brokers import Device as MqttDevice
from tests.support.nodes import RunningNode

ALONE = "alone"
REFUSED_NOISE, REFUSED = "noise refused/s", "refused"
_PAUSE_S = 0.002
_MQTT_PAUSE_S = 0.02
_LATE_S = 30.0
_LEAD_S = 6.0  # of the noise before the quiet device begins
_MQTT_WINDOW = 256
_MQTT_BURST = 500
_MQTT_RATE = 1_500  # messages/s: more than a project takes, less than the gateway reads
_NOISE_PROCESSES = 2
_BATCH = 1_000  # messages in a request of the noise: few requests, many events

# Who is quiet, and where which messages are sent meanwhile, if any.
_Noise = tuple[Device, str, list[dict[str, object]] | None]


def fairness(context: Context, emit: Emit) -> None:
    """The latency of one quiet client, alone and beside noise that fills a project."""
    title = context.title("one quiet client, an event every 2 ms and its answer")
    table = Table(title, main=P99, baselines=[ALONE], plots=(P50, P99))
    # One worker, so that the projects share it.
    with context.folder() as folder, running_nodes(context, folder, "--workers", "1") as nodes:
        rows = [
            (name + ("" if version == "node" else f", {version}"), node, noise)
            for version, node in nodes.items()
            for name, noise in _noises(node).items()
        ]
        for _ in range(context.rounds):
            for name, node, (quiet, path, messages) in rows:
                with _noise(node.http_port, path, messages) as refused:
                    figures = _measure(node.http_port, quiet, context.seconds)
                    figures[REFUSED_NOISE] = refused() / context.seconds
                table.add(name, figures)
    emit(table)


def _noises(node: RunningNode) -> dict[str, _Noise]:
    """By the name of the row: what disturbs a quiet project of the node."""
    _, (quiet, neighbour) = deploy(node, "quiet", devices=2)
    _, (noisy,) = deploy(node, "noisy")
    check(node_server(node), quiet)
    forged = Device(quiet.project, quiet.key, "not the token")
    own, other = event_path("quiet"), event_path("noisy")
    return {
        ALONE: (quiet, own, None),
        "beside a noisy project": (quiet, other, [noisy.message("kv")] * _BATCH),
        "beside a noisy project of handlers that never end": (
            quiet,
            other,
            [noisy.message("loop")],
        ),
        "beside a noisy publisher of its project": (quiet, own, [neighbour.message("kv")] * _BATCH),
        "beside bad tokens": (quiet, own, [forged.message("sum")]),
    }


def mqtt_fairness(context: Context, emit: Emit) -> None:
    """The latency of one quiet device over MQTT, alone and beside floods through the broker."""
    title = context.title(
        "one quiet device over MQTT, an event every 20 ms, to its acknowledgement"
    )
    table = Table(title, main=P99, baselines=[ALONE], plots=(P50, P99))
    for _ in range(context.rounds):
        # A node for each: what a flood leaves behind is not to be the next one's.
        for name in (ALONE, "beside a noisy project", "beside a noisy device of its project"):
            with context.folder() as folder, running_node(folder) as node:
                _, (quiet, neighbour) = deploy(node, "quiet", devices=2)
                _, (noisy,) = deploy(node, "noisy")
                check(node_server(node), quiet)
                sender = noisy if name.endswith("noisy project") else neighbour
                with _mqtt_noise(node.mqtt_port, None if name == ALONE else sender):
                    figures = _measure_mqtt(node.mqtt_port, quiet, context.seconds)
                table.add(name, figures)
    emit(table)


def _measure_mqtt(port: int, device: Device, seconds: float) -> Figures:
    """Send events in turn and wait for what the node says of each; one that takes longer than
    `_LATE_S` counts as that."""
    time.sleep(_LEAD_S)
    times: list[float] = []
    late = 0
    body = bytes(100)
    with MqttDevice(port, "quiet") as told, MqttDevice(port, "quiet-out") as sender:
        told.subscribe(f"ack/{device.key}")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            name = f"{len(times)}"
            started = time.perf_counter()
            sender.publish(f"{device.project}/push/{device.token}/SUM/id={name}", body)
            answered = _wait_for(told, name.encode())
            times.append(time.perf_counter() - started if answered else _LATE_S)
            late += not answered
            time.sleep(_MQTT_PAUSE_S)
    p50, p99 = (quantile(times, q) * 1_000 for q in (0.5, 0.99))
    return {P50: p50, P99: p99, "late": float(late)}


def _wait_for(told: MqttDevice, name: bytes) -> bool:
    told.settimeout(_LATE_S)
    try:
        while b'"eventID":"' + name + b'"' not in told.read()[1]:
            pass
    except TimeoutError:
        return False
    return True


@contextmanager
def _mqtt_noise(port: int, device: Device | None) -> Iterator[None]:
    """`_MQTT_RATE` messages of a device each second, while the block runs."""
    if device is None:
        yield
        return
    over = multiprocessing.Event()
    message = (device.project, json.dumps(device.message("spin")).encode())
    process = multiprocessing.Process(target=_mqtt_flood, args=(port, message, over))
    process.start()
    try:
        yield
    finally:
        over.set()
        process.join()


def _mqtt_flood(port: int, message: tuple[str, bytes], over: Event) -> None:
    started, sent = time.monotonic(), 0
    with MqttDevice(port, "noisy") as device:
        while not over.is_set():
            sent += device.publish_all([message] * _MQTT_BURST, window=_MQTT_WINDOW)
            over.wait(max(0.0, started + sent / _MQTT_RATE - time.monotonic()))


def _measure(port: int, device: Device, seconds: float) -> Figures:
    """Send one event after the other; every one of them must be taken."""
    times: list[float] = []
    refused = 0
    body = json.dumps(device.message("sum")).encode()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            started = time.perf_counter()
            connection.request("POST", event_path(device.project), body)
            answer = connection.getresponse()
            answer.read()
            times.append(time.perf_counter() - started)
            refused += answer.status != http.client.CREATED
            time.sleep(_PAUSE_S)
    finally:
        connection.close()
    if not times:
        raise BenchmarkError("not one event was answered")
    p50, p99 = (quantile(times, q) * 1_000 for q in (0.5, 0.99))
    return {P50: p50, P99: p99, REFUSED: float(refused)}


@contextmanager
def _noise(
    port: int, path: str, messages: Sequence[dict[str, object]] | None
) -> Iterator[Callable[[], int]]:
    """Requests of these messages as fast as they are answered, while the block runs."""
    over = multiprocessing.Event()
    refused = multiprocessing.Value(ctypes.c_int64, 0)
    processes = []
    if messages is not None:
        body = json.dumps({"events": messages} if len(messages) > 1 else messages[0]).encode()
        processes = [
            multiprocessing.Process(target=_flood, args=(port, path, body, over, refused))
            for _ in range(_NOISE_PROCESSES)
        ]
    for process in processes:
        process.start()
    try:
        yield lambda: refused.value
    finally:
        over.set()
        for process in processes:
            process.join()


def _flood(port: int, path: str, body: bytes, over: Event, refused: Synchronized[int]) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    connections = [http.client.HTTPConnection("127.0.0.1", port, timeout=30) for _ in range(8)]
    for connection in connections:
        connection.connect()
    while not over.is_set():
        for connection in connections:  # all of them are answered at once
            connection.sock.sendall(head + body)
        for connection in connections:
            answer = http.client.HTTPResponse(connection.sock)
            answer.begin()
            answer.read()
            if answer.status != http.client.CREATED:
                with refused.get_lock():
                    refused.value += 1
    for connection in connections:
        connection.close()
