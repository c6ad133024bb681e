"""Real nodes in processes of their own, and the events that tests send to them."""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol
from urllib.parse import quote

from fieldbrook.observability import fault_points
from fieldbrook.system.kernel import PORTABLE_VARIABLE
from fieldbrook.system.process_tree import descendants
from tests.support import first_administrator
from tests.support.command_server import Started, node_server
from tests.support.tools import LIMIT_S, free_port

PREFIX = "/srv-applet-mgr/v0"
MODULES = Path(__file__).parent.parent / "modules"
READY = "listen on :"
PROGRAM = (sys.executable, "-m", "fieldbrook")
# The modules that a node imports before it forks, and those that its processes import afterwards.
_MODULES_OF_NODES = (
    *("fieldbrook.node.up", "fieldbrook.node.main", "fieldbrook.storage.upgrade"),
    *("fieldbrook.actors.registry", "fieldbrook.actors.supervisor.supervisor"),
    *("fieldbrook.actors.worker.actor", "jwt"),
    *("fieldbrook.gateway.http.server", "fieldbrook.gateway.http.tornado.applications"),
    *("fieldbrook.gateway.mqtt.listener.server", "fieldbrook.gateway.delivery.api_calls"),
    *("fieldbrook.security.certificates", "prometheus_client"),
)
_MODULES_OF_CHAINS = ("fieldbrook.chain.process", "eth_account")
_OWN_PAGES = ("/", "/liveness", "/metrics", "/readiness", "/version")


