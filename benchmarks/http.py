"""Events over HTTP: rate, latency and CPU of a node beside a bare Tornado handler.

    python -m benchmarks.http [--rounds 3] [--seconds 4] [--connections 1,16,64,256]

Needs `wrk`. Each round measures every server in turn, so that what else the machine does
meets all of them; the table gives medians. wrk runs beside them on the same cores. Any
answer that is not 2xx fails the run.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.applets import APPLET
from fieldbrook.actors.base import descendants, free_port
from tests.integration.nodes import PREFIX, RunningNode, message, until

PUBLISHERS = 50
PAYLOAD = b"x" * 100
BATCH = 100
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

_SCRIPT = """
local bodies, requests, n = {}, {}, 0
for line in io.lines(os.getenv("BODIES")) do bodies[#bodies + 1] = line end
init = function()
  for k, body in ipairs(bodies) do requests[k] = wrk.format("POST", nil, nil, body) end
end
request = function() n = n % #requests + 1; return requests[n] end
done = function(s, l, r)
  io.write(string.format("RESULT %d %d %d %.3f %.3f\\n", s.requests, s.duration,
    s.errors.status + s.errors.read + s.errors.timeout,
    l:percentile(50) / 1000, l:percentile(99) / 1000))
end
"""


@dataclass(frozen=True)
class Server:
    """Something to measure: where it listens, its processes' root, and the events to send."""

    name: str
    port: int
    pid: int
    bodies: Path
    events: int = 1  # in one request


@dataclass(frozen=True)
class Sample:
    """One measurement. `cpu_s` is the server's CPU time per 10,000 events."""

    rate: float
    p50_ms: float
    p99_ms: float
    cpu_s: float


def cpu_s(pid: int) -> float:
    """User and system time of a process and all below it, in seconds."""
    total = 0
    for one in (pid, *descendants(pid)):
        stat = Path(f"/proc/{one}/stat")
        if stat.exists():
            fields = stat.read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / _TICKS_PER_S


def check(server: Server) -> None:
    """A good event is answered 201 and one with a broken token 401, or nothing is measured."""
    if server.events > 1:
        return  # a batch is answered 201 whatever its messages are
    good = server.bodies.read_text().splitlines()[0]
    broken = json.loads(good)
    broken["header"]["token"] += "x"
    for body, status in ((good, 201), (json.dumps(broken), 401)):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        connection.request("POST", f"{PREFIX}/event/load", body)
        answered = connection.getresponse().status
        connection.close()
        if answered != status:
            raise SystemExit(f"{server.name}: answered {answered}, not {status}, to {body}")


def measure(server: Server, script: Path, connections: int, seconds: int) -> Sample:
    """Load one server."""
    before = cpu_s(server.pid)
    done = subprocess.run(
        [
            *("wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(script)),
            f"http://127.0.0.1:{server.port}{PREFIX}/event/load",
        ],
        env={**os.environ, "BODIES": str(server.bodies)},
        capture_output=True,
        text=True,
        check=True,
    )
    found = re.search(r"RESULT (\d+) (\d+) (\d+) (\S+) (\S+)", done.stdout)
    assert found, done.stdout
    requests, duration_us, bad = (int(text) for text in found.groups()[:3])
    if bad:
        raise SystemExit(f"{server.name}: {bad} of {requests} answers were not 2xx")
    used = cpu_s(server.pid) - before
    events = requests * server.events
    return Sample(
        events / (duration_us / 1e6), float(found[4]), float(found[5]), used / events * 10_000
    )


def median(samples: list[Sample]) -> Sample:
    """The median of each figure."""
    columns = zip(*((s.rate, s.p50_ms, s.p99_ms, s.cpu_s) for s in samples), strict=True)
    return Sample(*(statistics.median(column) for column in columns))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--connections", default="1,16,64,256")
    given = parser.parse_args()
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is missing (Debian: apt-get install wrk)")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        node = RunningNode(folder / "node")
        peer = None
        try:
            servers = prepare(node, folder)
            tokens = folder / "tokens.json"
            port = free_port()
            peer = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.tornado_peer", str(port), str(tokens)]
            )
            servers.append(Server("bare Tornado handler", port, peer.pid, folder / "SUM"))
            until(lambda: _answers(port), "the baseline serves")
            for server in servers:
                check(server)
            script = folder / "load.lua"
            script.write_text(_SCRIPT)
            for connections in (int(text) for text in given.connections.split(",")):
                table(servers, script, connections, given.rounds, given.seconds)
        finally:
            if peer is not None:
                peer.terminate()
                peer.wait()
            node.stop()


def prepare(node: RunningNode, folder: Path) -> list[Server]:
    """Deploy the applet and write the events to send."""
    node.log_in()
    node.create_project("load")
    strategies = [{"eventType": name.upper(), "handler": name} for name in ("sum", "kv")]
    node.deploy("load", APPLET, strategies=strategies)
    publishers = [node.add_publisher("load", f"d{number}") for number in range(PUBLISHERS)]
    tokens = {publisher["key"]: publisher["token"] for publisher in publishers}
    (folder / "tokens.json").write_text(json.dumps(tokens))
    servers = []
    for name, what in (("SUM", "node, payload read"), ("KV", "node, one key written")):
        lines = [json.dumps(message(publisher, PAYLOAD, name)) for publisher in publishers]
        (folder / name).write_text("\n".join(lines) + "\n")
        servers.append(Server(what, node.http_port, node.process.pid, folder / name))
        batch = folder / f"{name}-{BATCH}"
        events = [json.loads(line) for line in lines] * (BATCH // PUBLISHERS)
        batch.write_text(json.dumps({"events": events}) + "\n")
        servers.append(Server(f"{what}, x {BATCH}", node.http_port, node.process.pid, batch, BATCH))
    return servers


def table(servers: list[Server], script: Path, connections: int, rounds: int, seconds: int) -> None:
    """Measure all servers in turn, several times, and print medians."""
    samples: dict[str, list[Sample]] = {server.name: [] for server in servers}
    for server in servers:
        measure(server, script, connections, 1)  # warm
    for _ in range(rounds):
        for server in servers:
            samples[server.name].append(measure(server, script, connections, seconds))
    base = median(samples[servers[-1].name]).rate
    print(f"\n{connections} connections, {rounds} rounds of {seconds} s")
    print(f"{'':30}{'events/s':>9}{'x Tornado':>11}{'p50 ms':>9}{'p99 ms':>9}{'CPU s/10k':>11}")
    for server in servers:
        s = median(samples[server.name])
        print(
            f"{server.name:30}{s.rate:9,.0f}{s.rate / base:11.2f}"
            f"{s.p50_ms:9.2f}{s.p99_ms:9.2f}{s.cpu_s:11.3f}",
            flush=True,
        )


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


if __name__ == "__main__":
    main()
