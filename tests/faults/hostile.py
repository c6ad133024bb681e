"""Hostile and malformed requests against a node: python -m tests.faults.hostile --requests 24000

    python -m tests.faults.hostile [--requests N] [--seed N] [--tls]

A seeded generator makes requests for the event port, for management and for MQTT:
damaged, contradictory, enormous, nested, cut off, with forged tokens and with real ones of
somebody who may do little. They go to a whole running node. None may be answered with 5xx,
end a process, have something logged as an error, or leave the node holding more memory or
files than before; and good events must be handled afterwards.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import re
import signal
import socket
import ssl
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jwt

from fieldbrook.gateway.management.prefixes import PREFIXES
from fieldbrook.gateway.management.route_table import ROUTES
from tests.support.applets import TALLY
from tests.support.brokers import Device
from tests.support.mqtt_bytes import remaining_length
from tests.support.nodes import RunningNode, alive, message, part_of, strategies, until
from tests.support.tls import TlsNode

PROJECT = "room"
OTHER = "good"  # a project to which the attacker has no rights
GROWTH_LIMIT_BYTES = 24 << 20
FILES_LIMIT = 8
_SENDERS = 8
_WARM_SHARE = 4  # the first of this many parts fills the node's caches
_ANSWER_LIMIT_S = 3.0
_SILENCE_S = 0.15
_LARGEST = 300_000
_WORDS = (
    "",
    "a",
    "0",
    "-1",
    "1",
    "9" * 30,
    "..",
    "%2e%2e",
    "%00",
    "%ff",
    "\u00fc",
    "x" * 3_000,
)
_DAMAGE = (
    b"\x00", b"\r", b"\n", b"\r\n", b"\r\n\r\n", b" ", b":", b"\xff", b"%", b"%0d%0a", b"HTTP/1.1",
    b"Content-Length: 5\r\n", b"Content-Length: -1\r\n", b"Content-Length: 99999999999\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: chunked, identity\r\n",
    b"Transfer-Encoding : chunked\r\n", b"Expect: 100-continue\r\n", b"Upgrade: websocket\r\n",
    b" folded: line\r\n", b"Host: y\r\n", b"Connection: close\r\n", b"Content-Encoding: gzip\r\n",
    b"Content-Type: multipart/form-data; boundary=\r\n", b"Content-Type: application/xml\r\n",
    b"Authorization: Bearer \r\n", b"Authorization: \xff\xfe\r\n", b"X: " + b"y" * 20_000 + b"\r\n",
)  # fmt: skip
_METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "CONNECT", "BREW")


_FAILED = re.compile(r" 5\d\d [\d.]+ ms$")


class Attempt(NamedTuple):
    """Bytes for a port; `kind` is the name in the report, `over` selects the port."""

    kind: str
    over: str
    sent: bytes


class Known(NamedTuple):
    """What an attacker may know: real names, and the real tokens of a user with few rights."""

    publisher: Any
    account_token: str
    names: tuple[str, ...]


@dataclass(slots=True)
class Held:
    """Memory and files of a process after the warm-up, and at the end."""

    part: str
    memory: tuple[int, int]
    files: tuple[int, int]


@dataclass(slots=True)
class Report:
    """The results of a run."""

    sent: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    held: list[Held] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0


def attempts(seed: int, count: int, known: Known) -> Iterator[Attempt]:
    """Yield attempts; a seed always gives the same ones, except for the tokens."""
    makers = (_event_head, _event_body, _event_body, _management, _management, _mqtt)
    for number in range(count):
        rng = random.Random(f"{seed}-{number}")
        yield rng.choice(makers)(rng, known)


# ---------------------------------------------------------------- what is sent


def _request(method: str, path: str, body: bytes = b"", headers: str = "") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
    return head.encode("utf-8", "surrogatepass") + body


def _damaged(rng: random.Random, sent: bytes) -> bytes:
    """Return the data with bytes changed, inserted, doubled or cut off."""
    data = bytearray(sent)
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0 if data:
                data[min(at, len(data) - 1)] = rng.randrange(256)
            case 1:
                data[at:at] = rng.choice(_DAMAGE)
            case 2:
                # Whole header lines, if there are any.
                at = data.find(b"\r\n") + 2
                data[at:at] = rng.choice(_DAMAGE)
            case 3:
                del data[at : at + rng.randrange(40)]
            case _:
                data[at:at] = data[at : at + rng.randrange(200)]
    return bytes(data)


def _event_head(rng: random.Random, known: Known) -> Attempt:
    body = json.dumps(message(known.publisher, b"x", "START")).encode()
    path = f"{rng.choice(PREFIXES)}/event/{PROJECT}"
    match rng.randrange(4):
        case 0:
            chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:9], body[9:]))
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
            return Attempt("chunked event", "http", _damaged(rng, head + chunks + b"0\r\n\r\n"))
        case 1:
            query = "&".join(f"{_text(rng)}={_text(rng)}" for _ in range(rng.randrange(9)))
            return Attempt("event query", "http", _request("POST", f"{path}?{query}", body))
        case 2:
            return Attempt("noise", "http", rng.randbytes(rng.randrange(2_000)))
        case _:
            return Attempt("event head", "http", _damaged(rng, _request("POST", path, body)))


def _event_body(rng: random.Random, known: Known) -> Attempt:
    good = message(known.publisher, b"x", "START")
    match rng.randrange(6):
        case 0:
            kind, body = "event bytes", _damaged(rng, json.dumps(good).encode())
        case 1:
            depth = rng.choice((10, 100, 1_000, 100_000))
            opening = rng.choice((b"[", b'{"a":', b'{"header":', b'{"events":['))
            kind, body = "event nested", (opening * depth)[:_LARGEST]
        case 2:
            kind = "event fields"
            where = rng.choice((good, good["header"]))
            where[rng.choice([*where, "events", "x"])] = _value(rng)
            body = _encoded(good)
        case 3:
            kind = "event batch"
            several = [
                _value(rng) if rng.random() < 0.7 else good for _ in range(rng.randrange(40))
            ]
            body = _encoded({"events": several})
        case 4:
            kind = "event forged"
            good["header"]["token"] = _token(rng, known)
            body = _encoded(good)
        case _:
            kind, body = "event noise", rng.randbytes(rng.randrange(_LARGEST))
    path = f"{rng.choice(PREFIXES)}/event/{rng.choice((PROJECT, PROJECT, 'none', 'x' * 200))}"
    kinds = ("application/json", "application/x-protobuf", "text/plain", "multipart/form-data", "?")
    headers = f"Content-Type: {rng.choice(kinds)}\r\n"
    if rng.random() < 0.3:
        headers += f"Authorization: Bearer {_token(rng, known)}\r\n"
    return Attempt(kind, "http", _request("POST", path, body, headers))


def _management(rng: random.Random, known: Known) -> Attempt:
    route = rng.choice(ROUTES)
    method = route.method if rng.random() < 0.8 else rng.choice(_METHODS)
    # The attacker's own objects are kept, because most of the code needs them; others are not.
    names = (OTHER,) if method == "DELETE" else (OTHER, *known.names)
    segments = (
        rng.choice((*names, *_WORDS)) if part.startswith(("{", ":")) else part
        for part in route.pattern.split("/")
    )
    path = rng.choice(PREFIXES) + "/".join(segments)
    if rng.random() < 0.5:
        pairs = (f"{rng.choice(_QUERY)}={_text(rng)}" for _ in range(rng.randrange(1, 6)))
        path += "?" + "&".join(pairs)
    # Answers that never end are requested rarely, because the test has to cut them off.
    path = path.replace("follow=true", "follow=x") if rng.random() < 0.98 else path
    headers = ""
    if rng.random() < 0.9:
        headers = f"Authorization: Bearer {_token(rng, known)}\r\n"
    if rng.random() < 0.2:
        headers += "Origin: https://evil.example\r\n"
    if route.upload or rng.random() < 0.05:
        body = _form(rng)
        headers += "Content-Type: multipart/form-data; boundary=mark\r\n"
    elif rng.random() < 0.2:
        body = rng.randbytes(rng.randrange(5_000))
    else:
        fields = rng.sample(_FIELDS, rng.randrange(6))
        body = _encoded({name: _value(rng) for name in fields})
    sent = _request(method, path, body, headers)
    if rng.random() < 0.2:
        return Attempt("management damaged", "http", _damaged(rng, sent))
    return Attempt("management", "http", sent)


def _form(rng: random.Random) -> bytes:
    parts = []
    for _ in range(rng.randrange(1, 5)):
        name = rng.choice(("info", "file", "cache", "\u00fc", 'a"b', ""))
        content = rng.choice(
            (
                _encoded(
                    {"appletName": _value(rng), "projectName": PROJECT, "wasmMd5": _value(rng)}
                ),
                b"\0asm\1\0\0\0" + rng.randbytes(rng.randrange(300)),
                rng.randbytes(rng.randrange(3_000)),
                b"(module " + b"(func " * rng.choice((1, 50_000)),
            )
        )
        file = rng.choice(("", '; filename="../../etc/passwd"', "; filename*=utf-8''%00"))
        head = f'--mark\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'
        parts.append(head.encode() + content + b"\r\n")
    whole = b"".join(parts) + b"--mark--\r\n"
    return whole if rng.random() < 0.6 else _damaged(rng, whole)


def _mqtt(rng: random.Random, known: Known) -> Attempt:
    connect = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04evil"
    good = json.dumps(message(known.publisher, b"x", "START")).encode()
    pushed = f"{PROJECT}/push/{known.publisher['token']}/START"
    others = ("$SYS/x", "ack/device-1", "+", "#", "", "a/" * 200, "\u0000", "none", "$JS/API")
    topics = (PROJECT, pushed, f"{PROJECT}/push/x/y/z", *others)
    topic = rng.choice(topics).encode()
    payload = rng.choice((good, _damaged(rng, good), rng.randbytes(rng.randrange(3_000)), b""))
    flags = rng.choice((0, 2, 4, 6, 8, 1, 3, 10))
    number = rng.choice((b"\x00\x01", b"\x00\x00", b"\xff\xff")) if flags & 6 else b""
    body = len(topic).to_bytes(2, "big") + topic + number + payload
    publish = bytes([0x30 | flags]) + remaining_length(len(body)) + body
    asked = len(topic).to_bytes(2, "big") + topic + bytes([rng.randrange(4)])
    subscribe = b"\x82" + remaining_length(2 + len(asked)) + b"\x00\x01" + asked
    packet = rng.choice((publish, publish, subscribe, rng.randbytes(rng.randrange(200))))
    match rng.randrange(4):
        case 0:
            return Attempt("mqtt noise", "mqtt", rng.randbytes(rng.randrange(500)))
        case 1:
            return Attempt("mqtt damaged", "mqtt", _damaged(rng, connect + packet))
        case 2:
            return Attempt("mqtt packet", "mqtt", connect + _damaged(rng, packet))
        case _:
            return Attempt("mqtt wild", "mqtt", connect + packet)


_FIELDS = tuple(
    """name username password role state projectName appletName strategies eventType handler
    instance config env database schema cronExpressions eventID key token contractAddress
    startHeight chainID threshold duration startAt apiType privileges expirationDays isolation
    tables message signature publicKey privateKey operatorName paymasterKey appletID instanceID
    ids isPublic desc""".split()  # noqa: SIM905 - a list of them would be a page
)
_QUERY = tuple(
    """page size offset names projectIDs appletIDs instanceIDs publisherIDs cmd follow=true&x
    limit lNames createdAt_lt updatedAt from to eventID encoding appletID key prefix
    authorization""".split()  # noqa: SIM905
)


def _encoded(value: Any) -> bytes:
    """Return JSON, including lone surrogates and Python's extensions."""
    return json.dumps(value, ensure_ascii=bool(id(value) & 16)).encode("utf-8", "surrogatepass")


