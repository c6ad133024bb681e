"""`python -m tests.faults --kills 1000 --seed N`: the long form, with a report."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from tests.faults.harness import Harness, Report, every_kind, faults
from tests.faults.ledger import table_of


def main(words: list[str]) -> int:
    """Return 0 if nothing was lost or wrongly doubled, and the node has recovered from all
    faults."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--kills", type=int, default=150, help="how many things to break")
    parser.add_argument("--seed", type=int, default=1, help="of the choice and the moments")
    parser.add_argument(
        "--steady",
        type=float,
        default=0.0,
        metavar="S",
        help="seconds between faults; from 11 on no pause of a restart is measured",
    )
    parser.add_argument("--only", default="", help="faults that match, as: kill project$")
    parser.add_argument("--folder", type=Path, help="where to work; kept when given")
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="fb") as made:
        folder = given.folder or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        kinds = every_kind(folder, given.only)
        if not kinds:
            parser.error(f"no fault matches {given.only!r}")
        harness = Harness(folder, lambda line: print(line, flush=True), steady_s=given.steady)
        report = harness.run(faults(given.seed, given.kills, kinds))
        print(table(report))
        return 0 if report.sound else 1


def table(report: Report) -> str:
    """The report as Markdown."""
    lines = [
        *table_of({"kills": report.kills, **report.verdict.columns()}),
        "",
        "| broken | times | gap p50 ms | gap p99 ms |",
        "|---|---|---|---|",
    ]
    for fault, times in sorted(report.faults.items()):
        gaps = sorted(report.gaps_s.get(fault, []))
        shown = f"{_at(gaps, 0.5)} | {_at(gaps, 0.99)}" if gaps else "- | -"
        lines.append(f"| {fault} | {times} | {shown} |")
    lines += ["", "| all kills of | times | gap p50 ms | gap p99 ms |", "|---|---|---|---|"]
    for name, project in (("a project", True), ("the node", False)):
        gaps = report.gaps_of_kills(project=project)
        shown = f"{_at(gaps, 0.5)} | {_at(gaps, 0.99)}" if gaps else "- | -"
        lines.append(f"| {name} | {len(gaps)} | {shown} |")
    lines += ["", "| process alive at the end | files | memory MiB |", "|---|---|---|"]
    for held in report.held:
        files, memory = held.files, held.memory_kib
        lines.append(
            f"| {held.part} | {files[0]} to {files[1]} |"
            f" {memory[0] / 1024:.0f} to {memory[1] / 1024:.0f} |"
        )
    lines += ["", f"answers that sent a device again: {report.refused}"]
    for kind in ("lost", "wrong", "unknown"):
        lines += [f"{kind.upper()} {name}" for name in getattr(report.verdict, kind)[:20]]
    lines += [f"PROBLEM {text}" for text in report.problems]
    return "\n".join(lines)


def _at(ordered: list[float], part: float) -> str:
    """A quantile, in milliseconds."""
    return f"{ordered[min(int(part * len(ordered)), len(ordered) - 1)] * 1000:.0f}"


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # so that all processes are stopped
        signal.signal(number, lambda *_: sys.exit(1))
    sys.exit(main(sys.argv[1:]))
