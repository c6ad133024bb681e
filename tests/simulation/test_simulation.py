"""The core of the node on a simulated machine: no seed breaks a promise, and injected bugs are
found."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from tests.simulation.bugs import BUGS
from tests.simulation.run import Bug, report_of, run_seed, run_seeds

SEEDS = 300  # of every run
THOROUGH_SEEDS = 2_000  # many more: python -m tests.simulation
TRIED = 150  # an injected bug has to be found within this number of seeds


@pytest.mark.timeout(1_200)
@pytest.mark.thorough("further")
@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(1, SEEDS + 1), id="first"),
        pytest.param(range(SEEDS + 1, THOROUGH_SEEDS + 1), id="further"),
    ],
)
def test_every_promise_holds_whatever_fails(seeds: range) -> None:
    outcomes = list(run_seeds(seeds, processes=2))
    failed = [outcome for outcome in outcomes if outcome.error]
    more = "".join(f"\n{report_of(outcome, steps=0)}" for outcome in failed[1:])
    assert not failed, report_of(failed[0]) + more
    assert len(outcomes) == len(seeds)
    assert sum(outcome.events for outcome in outcomes) > 30 * len(seeds), "they send too little"


def in_child(action: Callable[..., bool], *arguments: object) -> bool:
    """Run a function in a fresh process, because threads of other tests would use the simulated
    clock, too."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(action, *arguments).result()


def _is_found(bug: Bug) -> bool:
    return any(run_seed(seed, bug).error for seed in range(1, TRIED + 1))


def _is_repeated() -> bool:
    for seed in range(1, 20):
        first, second = [list[str](), list[str]()]
        if run_seed(seed, on_trace=first.append) != run_seed(seed, on_trace=second.append):
            return False
        if not first or first != second:
            return False
    return True


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(bug: Bug) -> None:
    assert in_child(_is_found, bug)


@pytest.mark.thorough
def test_a_seed_always_gives_the_same_run() -> None:
    assert in_child(_is_repeated)
