"""Which hosts get no projects yet because they have just come."""

from __future__ import annotations

from fieldbrook.core.cluster.newcomers import Newcomers

ALONE: dict[str, bool] = {}


def test_a_host_that_comes_to_others_waits_until_it_is_ready() -> None:
    seen = Newcomers()
    assert not seen.update({"h1": True, "h2": True})
    assert seen.update({"h1": True, "h2": True, "h3": False}) == {"h3"}
    assert seen.update({"h1": True, "h2": True, "h3": False}) == {"h3"}
    assert not seen.update({"h1": True, "h2": True, "h3": True})
    assert not seen.update({"h1": True, "h2": True, "h3": False}), "it has come long ago"


def test_a_host_that_was_cut_off_finds_itself_a_newcomer_as_the_others_do() -> None:
    others, own = Newcomers(), Newcomers()
    others.update({"h1": True, "h2": True, "h3": True})
    own.update({"h1": True, "h2": True, "h3": True})
    others.update({"h1": True, "h2": True})
    own.update(ALONE)
    assert own.update({"h1": True, "h3": False}) == {"h3"}
    ready = {"h1": True, "h2": True, "h3": False}
    assert own.update(ready) == others.update(ready) == {"h3"}


def test_hosts_that_start_together_do_not_wait_for_each_other() -> None:
    seen = Newcomers()
    assert not seen.update({"h1": False, "h2": False})
    assert not seen.update({"h1": False, "h2": False, "h3": False})
    assert not seen.update({"h1": False, "h2": True, "h3": False})


def test_a_host_that_goes_away_again_is_forgotten() -> None:
    seen = Newcomers()
    seen.update({"h1": True, "h2": True})
    assert seen.update({"h1": True, "h2": True, "h3": False}) == {"h3"}
    assert not seen.update({"h1": True, "h2": True})
    assert not seen.update({"h1": True, "h2": True, "h3": True})


def test_a_host_stays_a_newcomer_when_the_others_are_not_ready_any_more() -> None:
    seen = Newcomers()
    seen.update({"h1": True, "h2": True})
    seen.update({"h1": True, "h2": True, "h3": False})
    assert seen.update({"h1": False, "h2": False, "h3": False}) == {"h3"}
