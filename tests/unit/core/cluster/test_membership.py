"""Which hosts may join a cluster."""

from __future__ import annotations

import msgspec
import pytest

from fieldbrook.core.cluster.membership import PINS_LIMIT, Host, Membership, is_host_name
from fieldbrook.core.errors import SettingsError

ONE, TWO, THREE = (Host(f"h{n}", f"10.0.0.{n}", 8886, 8887) for n in (1, 2, 3))
ALONE = Membership("c", "h1", (ONE,))


def test_three_hosts_form_a_cluster_and_it_stays_formed() -> None:
    two = ALONE.joined(TWO)
    three = two.joined(THREE)
    assert [known.formed for known in (ALONE, two, three)] == [False, False, True]
    assert three.hosts == (ONE, TWO, THREE)
    fewer = msgspec.structs.replace(three, hosts=(ONE,), gone=("h2", "h3"))
    assert fewer.joined(Host("h4", "10.0.0.4", 8886, 8887)).formed


def test_a_host_that_asks_again_joins_once() -> None:
    known = ALONE.joined(TWO)
    assert known.why_not(TWO) == ""
    assert known.joined(TWO) == known


def test_the_first_host_is_the_founder_on_each_host() -> None:
    known = ALONE.joined(TWO)
    there = msgspec.structs.replace(known, me="h2")
    assert (known.is_founder, there.is_founder) == (True, False)
    assert (known.myself, there.myself) == (ONE, TWO)
    assert (known.others, there.others) == ((TWO,), (ONE,))


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        (Host("h2", "10.0.0.9", 8886, 8887), "already has a host 'h2' at 10.0.0.2"),
        (Host("h2", "10.0.0.2", 8886, 9), "already has a host 'h2' at 10.0.0.2"),
        (Host("h3", "10.0.0.2", 8886, 9), "'h2' already uses the address 10.0.0.2:8886"),
        (Host("h3", "10.0.0.2", 9, 8887), "'h2' already uses the address 10.0.0.2:8887"),
        (Host("h3", "10.0.0.2", 8887, 9), "'h2' already uses the address 10.0.0.2:8887"),
        (Host("old", "10.0.0.8", 8886, 8887), "removed host, and names cannot be used again"),
        (Host("h 3", "10.0.0.3", 8886, 8887), "not a valid host name"),
    ],
)
def test_a_host_is_refused_in_words(host: Host, reason: str) -> None:
    known = msgspec.structs.replace(ALONE.joined(TWO), gone=("old",))
    assert reason in known.why_not(host)


def test_hosts_may_share_an_address_with_other_ports() -> None:
    assert ALONE.why_not(Host("h2", "10.0.0.1", 9886, 9887)) == ""


@pytest.mark.parametrize("name", ["h1", "a", "Box-7.example.org", "a" * 63])
def test_names_of_machines_are_names_of_hosts(name: str) -> None:
    assert is_host_name(name)


@pytest.mark.parametrize("name", ["", " ", "a b", "a\nb", "-a", "a-", ".", "../x", "ä", "a" * 64])
def test_other_texts_are_no_names_of_hosts(name: str) -> None:
    assert not is_host_name(name)


FULL = ALONE.joined(TWO).joined(Host("h3", "10.0.0.3", 8886, 8887))


def test_a_drained_host_gets_no_projects_until_it_does_again() -> None:
    drained = FULL.without_projects("h2")
    assert drained.drained == ("h2",)
    assert drained.without_projects("h2") == drained
    assert drained.with_projects("h2") == FULL
    with pytest.raises(SettingsError, match="has no host 'h9'; it has h1, h2, h3"):
        FULL.without_projects("h9")
    with pytest.raises(SettingsError, match="one host must run the projects"):
        drained.without_projects("h1").without_projects("h3")


def test_only_a_host_that_alone_is_silent_can_be_removed_and_its_name_is_used_up() -> None:
    with pytest.raises(SettingsError, match="'h2' is up: stop it"):
        FULL.removed("h2", [])
    with pytest.raises(SettingsError, match="'h3' is silent, too"):
        FULL.removed("h2", ["h2", "h3"])
    left = FULL.without_projects("h2").removed("h2", ["h2"])
    assert ([host.name for host in left.hosts], left.gone, left.drained) == (
        ["h1", "h3"],
        ("h2",),
        (),
    )
    assert left.formed
    assert "cannot be used again" in left.why_not(TWO)
    with pytest.raises(SettingsError, match="'h2' was removed already"):
        left.removed("h2", ["h2"])


def test_a_list_with_a_higher_version_is_newer_though_it_has_fewer_hosts() -> None:
    left = msgspec.structs.replace(FULL.removed("h2", ["h2"]), version=FULL.version + 1)
    assert left.is_newer(FULL)
    assert not FULL.is_newer(left)
    assert FULL.is_newer(ALONE)


def test_a_project_is_pinned_to_one_host_until_that_is_removed() -> None:
    three = ALONE.joined(TWO).joined(THREE)
    pinned = three.pinned(7, "h2").pinned(8, "h3").pinned(7, "h3")
    assert dict(pinned.pins) == {7: "h3", 8: "h3"}
    assert dict(pinned.unpinned(7).pins) == {8: "h3"}
    assert dict(pinned.pinned(9, "h2", gone=(7, 8)).pins) == {9: "h2"}
    assert pinned.pinned(9, "h1").removed("h3", {"h3"}).pins == ((9, "h1"),)
    assert pinned.unpinned(1) == pinned


def test_a_project_cannot_be_pinned_to_an_unknown_host_or_beyond_the_limit() -> None:
    three = ALONE.joined(TWO).joined(THREE)
    with pytest.raises(SettingsError, match="the cluster has no host 'h9'; it has h1, h2, h3"):
        three.pinned(7, "h9")
    full = msgspec.structs.replace(three, pins=tuple((n, "h1") for n in range(PINS_LIMIT)))
    with pytest.raises(SettingsError, match="1,000 projects are pinned, which is the limit"):
        full.pinned(PINS_LIMIT, "h1")
    assert dict(full.pinned(0, "h2").pins)[0] == "h2"
