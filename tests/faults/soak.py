"""`python -m tests.faults.soak --minutes 30 --rate 2000`: a node under steady load, and whether
anything grows, is lost or is doubled."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from fieldbrook.storage.project.reader import ProjectStoreReader
from fieldbrook.storage.project.store import store_path
from tests.faults.curves import Panel, svg
from tests.faults.growth import (
    FLAT_FILES,
    FLAT_MIB,
    FLAT_MIB_PER_HOUR,
    WARM_UP,
    Sample,
    Trend,
    allocated_mib,
    held_by,
    trends,
)
from tests.faults.ledger import Verdict, table_of
from tests.faults.open_loop import Batches, Device, Messages, Singles, compare, counter, name_of
from tests.support.nodes import RunningNode

PROJECT = "soak"
RATE = 2_000.0
# Kind, how many, and their share of the events.
_DEVICES: tuple[tuple[type[Device], int, float], ...] = (
    *((Singles, 8, 0.4), (Batches, 4, 0.4), (Messages, 4, 0.2)),
)
_SETTLE_S = 60.0
_EVERYTHING = 10_000_000


@dataclass(slots=True)
class Report:
    """The results of a run."""

    rate: float
    seconds: float = 0.0
    samples: list[Sample] = field(default_factory=list)
    trends: list[Trend] = field(default_factory=list)
    verdict: Verdict = field(default_factory=Verdict)
    refused: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        return self.verdict.sound and not self.problems


class Soak:
    """One node, one project, and its devices."""

    def __init__(
        self, folder: Path, rate: float, sample_s: float, tell: Callable[[str], None]
    ) -> None:
        """`rate` in events per second, all devices together."""
        self._sample_s, self._tell = sample_s, tell
        self.report = Report(rate)
        self.node = self._start(folder / "n")
        try:
            self._set_up(rate)
        except BaseException:
            self.node.stop()
            raise

    def _start(self, data: Path) -> RunningNode:
        return RunningNode(data)

    def _set_up(self, rate: float) -> None:
        node = self.node
        node.log_in()
        project_id = int(node.create_project(PROJECT)["projectID"])
        self._applets = {project_id: int(node.deploy(PROJECT, counter())["appletID"])}
        self.devices: list[Device] = []
        for kind, count, share in _DEVICES:
            port = node.mqtt_port if kind is Messages else node.http_port
            for _ in range(count):
                number = len(self.devices)
                publisher = node.add_publisher(PROJECT, f"device{number}")
                self.devices.append(kind(number, port, PROJECT, publisher, rate * share / count))

    def run(self, seconds: float) -> Report:
        """Run the load for this time, then compare; the node is stopped afterwards."""
        try:
            asyncio.run(self._run(seconds))
            self._settle()
        finally:
            self.node.stop()
        report = self.report
        report.trends, problems = trends(report.samples)
        report.problems += problems
        report.problems += [
            line for line in self.node.log.splitlines() if " ERROR " in line or " CRITICAL " in line
        ][:20]
        return report

    async def _run(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        sending = [asyncio.create_task(each.send_until(began + seconds)) for each in self.devices]
        try:
            while (at := loop.time() - began) < seconds:
                await asyncio.sleep(min(self._sample_s, seconds - at))
                await self._sample(loop.time() - began)
            self.report.seconds = loop.time() - began
            late = set(sending)
            while late:  # late devices may continue as long as something is acknowledged
                before = self._acknowledged()
                _, late = await asyncio.wait(late, timeout=_SETTLE_S)
                if late and self._acknowledged() == before:
                    self.report.problems.append(f"{len(late)} devices are not answered at the end")
                    break
            for task in sending:
                task.cancel()
            for result in await asyncio.gather(*sending, return_exceptions=True):
                if isinstance(result, Exception):
                    self.report.problems.append(f"a device failed: {result!r}")
        finally:
            for device in self.devices:
                device.close()
            refused = sum((device.refused for device in self.devices), Counter[str]())
            self.report.refused = dict(refused)

    async def _sample(self, at_s: float) -> None:
        held = await asyncio.to_thread(held_by, self.node.processes())
        data = await asyncio.to_thread(allocated_mib, self.node.data)
        latencies: dict[str, list[float]] = {}
        for device in self.devices:
            taken, device.latencies_s = device.latencies_s, []
            latencies.setdefault(device.kind, []).extend(each * 1000 for each in taken)
        sample = Sample(
            *(at_s, held, data, sum(device.sent for device in self.devices)),
            self._acknowledged(),
            {kind: _quantiles(values) for kind, values in latencies.items() if values},
        )
        self.report.samples.append(sample)
        self._tell(
            f"{at_s:7.0f} s: {sample.acknowledged} of {sample.sent} acknowledged,"
            f" {sum(each.pss_mib for each in held):.0f} MiB,"
            f" {sum(each.files for each in held)} files, {data:.0f} MiB of data"
        )

    def _acknowledged(self) -> int:
        return sum(device.acknowledged_count for device in self.devices)

    def _settle(self) -> None:
        """Wait until the broker's messages are committed, too, then compare."""
        missing, until = -1, 0.0
        while True:
            verdict = self.report.verdict = self._compare()
            if len(verdict.lost) != missing:  # there is progress
                missing, until = len(verdict.lost), time.monotonic() + _SETTLE_S
            if not missing or time.monotonic() > until:
                return
            time.sleep(1.0)

    def _compare(self) -> Verdict:
        counts: dict[tuple[int, int], bytes] = {}
        parked: set[tuple[int, int]] = set()
        for project_id, applet_id in self._applets.items():
            path = store_path(self.node.data / "projects", project_id)
            reader = ProjectStoreReader.open_if_exists(path)
            if reader is None:
                continue
            try:
                for key in reader.kv_keys(applet_id, b"", _EVERYTHING):
                    counts[name_of(key)] = reader.kv_get(applet_id, key) or b""
                letters, _ = reader.dead_letters(None, _EVERYTHING)
                parked |= {name_of(one.letter.payload) for one in letters}
            finally:
                reader.close()
        return compare(self.devices, counts, parked)


