"""The effect of one more loss: as a number, and as text."""

from __future__ import annotations

import pytest

from fieldbrook.core.cluster.outlook import outlook, spare_hosts


@pytest.mark.parametrize(
    ("hosts", "up", "spare"),
    [(3, 3, 1), (3, 2, 0), (3, 1, -1), (5, 5, 2), (5, 3, 0), (5, 1, -1), (4, 4, 1), (4, 3, 0)],
)
def test_a_majority_has_to_be_left(hosts: int, up: int, spare: int) -> None:
    assert spare_hosts(hosts, up, stalled=False, at_risk=False) == spare


def test_a_stream_that_lacks_a_copy_or_its_leader_counts_more_than_hosts() -> None:
    assert spare_hosts(5, 5, stalled=False, at_risk=True) == 0
    assert spare_hosts(5, 5, stalled=True, at_risk=False) == -1
    assert spare_hosts(3, 1, stalled=False, at_risk=True) == -1


NAMES = ("h1", "h2", "h3")


@pytest.mark.parametrize(
    ("silent", "spare", "behind", "words"),
    [
        ((), 1, (), "One host may be lost: others take over the projects in seconds"),
        (("h2",), 0, (), "Host h2 is silent. When one more host is lost, nothing is committed"),
        ((), 0, ("h3",), "Host h3 is behind. When one more host is lost"),
        (("h2",), 0, ("h3",), "Host h2 is silent and host h3 is behind. When"),
        (("h3", "h2"), -1, (), "Nothing is committed: 1 of 3 hosts is up, and 2 are needed."),
        ((), -1, (), "Streams have no leader"),
    ],
)
def test_the_words_name_the_hosts(
    silent: tuple[str, ...], spare: int, behind: tuple[str, ...], words: str
) -> None:
    assert outlook(NAMES, silent, spare, behind).startswith(words)


def test_a_cluster_that_is_not_complete_says_how_many_are_missing() -> None:
    assert outlook(("h1",), (), 0, ()).startswith("2 more hosts have to join.")
    assert outlook(("h1", "h2"), (), 0, ()).startswith("1 more host has to join.")
