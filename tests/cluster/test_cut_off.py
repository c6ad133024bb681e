"""A host that is cut off from the others, with devices on both sides.

Each host has a network namespace of its own, which needs root and iproute2.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.test_three_hosts import PROJECT, Site
from tests.support.hosts import NAMES, Senders
from tests.support.networks import Network
from tests.support.nodes import message, until

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(300)]


@pytest.fixture
def network() -> Iterator[Network]:
    with Network(NAMES) as made:
        yield made


@pytest.fixture
def site(tmp_path: Path, network: Network) -> Iterator[Site]:
    made = Site(tmp_path, network)
    yield made
    made.cluster.kill()


def test_nothing_is_lost_or_handled_twice_and_the_cut_host_serves_again(
    site: Site, network: Network
) -> None:
    owner, others = site.owner, site.cluster.others(site.owner)
    before = site.count(owner)
    with (
        Senders([owner], PROJECT, owner.add_publisher(PROJECT, "inside"), 1) as inside,
        Senders(others, PROJECT, owner.add_publisher(PROJECT, "outside")) as outside,
    ):
        inside.await_more(10)
        outside.await_more(10)
        network.cut(owner.name)
        until(lambda: others[0].states()[owner.name] == "silent", "its silence is seen")
        outside.await_more(20)  # another host runs the project
        answered = len(inside.acknowledged)
        outside.await_more(100)
        assert len(inside.acknowledged) == answered
        network.mend(owner.name)
        inside.await_more(1)
        outside.await_more(10)
        inside.await_more(10)
    site.cluster.await_up()
    sent = len(inside.acknowledged) + len(outside.acknowledged)
    assert {site.count(host) for host in site.hosts} == {before + sent}


def test_a_revoked_token_is_refused_by_a_host_that_does_not_hear_of_it(
    site: Site, network: Network
) -> None:
    cut = site.cluster.others(site.owner)[0]
    (other,) = {*site.hosts} - {cut, site.owner}
    publisher = other.add_publisher(PROJECT, "guest")
    assert cut.send(PROJECT, message(publisher)).status == 201
    network.cut(cut.name)
    until(lambda: other.states()[cut.name] == "silent", "its silence is seen")
    answer = other.call("DELETE", f"/publisher/data/{publisher['publisherID']}")
    assert answer.status in (200, 204), answer
    # The change was answered when the lease of the cut host had ended.
    answer = cut.send(PROJECT, message(publisher))
    assert answer.status == 503, answer
    assert b"not connected to a majority of the hosts" in answer.body
    assert cut.call("GET", f"/project/{PROJECT}").status == 503
    assert cut.states()[other.name] == "silent", "what an operator asks is answered"
    network.mend(cut.name)
    site.cluster.await_up()
    until(lambda: cut.send(PROJECT, message(publisher)).status == 404, "it knows the change")