def _quantiles(values: list[float]) -> tuple[float, float, float]:
    ordered = sorted(values)
    return statistics.median(ordered), ordered[int(0.99 * len(ordered))], ordered[-1]


def table(report: Report) -> str:
    """The report as Markdown."""
    verdict = report.verdict
    rate = verdict.sent / max(report.seconds, 1.0)
    columns = {"minutes": f"{report.seconds / 60:.1f}", "events/s": f"{rate:.0f}"}
    lines = [
        *table_of({**columns, **verdict.columns()}),
        "",
        "| after the warm-up | own memory MiB | line | files | threads |",
        "|---|---|---|---|---|",
    ]
    rows: dict[str, dict[str, Trend]] = {}
    for number, trend in enumerate(report.trends):
        rows.setdefault(f"{trend.part} {number // 3}", {})[trend.what] = trend
    for found in rows.values():
        memory, files, threads = found["own_mib"], found["files"], found["threads"]
        lines.append(
            f"| {memory.part} | {memory.first:.1f} to {memory.last:.1f} | {memory.rise:+.2f} |"
            f" {files.first:.0f} to {files.last:.0f} |"
            f" {threads.first:.0f} to {threads.last:.0f} |"
        )
    if report.samples:
        first, last = report.samples[0], report.samples[-1]
        lines += ["", f"data folder: {first.data_mib:.0f} to {last.data_mib:.0f} MiB"]
    lines += [f"refused: {report.refused}"]
    for kind in ("lost", "wrong", "unknown"):
        lines += [f"{kind.upper()} {name}" for name in getattr(verdict, kind)[:20]]
    lines += [f"PROBLEM {text}" for text in report.problems]
    lines += ["", "flat, nothing lost, nothing doubled" if report.sound else "NOT SOUND"]
    return "\n".join(lines)


def picture(report: Report) -> str:
    """Return an SVG of every process, the data folder and the latency over time."""
    title = f"{report.rate:,.0f} events/s for {report.seconds / 60:.0f} min"
    panels = [
        *(Panel(name, _lines(report, what)) for name, what in _PANELS.items()),
        Panel(
            "data folder, MiB",
            {"on disk": [(each.at_s / 60, each.data_mib) for each in report.samples]},
        ),
        Panel("latency from when it was due, p99 of each sample, ms", _latencies(report)),
    ]
    return svg(title, panels)


_PANELS = {
    "memory with shared and mapped pages (PSS), MiB": "pss_mib",
    "memory of its own, not of files, MiB": "own_mib",
    "open files": "files",
    "threads": "threads",
}


def _lines(report: Report, what: str) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {}
    for sample in report.samples:
        for held in sample.processes:
            points = found.setdefault(f"{held.part} ({held.pid})", [])
            points.append((sample.at_s / 60, getattr(held, what)))
    return found


def _latencies(report: Report) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {}
    for sample in report.samples:
        for kind, (_, p99, _) in sample.latency_ms.items():
            found.setdefault(kind, []).append((sample.at_s / 60, p99))
    return found


def as_json(report: Report) -> str:
    """Return all measurements, with a description of the machine."""
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}"
    bounds = {
        "warm_up": WARM_UP,
        "mib_per_hour": FLAT_MIB_PER_HOUR,
        "mib": FLAT_MIB,
        "files": FLAT_FILES,
    }
    found = {"machine": machine, "python": platform.python_version(), "bounds": bounds}
    return json.dumps({**found, "sound": report.sound, **asdict(report)}, indent=1)


def main(words: list[str]) -> int:
    """Return 0 if nothing grows, nothing is lost and nothing is doubled."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=RATE, help="events per second, all together")
    parser.add_argument("--sample-s", type=float, default=10.0)
    parser.add_argument("--out", type=Path, help="a folder for soak.json and soak.svg")
    parser.add_argument("--folder", type=Path, help="where to work; kept when given")
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="fb") as made:
        folder = given.folder or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        soak = Soak(folder, given.rate, given.sample_s, lambda line: print(line, flush=True))
        report = soak.run(given.minutes * 60)
    print(table(report), flush=True)
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "soak.json").write_text(as_json(report))
        (given.out / "soak.svg").write_text(picture(report))
    return 0 if report.sound else 1


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # so that all processes are stopped
        signal.signal(number, lambda *_: sys.exit(1))
    sys.exit(main(sys.argv[1:]))
