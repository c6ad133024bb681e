"""Which host owns what."""

from __future__ import annotations

import collections

from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.core.cluster.placement import REGISTRY, home, project_home, project_name

HOSTS = ("h1", "h2", "h3")
NAMES = [project_name(number) for number in range(1, 3_001)]


@given(hosts=st.sets(st.text(), min_size=1, max_size=8), name=st.text(), data=st.data())
def test_the_order_of_the_hosts_changes_nothing(
    hosts: set[str], name: str, data: st.DataObject
) -> None:
    ordered = data.draw(st.permutations(sorted(hosts)))
    assert home(name, ordered) == home(name, hosts)
    assert home(name, hosts) in hosts


def test_only_what_belonged_to_a_host_that_left_moves() -> None:
    for gone in HOSTS:
        left = [host for host in HOSTS if host != gone]
        for name in (REGISTRY, *NAMES):
            before = home(name, HOSTS)
            if before != gone:
                assert home(name, left) == before


def test_a_host_that_comes_gets_names_and_nothing_else_moves() -> None:
    for name in NAMES:
        assert home(name, (*HOSTS, "h4")) in (home(name, HOSTS), "h4")


def test_a_pinned_project_belongs_to_its_host_whenever_that_is_up() -> None:
    for number in range(1, 100):
        pins = {number: "h2"}
        assert project_home(number, HOSTS, pins) == "h2"
        for hosts, other in ((("h1", "h3"), pins), (HOSTS, {number + 1: "h2"})):
            assert project_home(number, hosts, other) == home(project_name(number), hosts)


def test_each_host_owns_its_share() -> None:
    for hosts in (HOSTS, (*HOSTS, "h4", "h5"), tuple(f"host-{n}" for n in range(20))):
        owned = collections.Counter(home(name, hosts) for name in NAMES)
        mean = len(NAMES) / len(hosts)
        assert set(owned) == set(hosts)
        assert max(owned.values()) < 1.5 * mean
        assert min(owned.values()) > 0.5 * mean