class Answer:
    """One HTTP answer."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def __repr__(self) -> str:
        return f"<{self.status} {self.body!r}>"


def until(condition: Callable[[], Any], what: str, limit_s: float = LIMIT_S) -> Any:
    """Wait for a condition to become true; the test fails if it never does."""
    limit = time.monotonic() + limit_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < limit, f"never happened: {what}"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _is_usual(environment: Mapping[str, str] | None) -> bool:
    """Return whether a fork of the node server, which has the environment of this process, can use
    this environment. The two may differ only in variables that neither imports nor Python itself
    read."""
    given = environment or os.environ
    others = {
        name
        for name in given.keys() | os.environ.keys()
        if given.get(name) != os.environ.get(name) and not name.startswith("PYTEST_")
    }
    return PORTABLE_VARIABLE not in given and others <= {fault_points.VARIABLE}


class RunningNode:
    """`fieldbrook up` (or `node`) on free ports with a data folder of its own."""

    prefix: Sequence[str] = ()
    environment: Mapping[str, str] | None = None
    folder: Path | None = None
    program: tuple[str, ...] = ()
    """The program. Empty stands for `PROGRAM`; then tests use a fork of a process that has imported
    its modules."""

    def __init__(
        self,
        data: Path,
        *flags: str,
        command: str = "up",
        ready: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.data = data
        self.log_path = data.with_suffix(".log")
        self.http_port, self.mqtt_port, self.dashboard_port = (free_port() for _ in range(3))
        self.token = ""
        self._flags = (command, *flags)
        self.environment = environment or self.environment
        self.start(ready=ready)

    def set_flags(self, *flags: str) -> None:
        """Use these options for all later starts."""
        self._flags = (self._flags[0], *flags)

    def start(self, *, ready: bool = True) -> None:
        """Start the node, with the same ports and data as before."""
        seen = len(self.log)
        arguments = [
            *("--data", str(self.data), "--bind", "127.0.0.1"),
            *("--http-port", str(self.http_port), "--mqtt-port", str(self.mqtt_port)),
            *("--dashboard-port", str(self.dashboard_port)),
        ]
        command, *flags = self._flags
        with self.log_path.open("ab") as log:
            self.process = self._launch([command, *arguments, *flags], log)
        if ready:
            with self.killed_on_failure():
                until(
                    lambda: READY in self.log[seen:] or self.process.poll() is not None,
                    f"{READY} in {self.log_path}",
                )
            assert self.process.poll() is None, self.log

    def _launch(self, arguments: list[str], log: BinaryIO) -> subprocess.Popen[bytes] | Started:
        is_usual = not self.prefix and not self.program and _is_usual(self.environment)
        if is_usual and "pytest" in sys.modules:
            variables = self.environment or os.environ
            may_have_chains = "--config" in arguments or "FIELDBROOK_CHAINS" in variables
            with Path(os.devnull).open("rb") as nothing:
                return node_server().start(
                    arguments,
                    variables,
                    [nothing.fileno(), log.fileno(), log.fileno()],
                    folder=self.folder,
                    own_session=True,
                    modules=_MODULES_OF_NODES + _MODULES_OF_CHAINS * may_have_chains,
                )
        return subprocess.Popen(
            [*self.prefix, *(self.program or PROGRAM), *arguments],
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    @contextmanager
    def killed_on_failure(self) -> Iterator[None]:
        """Kill the node if the block fails, for example by pytest's time limit. A process that
        still runs would fail a later test, in which its object is garbage-collected."""
        try:
            yield
        except BaseException:
            self.kill()
            raise

    @property
    def log(self) -> str:
        """Return the whole log of the node."""
        return self.log_path.read_text() if self.log_path.exists() else ""

    def processes(self) -> list[int]:
        """Return the process ids of the node, the main process first."""
        return [self.process.pid, *descendants(self.process.pid)]

    def stop(self, number: int = signal.SIGINT) -> float:
        """Stop the node and all its processes; return how many seconds this took."""
        if self.process.poll() is not None:
            return 0.0
        started = time.monotonic()
        with self.killed_on_failure():
            self.process.send_signal(number)
            self.process.wait(LIMIT_S)
        return time.monotonic() - started

    def kill(self) -> None:
        """Kill the node with SIGKILL, and wait until all its processes have ended."""
        pids = self.processes()
        self.process.kill()
        self.process.wait()
        until(lambda: not any(alive(pid) for pid in pids), "the node's processes die with it")

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str | None = None,
        headers: dict[str, str] | None = None,
        port: int | None = None,
    ) -> Answer:
        """Send one request; `body` is sent unchanged if it is bytes, else as JSON."""
        sent = dict(headers or {})
        token = self.token if token is None else token
        if token:
            sent["Authorization"] = f"Bearer {token}"
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection = self.connection(port or self.http_port)
        try:
            url = path if path.startswith("/srv") or path in _OWN_PAGES else PREFIX + path
            connection.request(method, url, data, sent)
            reply = connection.getresponse()
            return Answer(reply.status, dict(reply.getheaders()), reply.read())
        finally:
            connection.close()

    def connection(self, port: int) -> http.client.HTTPConnection:
        """Return a new connection to one of the node's HTTP ports."""
        return http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)

    # ---------------------------------------------------------------- setting up

    def setup_code(self) -> str:
        return (self.data / "secrets" / "setup-code").read_text().strip()

    def log_in(
        self,
        username: str = first_administrator.USERNAME,
        password: str = first_administrator.PASSWORD,
    ) -> None:
        """Register the first administrator if there is none, else log in."""
        person = {"username": username, "password": password}
        code = {"X-Setup-Code": self.setup_code()}
        registered = self.call("POST", "/register/admin", person, token="", headers=code)
        if registered.status == 201:
            account_id = int(registered.json["accountID"])
            self.token = first_administrator.issue_token(self.data, account_id)
            return
        answer = self.call("PUT", "/login", person)
        assert answer.status == 200, answer
        self.token = answer.json["token"]

    def create_project(self, name: str) -> Any:
        answer = self.call("POST", "/project", {"name": name})
        assert answer.status == 201, answer
        return answer.json

    def upload(
        self,
        project: str,
        module: bytes,
        name: str = "applet",
        strategies: object = None,
        **more: object,
    ) -> Answer:
        """POST an applet as a multipart form."""
        info: dict[str, object] = {"appletName": name, "wasmName": f"{name}.wasm", **more}
        if strategies is not None:
            info["strategies"] = strategies
        return self._send_form("POST", f"/applet/{project}", info, module)

    def redeploy(self, applet_id: str, module: bytes) -> Answer:
        """PUT another module for an applet."""
        return self._send_form("PUT", f"/applet/{applet_id}", {}, module)

    def _send_form(self, method: str, path: str, info: dict[str, object], module: bytes) -> Answer:
        mark = "----fieldbrook"
        filename = info.get("wasmName", "applet.wasm")
        parts = (
            f'--{mark}\r\nContent-Disposition: form-data; name="info"\r\n\r\n'
            f"{json.dumps(info)}\r\n--{mark}\r\nContent-Disposition: form-data; "
            f'name="file"; filename="{filename}"\r\n\r\n'
        )
        body = parts.encode() + module + f"\r\n--{mark}--\r\n".encode()
        kind = {"Content-Type": f"multipart/form-data; boundary={mark}"}
        return self.call(method, path, body, headers=kind)

    def deploy(self, project: str, module: bytes, name: str = "applet", **more: Any) -> Any:
        answer = self.upload(project, module, name, **more)
        assert answer.status == 201, answer
        return answer.json

    def add_publisher(self, project: str, key: str) -> Any:
        answer = self.call("POST", f"/publisher/{project}", {"name": key, "key": key})
        assert answer.status == 201, answer
        return answer.json

    def send(self, project: str, message: object) -> Answer:
        """POST one event."""
        return self.call("POST", f"/event/{project}", message, token="")

    def kv(self, project: str, applet_id: str, key: bytes) -> bytes:
        """Return a value in the key-value store; empty if it is absent."""
        name = quote(base64.b64encode(key))
        path = f"/kv/{project}?appletID={applet_id}&key={name}&encoding=base64"
        answer = self.call("GET", path)
        return b"" if answer.status == 404 else base64.b64decode(answer.json["value"])

    def count(self, project: str, applet_id: str) -> int:
        """Return how many events the tally applet has counted."""
        return int.from_bytes(self.kv(project, applet_id, b"count"), "little")


