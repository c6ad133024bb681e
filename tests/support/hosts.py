"""Hosts of a cluster: nodes on this machine that are connected by their ports."""

from __future__ import annotations

import http.client
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from fieldbrook.core.cluster.placement import home, project_name
from tests.support.networks import ConnectionInside, Network
from tests.support.nodes import READY, RunningNode, alive, message, named, part_of, until
from tests.support.tools import LIMIT_S, free_port

NAMES = ("h1", "h2", "h3")
_REFUSED_S = 0.02
_SMALL = ("--workers", "1", "--http-gateways", "1", "--cluster-file-bytes", "1000000000")


class Host(RunningNode):
    """A node that is a host of a cluster, in a network of its own or on this machine's loopback."""

    def __init__(
        self,
        data: Path,
        name: str,
        *join: str,
        ready: bool = True,
        network: Network | None = None,
    ) -> None:
        self.name = name
        self.cluster_port = free_port()
        self._network = network
        address = "127.0.0.1"
        if network is not None:
            self.prefix, address = network.prefix(name), network.addresses[name]
        ports = ("--cluster-port", str(self.cluster_port), "--engine-port", str(free_port()))
        flags = ("--cluster-bind", address, *ports, "--host-name", name, *_SMALL, *join)
        super().__init__(data, *flags, ready=ready)

    def connection(self, port: int) -> http.client.HTTPConnection:
        """Return a new connection from a device next to the host, which is not affected by cuts."""
        if self._network is None:
            return super().connection(port)
        return ConnectionInside(self._network.namespace(self.name), port, LIMIT_S)

    def pause(self) -> None:
        """Stop all processes of the host, like a paused virtual machine."""
        for pid in self.processes():
            os.kill(pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Let all processes of the host continue."""
        for pid in self.processes():
            os.kill(pid, signal.SIGCONT)

    def engine(self) -> int:
        """Return the process id of the host's replication engine; 0 while none runs."""
        return next((pid for pid in self.processes() if part_of(pid) == "nats-server"), 0)

    def invitation(self) -> tuple[str, ...]:
        """Return the options with which another host joins."""
        answer = self.call("POST", "/cluster/invitation")
        assert answer.status == 201, answer
        return ("--join", answer.json["address"], "--join-token", answer.json["token"])

    def states(self) -> dict[str, str]:
        """Return the state of each host, as reported by this host; empty while it does not
        serve."""
        try:
            answer = self.call("GET", "/cluster")
        except OSError:
            return {}
        if answer.status != 200:
            return {}
        return {row["name"]: row["state"] for row in answer.json["data"]}

    def kv(self, project: str, applet_id: str, key: bytes) -> bytes:
        """Return a value in the key-value store; empty if it is absent. Waits while the project
        moves to another host, because requests for it are answered with 503."""

        def ask() -> tuple[bytes] | None:
            try:
                return (super(Host, self).kv(project, applet_id, key),)
            except KeyError:
                return None

        (found,) = until(ask, "the project is on a host")
        return bytes(found)

    def conditions(self) -> set[str]:
        """Return the states of the host's health conditions."""
        return {each["state"] for each in self.call("GET", "/health").json["data"]}


class Cluster:
    """Three hosts: one node that has been used, and two new ones."""

    def __init__(
        self, folder: Path, prepare: Callable[[Host], None], network: Network | None = None
    ) -> None:
        self.hosts: list[Host] = []
        try:
            first = Host(folder / NAMES[0], NAMES[0], network=network)
            self.hosts.append(first)
            first.log_in()
            prepare(first)
            self._form(folder, network)
        except BaseException:
            self.kill()
            raise

    @classmethod
    def of_node(cls, first: Host, folder: Path) -> Cluster:
        """Make a cluster of a running node, and two new ones in a folder."""
        made = cls.__new__(cls)
        made.hosts = [first]
        try:
            first.log_in()
            made._form(folder, None)
        except BaseException:
            made.kill()
            raise
        return made

    def _form(self, folder: Path, network: Network | None) -> None:
        join = self.hosts[0].invitation()
        for name in NAMES[1:]:
            host = Host(folder / name, name, *join, ready=False, network=network)
            self.hosts.append(host)
        self.await_formed()

    def await_formed(self) -> None:
        """Wait until all hosts serve as a cluster."""
        until(lambda: self.hosts[0].log.count(READY) == 2, "the first host serves again")
        until(lambda: all(READY in host.log for host in self.hosts), "all hosts serve")
        for host in self.hosts:
            host.token = self.hosts[0].token
        self.await_up()

    def await_up(self) -> None:
        """Wait until each host reports all hosts as up."""
        up = dict.fromkeys(NAMES, "up")
        until(lambda: all(host.states() == up for host in self.hosts), "all hosts are there")

    def owner(self, project: Any) -> Host:
        """Return the host that owns a project while all hosts are up."""
        name = home(project_name(int(project["projectID"])), NAMES)
        return next(host for host in self.hosts if host.name == name)

    def others(self, host: Host) -> list[Host]:
        """Return all hosts except one."""
        return [other for other in self.hosts if other is not host]

    def crash(self) -> None:
        """Kill all processes of all hosts at the same time, and start all hosts again."""
        pids = [pid for host in self.hosts for pid in host.processes()]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for host in self.hosts:
            host.process.wait()
        until(lambda: not any(alive(pid) for pid in pids), "no process is left")
        for host in self.hosts:
            host.start(ready=False)
        self.await_up()

    def stop(self) -> None:
        """Stop all hosts at the same time, because a single host would wait for the others."""
        with ThreadPoolExecutor(len(self.hosts)) as pool:
            list(pool.map(Host.stop, self.hosts))

    def kill(self) -> None:
        """Kill all hosts."""
        for host in self.hosts:
            host.go_on()
            host.kill()


class Senders:
    """Devices that send events to any host, and repeat each until it is acknowledged.

    Attributes:
        acknowledged: the ids of acknowledged events, in the order of each device.
        times: when each of them was acknowledged, by `time.monotonic`.
        refused: the answers to other events, which are sent again.
    """

    def __init__(self, hosts: Sequence[Host], project: str, publisher: Any, count: int = 3) -> None:
        self.acknowledged: list[str] = []
        self.times: list[float] = []
        self.refused: list[Any] = []
        self._gaps: list[float] = []
        self._hosts, self._project, self._publisher = hosts, project, publisher
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(at,)) for at in range(count)]

    def __enter__(self) -> Senders:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def await_more(self, count: int) -> None:
        """Wait until this many more events are acknowledged."""
        wanted = len(self.acknowledged) + count
        until(lambda: len(self.acknowledged) >= wanted, f"{count} more events are acknowledged")

    def gaps(self) -> list[float]:
        """Return the seconds from the first attempt to the acknowledgement of each event."""
        return list(self._gaps)

    def _send(self, device: int) -> None:
        number = 0
        while not self._ends.is_set():
            began = time.monotonic()
            name = f"{device}-{number}"
            at = device
            while not self._sent(self._hosts[at % len(self._hosts)], name):
                at += 1
            now = time.monotonic()
            self.times.append(now)
            self._gaps.append(now - began)
            self.acknowledged.append(name)
            number += 1

    def _sent(self, host: Host, name: str) -> bool:
        try:
            answer = host.send(self._project, named(message(self._publisher), name))
        except OSError:
            time.sleep(_REFUSED_S)
            return False
        assert answer.status in (201, 429, 503), answer
        if answer.status != 201:
            self.refused.append(answer)
        return answer.status == 201


def refusal(host: Host) -> str:
    """Wait until a host has ended by itself, and return the last critical line of its log."""
    until(lambda: host.process.poll() is not None, f"{host.name} ends")
    found = re.findall(r"CRITICAL \S+ (.*)", host.log)
    return str(found[-1]) if found else ""