def _text(rng: random.Random) -> str:
    words = (*_WORDS[:-1], "true", "null", "1e999", "%F0%9F%98%80", "2026-11-21T00:00:00Z", "%ZZ")
    return rng.choice(words).replace("\u00fc", "%c3%bc")


def _value(rng: random.Random, depth: int = 0) -> Any:
    simple: tuple[Callable[[], Any], ...] = (
        lambda: None,
        lambda: rng.choice((True, False)),
        lambda: rng.choice((0, -1, 1 << 31, 1 << 63, 1 << 64, 10**400, -(10**30))),
        lambda: rng.choice((1.5, 1e308, -0.0, float("nan"), float("inf"))),
        lambda: rng.choice(
            (*_WORDS, "\ud800", "\x00", "\u202e", "* * * * *", "@every 1s", "0x" * 40)
        ),
        lambda: base64.b64encode(rng.randbytes(rng.randrange(300))).decode(),
        lambda: PROJECT,
    )
    if depth > 3 or rng.random() < 0.7:
        return rng.choice(simple)()
    inner = [_value(rng, depth + 1) for _ in range(rng.randrange(5))]
    if rng.random() < 0.5:
        return inner
    return {rng.choice((*_FIELDS, "", "\u00fc")): each for each in inner}


def _token(rng: random.Random, known: Known) -> str:
    """Return no token, a forged one, or one of a user with few rights."""
    real = rng.choice((known.account_token, known.account_token, known.publisher["token"]))
    match rng.randrange(12):
        case 0:
            return rng.choice(
                ("", "x", "w3b_", "w3b_" + "A" * 60, "Bearer Bearer", "a.b.c", "." * 40)
            )
        case 1:
            return jwt.encode(
                {"Payload": "1", "iss": "x"}, "k" * 64, rng.choice(("HS256", "HS512"))
            )
        case 2:
            head = base64.urlsafe_b64encode(b'{"alg":"none","typ":"JWT"}').rstrip(b"=").decode()
            return f"{head}.{real.partition('.')[2].partition('.')[0]}."
        case 3:
            at = rng.randrange(len(real))
            return real[:at] + rng.choice("Aa0_-.") + real[at + 1 :]
        case _:
            return real


