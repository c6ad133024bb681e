"""Test the promises of a cluster of three hosts: `python -m tests.cluster`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import fields
from pathlib import Path

from tests.cluster.acceptance import NOT_TRIED, Acceptance, Plan


def main() -> int:
    """Print a line for each promise; return 1 if one does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    for each in fields(Plan):
        value = getattr(Plan, each.name)
        flag = f"--{each.name.replace('_', '-')}"
        parser.add_argument(flag, type=type(value), default=value, help=f"[default: {value}]")
    plan = Plan(**vars(parser.parse_args()))
    bad = 0
    with tempfile.TemporaryDirectory(prefix="fb-hosts-") as folder:
        for line in Acceptance(Path(folder), plan).run():
            bad += not line.holds
            print(line, flush=True)
    for what in NOT_TRIED:
        print(f"not tried  {what}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
