"""Baselines over HTTP, which do the same work as the node.

A baseline parses the data message, looks the publisher's token up in a table, decodes the
payload and does what the event asks for; what it keeps, it keeps in memory. nginx only
answers: it is what HTTP itself costs on this machine.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import wasmtime

from benchmarks.applets import PLAIN
from benchmarks.baselines import install
from benchmarks.measure import wait_for
from benchmarks.servers import Device, Server, answers_201, check, spawned
from fieldbrook.actors.runtime import free_port
from tests.support.nodes import PREFIX

_START_S = 30.0
_BASELINES = Path(__file__).parent


@dataclass(frozen=True)
class Peer:
    """A baseline: what it is called, why it cannot run here (or ""), and how it starts.

    `command` writes the peer's configuration into a folder and returns what to run on a port;
    `works` is false for one that answers without doing the work.
    """

    name: str
    missing: Callable[[], str]
    command: Callable[[Path, int], Sequence[object]]
    works: bool = True

    @contextmanager
    def running(self, folder: Path, devices: Sequence[Device]) -> Iterator[Server]:
        """The peer, from when it answers 201 until the block ends."""
        own, port = folder / self.name, free_port()
        write_work(own, devices)
        with spawned(self.command(own, port), own / "log") as pid:
            wait_for(lambda: answers_201(port, devices[0]), f"{self.name} answers 201", _START_S)
            yield Server(self.name, port, (pid,), self.works)


def write_work(folder: Path, devices: Sequence[Device]) -> None:
    """Make a baseline's folder: the tokens it looks up, and the module it may compute with."""
    folder.mkdir()
    tokens = {device.key: device.token for device in devices}
    (folder / "tokens.json").write_text(json.dumps(tokens))
    (folder / "work.wasm").write_bytes(wasmtime.wat2wasm(PLAIN))


def _tornado_command(folder: Path, port: int) -> Sequence[object]:
    return [sys.executable, "-m", "benchmarks.baselines.tornado_server", port, folder]


def _nginx_command(folder: Path, port: int) -> Sequence[object]:
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"worker_processes 1; daemon off; pid {folder}/pid; error_log stderr crit;"
        "events { worker_connections 1024; }"
        f"http {{ access_log off; keepalive_requests 100000000; {temporary}"
        f"server {{ listen 127.0.0.1:{port} backlog=1024; location / {{"
        """default_type application/json; return 201 '{"results":[]}'; } } }"""
    )
    return [install.nginx(), "-e", "stderr", "-c", folder / "nginx.conf", "-p", folder]


def _nodered_command(folder: Path, port: int) -> Sequence[object]:
    takes: dict[str, object] = {"id": "in", "type": "http in", "z": "t", "method": "post"}
    takes |= {"url": f"{PREFIX}/event/:project", "upload": False, "wires": [["work"]]}
    works: dict[str, object] = {"id": "work", "type": "function", "z": "t", "outputs": 1}
    works["wires"] = [["out"]]
    works["func"] = "[msg.statusCode, msg.payload] = global.get('answer')(msg.payload); return msg;"
    flow: list[dict[str, object]] = [
        {"id": "t", "type": "tab", "label": "events"},
        takes,
        works,
        {"id": "out", "type": "http response", "z": "t", "wires": []},
    ]
    return nodered(folder, port, flow)


def nodered(
    folder: Path, port: int, flow: Sequence[Mapping[str, object]], **environment: object
) -> Sequence[object]:
    """What runs Node-RED without its editor on a flow of ours."""
    (folder / "flows.json").write_text(json.dumps(flow))
    shutil.copy(_BASELINES / "nodered_settings.js", folder / "settings.js")
    given = [f"{name}={value}" for name, value in environment.items()]
    return [
        *("env", f"PORT={port}", *given, "node", install.node_red()),
        *("-s", folder / "settings.js", "-u", folder),
    ]


def _workerd_command(folder: Path, port: int) -> Sequence[object]:
    shutil.copy(_BASELINES / "workerd_worker.js", folder / "worker.js")
    (folder / "config.capnp").write_text(
        'using Workerd = import "/workerd/workerd.capnp";\n'
        "const config :Workerd.Config = (\n"
        '  services = [ (name = "main", worker = .events) ],\n'
        f'  sockets = [ (name = "http", address = "127.0.0.1:{port}", http = (),'
        ' service = "main") ] );\n'
        "const events :Workerd.Worker = (\n"
        '  modules = [ (name = "worker.js", esModule = embed "worker.js"),\n'
        '    (name = "work.wasm", wasm = embed "work.wasm") ],\n'
        '  bindings = [ (name = "TOKENS", text = embed "tokens.json") ],\n'
        '  compatibilityDate = "2025-01-01", compatibilityFlags = ["nodejs_compat"] );\n'
    )
    return [install.workerd(), "serve", folder / "config.capnp"]


NOT_INSTALLED = "not installed (python -m benchmarks --install)"

HTTP_PEERS = (
    Peer("tornado", lambda: "", _tornado_command),
    Peer("nginx", lambda: "" if install.nginx() else NOT_INSTALLED, _nginx_command, works=False),
    Peer("nodered", lambda: "" if install.node_red() else NOT_INSTALLED, _nodered_command),
    Peer("workerd", lambda: "" if install.workerd() else NOT_INSTALLED, _workerd_command),
)
PEER_NAMES = tuple(peer.name for peer in HTTP_PEERS)


@contextmanager
def running_peers(
    names: Sequence[str], folder: Path, devices: Sequence[Device]
) -> Iterator[tuple[list[Server], dict[str, str]]]:
    """Start those of the named baselines that can run here.

    Returns:
        The servers, and by name why the others are missing.
    """
    missing: dict[str, str] = {}
    with ExitStack() as stack:
        servers = []
        for peer in HTTP_PEERS:
            if peer.name not in names:
                missing[peer.name] = "not asked for"
                continue
            reason = peer.missing()
            if reason:
                missing[peer.name] = reason
                continue
            server = stack.enter_context(peer.running(folder, devices))
            check(server, devices[0])
            servers.append(server)
        yield servers, missing
