"""`python -m tests.faults.small_machine --minutes 10`: many projects on a small machine.

The node may use 2 cores and 2 GiB, enforced by control groups if the machine allows to create them.
200 projects get 2,000 events/s in total over HTTP and MQTT, a monitor follows a chain with a block
each second, and two pages of the dashboard follow events, metrics and health. The devices, the
chain and the pages run outside the limits, on the same cores.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from fieldbrook.storage.usage import Usage, measure
from tests.chain.evm import CHAIN_ID, Contract, Evm
from tests.faults.growth import held_by
from tests.faults.open_loop import Batches, Device, Messages, Singles, counter
from tests.faults.soak import RATE, Report, Soak, table
from tests.support.applets import TALLY
from tests.support.nodes import RunningNode, strategies
from tests.support.small_box import Box, small_box
from tests.support.streams import StreamClient
from tests.support.tools import LIMIT_S

CORES, MEMORY_BYTES, DISK_BYTES = 2, 2 << 30, 10 << 30
PROJECTS = 200
PAGES = 2
_KINDS: tuple[type[Device], ...] = (Singles, Messages, Singles, Batches, Singles)
_BLOCK_S = 1.0
_CHAIN_PROJECT = "chain"
_TURN_S = 0.5


class SmallMachine(Soak):
    """Many projects with a device each, a chain, and pages that follow them."""

    def __init__(
        self,
        folder: Path,
        box: Box,
        evm: Evm,
        *,
        projects: int = PROJECTS,
        rate: float = RATE,
        sample_s: float = 10.0,
        tell: Callable[[str], None] = print,
    ) -> None:
        """Start the node in the box and make the projects."""
        self.box, self._evm, self._count = box, evm, projects
        self.blocks_sent = self.logs_counted = self.messages_seen = 0
        self.usage = Usage({}, 0)
        super().__init__(folder, rate, sample_s, tell)

    def _start(self, data: Path) -> RunningNode:
        class Boxed(RunningNode):
            prefix = self.box.prefix

        config = data.with_suffix(".toml")
        config.write_text(
            f'[[chains]]\nid = {CHAIN_ID}\nname = "dev"\nendpoint = "{self._evm.url}"\n'
            "poll_ms = 500\n"
        )
        return Boxed(data, "--config", str(config))

    def _set_up(self, rate: float) -> None:
        node = self.node
        node.log_in()
        self._applets, self.devices = {}, []
        module = counter()
        for number in range(self._count):
            name = f"p{number}"
            project_id = int(node.create_project(name)["projectID"])
            self._applets[project_id] = int(node.deploy(name, module)["appletID"])
            kind = _KINDS[number % len(_KINDS)]
            port = node.mqtt_port if kind is Messages else node.http_port
            publisher = node.add_publisher(name, "device")
            self.devices.append(kind(number, port, name, publisher, rate / self._count))
        node.create_project(_CHAIN_PROJECT)
        seen = strategies(SEEN="start")
        self._seen = str(node.deploy(_CHAIN_PROJECT, TALLY, strategies=seen)["appletID"])
        self._contract = self._evm.deploy()
        body = {
            "chainID": CHAIN_ID,
            "contractAddress": self._contract.address,
            "blockStart": self._evm.height,
            "eventType": "SEEN",
        }
        answer = node.call("POST", f"/monitor/x/{_CHAIN_PROJECT}/contract_log", body)
        assert answer.status == 201, answer

    def run(self, seconds: float) -> Report:
        """See `Soak.run`; the report includes the effects of the limits."""
        before = {each.pid: each.part for each in held_by(self.node.processes())}
        report = super().run(seconds)
        # Memory grows while histories fill; what counts here is the limit.
        report.problems = [line for line in report.problems if " rises by " not in line]
        last = {each.pid for each in report.samples[-1].processes}
        gone = [part for pid, part in before.items() if pid not in last]
        report.problems += [f"{part} has ended" for part in gone if part]
        if self.box.killed:
            report.problems.append(f"the kernel killed {self.box.killed} processes")
        if self.usage.bytes > DISK_BYTES:
            report.problems.append(f"the data folder has {self.usage.bytes} bytes")
        if not self.messages_seen:
            report.problems.append("the pages saw nothing")
        if self.logs_counted < self.blocks_sent:
            missing = f"{self.logs_counted} of {self.blocks_sent}"
            report.problems.append(f"the project of the chain has {missing} logs")
        return report

    async def _run(self, seconds: float) -> None:
        with ExitStack() as beside:
            beside.enter_context(_blocks(self, self._contract))
            for _ in range(PAGES):
                beside.enter_context(_page(self))
            await super()._run(seconds)

    def _settle(self) -> None:
        super()._settle()
        self.usage = measure(self.node.data)
        limit = time.monotonic() + LIMIT_S
        while time.monotonic() < limit:
            self.logs_counted = self.node.count(_CHAIN_PROJECT, self._seen)
            if self.logs_counted >= self.blocks_sent:
                return
            time.sleep(0.2)


@contextmanager
def _blocks(machine: SmallMachine, contract: Contract) -> Iterator[None]:
    """Send a transaction with a log, in a block of its own, each second until the end of the
    context."""

    def send(over: threading.Event) -> None:
        while not over.wait(_BLOCK_S):
            contract.call("ping", machine.blocks_sent, "block")
            machine.blocks_sent += 1

    with _thread(send):
        yield


@contextmanager
def _page(machine: SmallMachine) -> Iterator[None]:
    """Open a page of the dashboard that follows everything."""
    node = machine.node
    client = StreamClient(node.dashboard_port, node.token, host="localhost")
    for number, topic in enumerate(("events", "logs", "series", "health"), 1):
        more = {"project": "p0"} if topic in ("events", "logs") else {}
        client.follow(number, topic, **more)

    def read(over: threading.Event) -> None:
        while not over.is_set():
            with suppress(TimeoutError):
                client.next(_TURN_S)
                machine.messages_seen += 1

    try:
        with _thread(read):
            yield
    finally:
        client.close()


@contextmanager
def _thread(work: Callable[[threading.Event], None]) -> Iterator[None]:
    over = threading.Event()
    thread = threading.Thread(target=work, args=(over,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10)


def as_text(machine: SmallMachine, report: Report) -> str:
    """The report as Markdown."""
    box, mib = machine.box, 1 << 20
    how = "by control groups" if box.is_enforced else "cores only; memory was measured"
    peak = f"{box.peak_bytes / mib:.0f} MiB with cached files"
    waited = f"waited for processor time: {box.throttled_s:.0f} s"
    lines = [
        f"limits: {CORES} cores, {MEMORY_BYTES / mib:.0f} MiB, {how}",
        f"most memory: {peak}, killed: {box.killed}, {waited}",
        f"logs of the chain: {machine.logs_counted} of {machine.blocks_sent}",
        f"messages to {PAGES} pages: {machine.messages_seen}",
        "",
        "| at s | memory of processes MiB | data MiB | acknowledged | p50 ms | p99 ms |",
        "|---|---|---|---|---|---|",
    ]
    step = max(1, len(report.samples) // 10)
    for sample in report.samples[step - 1 :: step]:
        kinds = sample.latency_ms.values()
        middle, late = (max((kind[at] for kind in kinds), default=0.0) for at in (0, 1))
        memory = sum(each.pss_mib for each in sample.processes)
        lines.append(
            f"| {sample.at_s:.0f} | {memory:.0f} | {sample.data_mib:.0f} | "
            f"{sample.acknowledged} | {middle:.0f} | {late:.0f} |"
        )
    sizes = {**machine.usage.folders, **machine.usage.parts}
    lines += ["", "| of the data folder | MiB |", "|---|---|"]
    lines += [
        f"| {name} | {size / mib:.1f} |"
        for name, size in sorted(sizes.items(), key=_second)
        if size
    ]
    return "\n".join([*lines, "", table(report)])


def _second(item: tuple[str, int]) -> int:
    return -item[1]


def main(words: list[str]) -> int:
    """Return 0 if nothing was killed, lost or doubled, and all stayed within the limits."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.small_machine")
    parser.description = __doc__
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=RATE, help="events per second, all together")
    parser.add_argument("--projects", type=int, default=PROJECTS)
    parser.add_argument("--out", type=Path, help="a file for all figures, as JSON")
    given = parser.parse_args(words)
    with ExitStack() as open_things:
        folder = Path(open_things.enter_context(tempfile.TemporaryDirectory(prefix="fb")))
        box = open_things.enter_context(small_box(CORES, MEMORY_BYTES))
        evm = Evm()
        open_things.callback(evm.stop)
        machine = SmallMachine(
            *(folder, box, evm),
            projects=given.projects,
            rate=given.rate,
            tell=lambda line: print(line, flush=True),
        )
        report = machine.run(given.minutes * 60)
        print(as_text(machine, report), flush=True)
        if given.out:
            found = {
                "peakBytes": box.peak_bytes,
                "killed": box.killed,
                "sizes": dict(_sizes(machine)),
            }
            given.out.write_text(json.dumps(found, indent=1))
    return 0 if report.sound else 1


def _sizes(machine: SmallMachine) -> Iterator[tuple[str, int]]:
    yield from {**machine.usage.folders, **machine.usage.parts}.items()


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # so that all processes are stopped
        signal.signal(number, lambda *_: sys.exit(1))
    sys.exit(main(sys.argv[1:]))
