"""When a project's handlers are run in several threads."""

from __future__ import annotations

from fieldbrook.actors.project.look_ahead.policy import SpeculationPolicy


def spend(policy: SpeculationPolicy, run_s: float, seconds: float = 0.3) -> None:
    for _ in range(int(seconds / run_s) + 1):
        policy.add_cpu_time(run_s, 1)


def test_handlers_are_light_until_they_are_known_to_be_heavy() -> None:
    policy = SpeculationPolicy(heavy_s=200e-6)
    assert not policy.is_worthwhile(0)
    spend(policy, 20e-6)
    assert not policy.is_worthwhile(0)
    spend(policy, 500e-6, 1)
    assert policy.is_worthwhile(0)
    assert policy.mean_s > 200e-6


def test_between_light_and_heavy_what_was_decided_stays() -> None:
    policy = SpeculationPolicy(heavy_s=200e-6)
    spend(policy, 150e-6)
    assert not policy.is_worthwhile(0)
    spend(policy, 300e-6)
    spend(policy, 300e-6)
    assert policy.is_worthwhile(0)
    spend(policy, 150e-6, 1)
    assert policy.is_worthwhile(0)
    spend(policy, 50e-6, 1)
    assert not policy.is_worthwhile(0)


def test_one_slow_run_among_many_changes_nothing() -> None:
    policy = SpeculationPolicy(heavy_s=200e-6)
    policy.add_cpu_time(0.030, 1)
    spend(policy, 20e-6)
    assert not policy.is_worthwhile(0)


def test_where_most_of_what_is_found_cannot_be_kept_there_is_a_pause() -> None:
    policy = SpeculationPolicy(heavy_s=0, pause_s=30)
    for number in range(128):
        policy.add_result(5.0, kept=number % 4 == 0)
    assert not policy.is_worthwhile(34.9)
    assert policy.is_worthwhile(35.0)


def test_where_most_can_be_kept_there_is_no_pause() -> None:
    policy = SpeculationPolicy(heavy_s=0)
    for number in range(128):
        policy.add_result(5.0, kept=number % 4 != 0)
    assert policy.is_worthwhile(5.0)


def test_time_without_any_run_decides_nothing() -> None:
    policy = SpeculationPolicy(heavy_s=200e-6)
    policy.add_cpu_time(10.0, 0)
    assert not policy.is_worthwhile(0)


def test_cpu_time_is_measured_only_while_runs_take_long() -> None:
    policy = SpeculationPolicy(heavy_s=200e-6)

    def measures_after(run_s: float) -> bool:
        for _ in range(10_000):
            policy.add_wall_time(run_s, 1)
        return policy.measures

    assert not measures_after(60e-6)
    assert measures_after(600e-6)
    spend(policy, 60e-6)
    assert not measures_after(60e-6), "the machine was busy, or somebody waited"
    assert measures_after(600e-6)
    spend(policy, 600e-6)
    assert policy.is_worthwhile(0)
