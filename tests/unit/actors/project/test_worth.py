"""When handlers are worth several processes."""

from __future__ import annotations

from fieldbrook.actors.project.worth import Worth


def spend(worth: Worth, run_s: float, seconds: float = 0.3) -> None:
    for _ in range(int(seconds / run_s) + 1):
        worth.spent(run_s, 1)


def test_handlers_are_light_until_they_are_known_to_be_heavy() -> None:
    worth = Worth(heavy_s=200e-6)
    assert not worth.good(0)
    spend(worth, 20e-6)
    assert not worth.good(0)
    spend(worth, 500e-6, 1)
    assert worth.good(0)
    assert worth.mean_s > 200e-6


def test_between_light_and_heavy_what_was_decided_stays() -> None:
    worth = Worth(heavy_s=200e-6)
    spend(worth, 150e-6)
    assert not worth.good(0)
    spend(worth, 300e-6)
    spend(worth, 300e-6)
    assert worth.good(0)
    spend(worth, 150e-6, 1)
    assert worth.good(0)
    spend(worth, 50e-6, 1)
    assert not worth.good(0)


def test_one_slow_run_among_many_changes_nothing() -> None:
    worth = Worth(heavy_s=200e-6)
    worth.spent(0.030, 1)
    spend(worth, 20e-6)
    assert not worth.good(0)


def test_where_most_of_what_is_found_cannot_be_kept_shards_have_a_pause() -> None:
    worth = Worth(heavy_s=0, pause_s=30)
    for number in range(128):
        worth.tried(5.0, kept=number % 4 == 0)
    assert not worth.good(34.9)
    assert worth.good(35.0)


def test_where_most_can_be_kept_there_is_no_pause() -> None:
    worth = Worth(heavy_s=0)
    for number in range(128):
        worth.tried(5.0, kept=number % 4 != 0)
    assert worth.good(5.0)


def test_time_without_any_run_decides_nothing() -> None:
    worth = Worth(heavy_s=200e-6)
    worth.spent(10.0, 0)
    assert not worth.good(0)
