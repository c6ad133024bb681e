"""The health conditions that follow from a host's facts about its cluster."""

from __future__ import annotations

import pytest

from fieldbrook.cluster.watch.conditions import (
    BEHIND_S,
    FENCED_S,
    STALLED_S,
    Since,
    conditions,
)
from fieldbrook.core.cluster.facts import Facts, Known, Told
from fieldbrook.observability import health


def facts(*others: Known, spare: int = 1, registry_lag: int = 0) -> Facts:
    mine = Known(name="h1", told=Told(), heard=1.0, registry_lag=registry_lag)
    return Facts(me="h1", at=1.0, hosts=[mine, *others], spare=spare, outlook="in words")


def known(name: str, **more: float) -> Known:
    return Known(name=name, told=Told(), heard=1.0, **more)  # type: ignore[arg-type]


def found(*args: object, **since: float) -> dict[tuple[str, str], str]:
    known_facts, *silent = args
    assert isinstance(known_facts, Facts)
    names = [str(name) for name in silent]
    all_found = conditions(known_facts, names, Since(**since), 1.5)
    return {(one.part, one.state): one.detail for one in all_found}


def test_nothing_is_said_of_hosts_that_are_well() -> None:
    assert found(facts(known("h2", clock_difference_s=0.4), known("h3"))) == {}


def test_a_silent_host_and_what_one_more_loss_means() -> None:
    assert found(facts(known("h2"), known("h3"), spare=0), "h2") == {
        ("host:h2", health.HOST_SILENT): "no heartbeat for more than 1.5 s",
        ("cluster", health.ONE_MORE_LOSS): "in words",
    }


def test_too_few_hosts_are_told_rather_than_the_leaders_that_they_lack() -> None:
    both = facts(known("h2"), known("h3"), spare=-1)
    stalled = ("cluster", health.JOURNAL_STALLED)
    assert found(both, "h2", "h3", stalled_s=STALLED_S)[stalled] == "in words"
    assert found(both, "h2", "h3", stalled_s=0.5)[stalled] == "in words"
    assert stalled not in found(both, "h2", stalled_s=0.5)
    assert "no leader" in found(both, "h2", stalled_s=STALLED_S)[stalled]


def test_a_host_that_was_stopped_or_never_heard_is_told_as_such() -> None:
    stopped = Known(name="h2", told=Told(draining=True), heard=1.0)
    never = Known(name="h3", told=Told())
    said = found(facts(stopped, never, spare=-1), "h2", "h3")
    assert said["host:h2", health.HOST_SILENT] == "it was stopped"
    assert "no heartbeat since this host was started" in said["host:h3", health.HOST_SILENT]
    assert said["cluster", health.JOURNAL_STALLED] == "in words"
    assert ("cluster", health.ONE_MORE_LOSS) not in said


@pytest.mark.parametrize(
    ("difference_s", "error_s", "detail"),
    [
        (3.0, 0.1, "its clock is 3 s ahead of this host's"),
        (-3.0, 0.1, "its clock is 3 s behind this host's"),
        (3.0, 2.5, None),  # the heartbeats took so long that the clock may be right
        (0.9, 0.0, None),
    ],
)
def test_clocks_are_apart_only_when_the_way_of_the_beats_does_not_explain_it(
    difference_s: float, error_s: float, detail: str | None
) -> None:
    other = known("h2", clock_difference_s=difference_s, clock_error_s=error_s)
    assert found(facts(other)).get(("host:h2", health.CLOCK_APART)) == detail
    assert ("host:h2", health.CLOCK_APART) not in found(facts(other), "h2")


def test_an_election_alone_is_no_condition() -> None:
    assert found(facts(known("h2")), append_s=STALLED_S - 1, stalled_s=STALLED_S - 1) == {}
    stalled = ("cluster", health.JOURNAL_STALLED)
    assert stalled in found(facts(known("h2")), append_s=STALLED_S)
    assert stalled in found(facts(known("h2")), stalled_s=STALLED_S)


def test_refused_records_are_shown_for_some_minutes() -> None:
    fenced = ("cluster", health.FENCED)
    assert fenced in found(facts(), fenced_s=0.0)
    assert fenced not in found(facts(), fenced_s=FENCED_S)


def test_a_registry_that_lags_for_a_moment_is_no_condition() -> None:
    behind = ("registry", health.REGISTRY_BEHIND)
    assert behind not in found(facts(registry_lag=4), registry_s=BEHIND_S - 1)
    said = found(facts(registry_lag=4), registry_s=BEHIND_S)
    assert said[behind].endswith("lacks: 4")
