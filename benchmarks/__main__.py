"""`python -m benchmarks SCENARIO...`: measure a node beside its baselines."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from unittest import SkipTest

from benchmarks import plot
from benchmarks.baselines import http_peers, install
from benchmarks.context import Context, Emit, Scenario
from benchmarks.measure import BenchmarkError
from benchmarks.node import python_of
from benchmarks.report import Table
from benchmarks.scenarios import (
    fairness,
    http_load,
    lifecycle,
    look_ahead,
    mqtt_load,
    scale,
    turns,
)


def _with_tests(module: str, name: str, description: str) -> Scenario:
    """A scenario that needs libraries of the tests; it imports them when it runs."""

    def run(context: Context, emit: Emit) -> None:
        try:
            found = importlib.import_module(f"benchmarks.scenarios.{module}")
        except ModuleNotFoundError as error:
            needs = "python -m pip install -e '.[test]'"
            raise BenchmarkError(f"{error}: this scenario needs `{needs}`") from None
        getattr(found, name)(context, emit)

    run.__doc__ = description
    return run


SCENARIOS: dict[str, Scenario] = {
    "http-single": http_load.http_single,
    "http-batch": http_load.http_batch,
    "open-loop": http_load.open_loop,
    "handlers": http_load.handler_kinds,
    "mqtt": mqtt_load.mqtt,
    "projects": scale.projects_at_once,
    "publishers": scale.publishers,
    "registered": scale.registered_projects,
    "fairness": fairness.fairness,
    "mqtt-fairness": fairness.mqtt_fairness,
    "look-ahead": look_ahead.look_ahead,
    "turns": turns.turns,
    "cold": lifecycle.cold,
    "start-up": lifecycle.start_up,
    "memory": lifecycle.memory_held,
    "dashboard": _with_tests(
        *("dashboard", "dashboard"),
        "Pages of the dashboard and pages that follow events, each figure beside its limit.",
    ),
    "chain-backfill": _with_tests(
        *("chain_backfill", "backfill"),
        "Monitors that read a real EVM chain of 100,000 blocks from its first one on.",
    ),
    "smallest": http_load.smallest,
}
ALL_PEERS = (*http_peers.PEER_NAMES, *mqtt_load.PEER_NAMES)
_RESULTS = Path(__file__).parent / "results"


def _peers(text: str) -> list[str]:
    chosen = {"all": list(ALL_PEERS), "none": []}.get(text, text.split(","))
    unknown = sorted(set(chosen) - set(ALL_PEERS))
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown baseline: {', '.join(unknown)}")
    return chosen


def _checkout(text: str) -> Path:
    folder = Path(text).resolve()
    if not python_of(folder).exists():
        raise argparse.ArgumentTypeError(f"no {python_of(folder)}")
    return folder


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure a fresh node beside baselines that do the same work.",
        epilog="Missing baselines are first downloaded to benchmarks/.peers.",
    )
    parser.add_argument(
        "scenarios", nargs="*", metavar="scenario", help="a name from --list, or all"
    )
    parser.add_argument("--list", action="store_true", help="print the scenarios and exit")
    parser.add_argument("--install", action="store_true", help="download the baselines and exit")
    parser.add_argument(
        "--rounds", type=int, help="measurements of each server [default: 3; with --quick 1]"
    )
    parser.add_argument(
        "--seconds", type=float, help="duration of a measurement [default: 2.5; with --quick 0.5]"
    )
    parser.add_argument(
        "--quick", action="store_true", help="make fewer projects, publishers and events"
    )
    parser.add_argument(
        "--peers",
        type=_peers,
        default="all",
        help=f"some of {','.join(ALL_PEERS)}, or all, or none",
    )
    parser.add_argument(
        "--before",
        type=_checkout,
        metavar="FOLDER",
        help="measure the node of this checkout, which has a .venv, in the same rounds",
    )
    parser.add_argument(
        "--out", type=Path, help="folder of the results [default: benchmarks/results/TIME]"
    )
    given = parser.parse_args(words)
    given.rounds = (1 if given.quick else 3) if given.rounds is None else given.rounds
    given.seconds = (0.5 if given.quick else 2.5) if given.seconds is None else given.seconds
    if given.rounds < 1 or not 0 < given.seconds <= 60:
        parser.error("--rounds must be at least 1, --seconds above 0 and at most 60")
    unknown = sorted(set(given.scenarios) - {*SCENARIOS, "all"})
    if unknown:
        parser.error(f"unknown scenario: {', '.join(unknown)}; see --list")
    if not (given.scenarios or given.list or given.install):
        parser.error("name a scenario; see --list")
    return given


def _write(out: Path, name: str, tables: Sequence[Table], command: str) -> None:
    out.mkdir(parents=True, exist_ok=True)
    content = {
        "command": command,
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "scenario": name,
        "tables": [table.as_json() for table in tables],
    }
    (out / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")
    (out / f"{name}.svg").write_text(plot.svg(name, tables))


def _run(name: str, context: Context, out: Path, command: str) -> None:
    """Run a scenario and write its tables, also those of a scenario that fails."""
    tables: list[Table] = []

    def emit(table: Table) -> None:
        tables.append(table)
        print(table.text(), end="\n\n", flush=True)

    started = time.monotonic()
    print(f"== {name}", flush=True)
    try:
        SCENARIOS[name](context, emit)
    finally:
        if tables:
            _write(out, name, tables, command)
    print(f"{name} took {time.monotonic() - started:.0f} s\n", flush=True)


def _install() -> None:
    for problem in install.install():
        print(f"not installed: {problem}", flush=True)


def main(words: Sequence[str]) -> int:
    """Run the scenarios until one fails; returns 1 when one did."""
    given = _arguments(words)
    if given.list:
        for name, scenario in SCENARIOS.items():
            print(f"{name:14} {(scenario.__doc__ or '').splitlines()[0]}")
        return 0
    if given.install or set(given.peers) & {"nginx", "nodered", "workerd", "mosquitto-nodered"}:
        _install()
    if not given.scenarios:
        return 0
    names = list(dict.fromkeys(given.scenarios))
    if "all" in names:
        names = [name for name in SCENARIOS if name != "smallest"]
    out = given.out or _RESULTS / time.strftime("%Y%m%d-%H%M%S")
    context = Context(given.rounds, given.seconds, given.peers, given.quick, given.before)
    command = shlex.join(["python", "-m", "benchmarks", *words])
    try:
        for name in names:
            _run(name, context, out, command)
    except (BenchmarkError, SkipTest) as error:  # SkipTest: a program is missing
        print(f"FAILED: {error}", flush=True)
        return 1
    except ModuleNotFoundError as error:
        needs = f"FAILED: {error}; install what tests need: pip install -e '.[test]'"
        print(needs, flush=True)
        return 1
    finally:
        print(f"results in {out}")
    return 0


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # ends the servers that it started
        signal.signal(number, lambda *_: sys.exit(1))
    sys.exit(main(sys.argv[1:]))