class StartNode(Protocol):
    """The type of the fixtures `start_node` and `start_module_node`: a function that starts a node
    with these options and, unless `logged_in` is False, logs its first administrator in. Each
    fixture has its own secrets for its nodes. The node is stopped when the test, or the last test
    of the module, is over. Without a `name` the data folders are `n`, `n1`, `n2` and so on."""

    def __call__(
        self,
        *flags: str,
        name: str = "",
        command: str = "up",
        ready: bool = True,
        logged_in: bool = True,
    ) -> RunningNode: ...


@contextmanager
def node_starter(folder: Path) -> Iterator[StartNode]:
    """Starts nodes with data folders below `folder`, and stops all of them at the end."""
    numbers, starts = itertools.count(), itertools.count()
    with ExitStack() as nodes:

        def start(
            *flags: str,
            name: str = "",
            command: str = "up",
            ready: bool = True,
            logged_in: bool = True,
        ) -> RunningNode:
            data = folder / (name or f"n{next(numbers) or ''}")
            is_first, logged_in = next(starts) == 0, logged_in and ready
            token = first_administrator.put_into(data) if logged_in and is_first else ""
            node = RunningNode(data, *flags, command=command, ready=ready)
            nodes.callback(node.stop)
            node.token = token
            if logged_in and not token:
                node.log_in()
                if not flags:
                    first_administrator.keep(data, node.token)
            return node

        yield start


def strategies(*handlers: str, **by_type: str) -> list[dict[str, str]]:
    """Return strategies of an applet: each handler for the event type with its name in capitals,
    and `by_type` for other types: `strategies("start", DEFAULT="quiet")`."""
    rules = {**{name.upper(): name for name in handlers}, **by_type}
    return [{"eventType": name, "handler": handler} for name, handler in rules.items()]


def message(publisher: Any, payload: bytes = b"", event_type: str = "DEFAULT") -> dict[str, Any]:
    """Return a data message in the single-message form."""
    return {
        "header": {
            "pub_id": publisher["key"],
            "token": publisher["token"],
            "event_type": event_type,
            "pub_time": int(time.time()),
        },
        "payload": base64.b64encode(payload).decode(),
    }


def named(sent: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a data message with an id that names its event; equal arguments give the same
    message."""
    sent["header"] |= {"event_id": long_id(name), "pub_time": 1_666_211_451}
    return sent


def long_id(name: str) -> str:
    """Return an event id that is long enough to name an event."""
    return f"id-of-the-event-{name}"


def flood(
    port: int, project: str, body: bytes, count: int, connections: int = 8, depth: int = 16
) -> int:
    """POST the same event `count` times over pipelined connections, `depth` at a time; return how
    many were answered 201. Each event is sent once."""
    head = (
        f"POST {PREFIX}/event/{project} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    one = head.encode() + body
    accepted = 0
    share, rest = divmod(count, connections)
    for number in range(connections):
        left = share + (1 if number < rest else 0)
        with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as connection:
            while left:
                burst = min(depth, left)
                connection.sendall(one * burst)
                accepted += _read_answers(connection, burst)
                left -= burst
    return accepted


def _read_answers(connection: socket.socket, count: int) -> int:
    buffer, accepted = b"", 0
    while count:
        end = buffer.find(b"\r\n\r\n")
        if end >= 0:
            head = buffer[:end].lower()
            length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
            if len(buffer) >= end + 4 + length:
                accepted += buffer.startswith(b"HTTP/1.1 201 ")
                buffer = buffer[end + 4 + length :]
                count -= 1
                continue
        data = connection.recv(65536)
        assert data, "the node closed the connection"
        buffer += data
    return accepted


def part_of(pid: int) -> str:
    """Return the name that a process has set, e.g. `fb-http:0`; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def parts(node: RunningNode) -> dict[str, int]:
    """Return the process ids of a node by the names of the processes. A process that was just
    forked still has the name of its parent; then the parent is returned. `project` is a worker that
    runs a project."""
    found = {part_of(pid): pid for pid in reversed(node.processes()) if alive(pid)}
    if pid := worker_of(node):
        found["project"] = pid
    return found


def worker_of(node: RunningNode, project_id: str = "") -> int:
    """Return the process id of the worker that runs a project, or any project; 0 if there is
    none."""
    try:
        health = node.call("GET", "/health")
    except OSError:  # the gateway does not listen yet
        return 0
    if health.status != 200:
        return 0
    pids = {row["part"]: row["pid"] for row in health.json["processes"] if "pid" in row}
    for row in health.json["running"]:
        pid = pids.get(row.get("worker"), 0)
        if project_id in ("", row["projectID"]) and pid and alive(pid):
            return int(pid)
    return 0
