"""Runs seeds of the simulation; for a failed seed, the report has the command that repeats it."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator

from tests.simulation.run import Outcome, report_of, run_seed, run_seeds

_TOLD = 1_000  # seeds between two lines that tell how far a long run has come


def main() -> int:
    """Run seeds; return 1 if one of them fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--keep-going", action="store_true", help="do not end at a failure")
    parser.add_argument("--verbose", action="store_true", help="print each step")
    options = parser.parse_args()
    began = time.time()
    ran = failed = events = 0
    for outcome in outcomes(options):
        ran += 1
        events += outcome.events
        if ran % _TOLD == 0:
            print(f"{ran} of {options.seeds} seeds, {failed} failed", flush=True)
        if outcome.error:
            failed += 1
            print(report_of(outcome, steps=0) if options.keep_going else report_of(outcome))
            if not options.keep_going:
                break
    print(f"{ran} seeds, {failed} failed, {events} events, {time.time() - began:.0f} s")
    return 1 if failed else 0


def outcomes(options: argparse.Namespace) -> Iterator[Outcome]:
    """Run the seeds; several seeds run in several processes."""
    seeds = range(options.seed, options.seed + options.seeds)
    if options.verbose or options.seeds == 1:
        return (run_seed(seed, on_trace=print if options.verbose else None) for seed in seeds)
    return run_seeds(seeds, options.processes)


if __name__ == "__main__":
    sys.exit(main())
