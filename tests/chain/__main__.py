"""Long runs against a chain with failures: acknowledged transactions must be on the chain, and all
its logs must be read."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import Any

from tests.chain import catch_up, kills


def main() -> int:
    """Run a command; return 1 if a check fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.chain", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    killing = commands.add_parser("kills", description=kills.__doc__)
    _add_options(killing, kills.Plan())
    reading = commands.add_parser("reading", description=catch_up.__doc__)
    _add_options(reading, catch_up.Plan())
    reading.add_argument("--pairs", action="store_true", help="each pair of personalities")
    reading.add_argument("endpoints", nargs="*", help="personalities, such as ankr or infura+pool")
    options = vars(parser.parse_args())
    command = options.pop("command")
    return _kill(options) if command == "kills" else _read(options)


def _add_options(parser: argparse.ArgumentParser, defaults: Any) -> None:
    for each in fields(defaults):
        value = getattr(defaults, each.name)
        parser.add_argument(f"--{each.name.replace('_', '-')}", type=type(value), default=value)


def _kill(options: dict[str, Any]) -> int:
    with tempfile.TemporaryDirectory(prefix="fieldbrook-kills-") as folder:
        report = kills.run(Path(folder), kills.Plan(**options))
    print(report)
    return 1 if report.faults() else 0


def _read(options: dict[str, Any]) -> int:
    named = [names.split("+") for names in options.pop("endpoints")]
    pairs = options.pop("pairs")
    plan = catch_up.Plan(**options)
    bad = 0
    print(catch_up.Row.HEAD)
    with catch_up.chain(plan) as contracts:
        for names in named or catch_up.groups(pairs):
            row = asyncio.run(catch_up.read(contracts, names, plan))
            bad += not row.is_complete
            print(row, flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
