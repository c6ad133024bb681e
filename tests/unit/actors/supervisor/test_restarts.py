"""Backoff of restarts."""

from fieldbrook.actors.supervisor.restarts import BACKOFF_S, STEADY_S, Restarts


def test_the_first_death_is_followed_by_a_start_at_once() -> None:
    assert Restarts().after_exit(100.0).delay_s == 0


def test_deaths_in_a_row_wait_longer_and_longer_up_to_a_bound() -> None:
    restarts, delays = Restarts(), []
    for _ in range(len(BACKOFF_S) + 3):
        restarts = restarts.after_exit(0.5)
        delays.append(restarts.delay_s)
    assert delays == [*BACKOFF_S, *[BACKOFF_S[-1]] * 3]


def test_a_child_that_was_steady_starts_its_count_afresh() -> None:
    restarts = Restarts(6).after_exit(STEADY_S)
    assert restarts == Restarts(1)


def test_waiters_are_told_only_after_several_deaths() -> None:
    assert [Restarts(n).unreachable for n in range(6)] == [False] * 4 + [True] * 2