# ---------------------------------------------------------------- the run


def _answer(sock: socket.socket, over: str) -> bytes:
    """Return the answers: the first one, and after the end of sending all others."""
    received, ended = b"", False
    limit = time.monotonic() + _ANSWER_LIMIT_S
    sock.settimeout(_SILENCE_S)
    while time.monotonic() < limit:
        try:
            part = sock.recv(1 << 16)
        except TimeoutError:
            part = None
        if part == b"":
            break
        received = (received + (part or b""))[:4096]
        if b"event-stream" in received or (over == "mqtt" and ended and part is None):
            break
        if not ended:
            # Tornado drops a client that has closed the connection before its answer.
            ended = True
            with suppress(OSError):
                sock.shutdown(socket.SHUT_WR)
    return received


class Run:
    """One node and its attacker."""

    def __init__(self, folder: Path, count: int, seed: int, *, tls: bool = False) -> None:
        """`tls`: the HTTP ports use TLS; one in five attempts does not."""
        self._count, self._seed = count, seed
        self._folder = folder
        self._tls = tls
        self.report = Report()
        self._lock = threading.Lock()

    def run(self) -> Report:
        """Start a node, attack it, compare its state, and stop it."""
        started = time.monotonic()
        node: RunningNode
        if self._tls:
            node = TlsNode(self._folder, "--mqtt-tls", "false")
            self._context = ssl.create_default_context(cafile=node.files.ca)
        else:
            node = RunningNode(self._folder / "n")
        self.node = node
        try:
            self._set_up()
            pids = {pid: part_of(pid) for pid in node.processes()}
            todo = attempts(self._seed, self._count, self._known)
            self._attack(todo, self._count // _WARM_SHARE)
            before = self._measure()
            self._attack(todo, self._count)
            self._still_works()
            self._compare(pids, before)
        finally:
            node.stop()
        self.report.seconds = time.monotonic() - started
        return self.report

    def _set_up(self) -> None:
        node = self.node
        node.log_in()
        admin = node.token
        user = {"username": "user", "password": "battery staple", "role": "DEVELOPER"}
        node.call("POST", "/register/admin", user)
        logged_in = node.call("PUT", "/login", {k: user[k] for k in ("username", "password")})
        node.create_project(OTHER)
        self._applet = node.deploy(OTHER, TALLY, strategies=strategies(START="start"))["appletID"]
        self._good = node.add_publisher(OTHER, "device-1")
        node.token = logged_in.json["token"]
        applet = self._make_victim()
        publisher = node.add_publisher(PROJECT, "device-1")
        names = (PROJECT, applet["appletID"], applet["instance"]["instanceID"], "device-1")
        self._known = Known(publisher, node.token, names)
        node.token = admin
        for project, sender in ((OTHER, self._good), (PROJECT, publisher)):
            assert node.send(project, message(sender, b"x", "START")).status == 201

    def _make_victim(self) -> Any:
        self.node.create_project(PROJECT)
        return self.node.deploy(PROJECT, TALLY, strategies=strategies(START="start"))

    def _attack(self, todo: Iterator[Attempt], until_sent: int) -> None:
        def work() -> None:
            while True:
                with self._lock:
                    if self.report.sent.total() >= until_sent:
                        return
                    attempt = next(todo)
                    self.report.sent[attempt.kind] += 1
                outcome = self._try(attempt)
                with self._lock:
                    self.report.answers[outcome] += 1
                    if outcome.startswith("5") or outcome == "ConnectionRefusedError":
                        self.report.problems.append(f"{outcome}: {attempt.sent[:600]!r}")

        def work_or_tell() -> None:
            try:
                work()
            except Exception as error:
                self.report.problems.append(f"a sender failed: {error!r}")
                raise

        workers = [threading.Thread(target=work_or_tell) for _ in range(_SENDERS)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    def _try(self, attempt: Attempt) -> str:
        """Send an attempt and read to the end; return the status, or a text if there was none."""
        port = self.node.http_port if attempt.over == "http" else self.node.mqtt_port
        received = b""
        try:
            with closing(self._connect(port, attempt)) as sock:
                with suppress(ConnectionError, TimeoutError):
                    sock.sendall(attempt.sent)
                received = _answer(sock, attempt.over)
        except (ConnectionError, TimeoutError) as error:
            if not received:
                return type(error).__name__
        if attempt.over == "mqtt":
            return "mqtt answer" if received else "closed"
        statuses = [
            word[:3].decode("latin-1")
            for word in received.split(b"HTTP/1.1 ")[1:]
            if word[:1].isdigit()
        ]
        return max(statuses, default="closed")

    def _connect(self, port: int, attempt: Attempt) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", port), _ANSWER_LIMIT_S)
        if not self._tls or attempt.over == "mqtt" or len(attempt.sent) % 5 == 0:
            return sock
        return self._context.wrap_socket(sock, server_hostname="localhost")

    def _measure(self) -> dict[int, tuple[str, int, int]]:
        """Return memory and files of every process after all connections have closed."""
        time.sleep(1.0)
        measured = {}
        for pid in self.node.processes():
            with suppress(OSError):
                files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
                measured[pid] = (part_of(pid), memory_of(pid), files)
        return measured

    def _still_works(self) -> None:
        node = self.node
        before = node.count(OTHER, self._applet)
        sent = message(self._good, b"still here", "START")
        answer = node.send(OTHER, sent)
        if answer.status != 201:
            self.report.problems.append(f"a good event afterwards: {answer}")
        with Device(node.mqtt_port, "good") as device:
            device.publish(OTHER, json.dumps(sent).encode())
        until(lambda: node.count(OTHER, self._applet) >= before + 2, "good events are handled")

    def _compare(self, pids: dict[int, str], before: dict[int, tuple[str, int, int]]) -> None:
        problems = self.report.problems
        if self.report.sent.total() != self._count:
            problems.append(f"only {self.report.sent.total()} were sent")
        for pid, part in pids.items():
            if not alive(pid):
                problems.append(f"{part} ({pid}) has ended")
        after = self._measure()
        for pid, (part, memory, files) in before.items():
            if pid not in after:
                continue
            held = Held(part, (memory, after[pid][1]), (files, after[pid][2]))
            self.report.held.append(held)
            if held.memory[1] - held.memory[0] > GROWTH_LIMIT_BYTES:
                problems.append(f"{part} grew by {held.memory[1] - held.memory[0]} bytes")
            if held.files[1] - held.files[0] > FILES_LIMIT:
                problems.append(f"{part} holds {held.files[1]} files, before {held.files[0]}")
        for line in self.node.log.splitlines():
            if (
                _FAILED.search(line)
                or " ERROR " in line
                or " CRITICAL " in line
                or line.startswith("  Traceback")
            ):
                problems.append(line)


def memory_of(pid: int) -> int:
    """Return the memory of a process, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    return 0


def table(report: Report) -> str:
    """The report as Markdown."""
    lines = ["| sent | requests |", "|---|---|"]
    lines += [f"| {kind} | {count} |" for kind, count in sorted(report.sent.items())]
    lines += ["", "| answered | times |", "|---|---|"]
    lines += [f"| {kind} | {count} |" for kind, count in sorted(report.answers.items())]
    lines += ["", "| process | files | memory MiB |", "|---|---|---|"]
    for held in report.held:
        memory = " to ".join(f"{each / (1 << 20):.0f}" for each in held.memory)
        lines.append(f"| {held.part} | {held.files[0]} to {held.files[1]} | {memory} |")
    lines += ["", f"{report.sent.total()} requests in {report.seconds:.0f} s"]
    lines += [f"PROBLEM {text}" for text in report.problems[:50]]
    return "\n".join(lines)


def main(words: list[str]) -> int:
    """Return 0 if the node withstood all attempts."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.hostile", description=__doc__)
    parser.add_argument("--requests", type=int, default=24_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tls", action="store_true", help="the HTTP ports speak TLS")
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="fb") as made:
        report = Run(Path(made), given.requests, given.seed, tls=given.tls).run()
    sys.stdout.write(table(report) + "\n")
    return 1 if report.problems else 0


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # so that all processes are stopped
        signal.signal(number, lambda *_: sys.exit(1))
    sys.exit(main(sys.argv[1:]))
