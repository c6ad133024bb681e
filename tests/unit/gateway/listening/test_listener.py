"""Which connections are closed for new ones while they are being opened."""

from __future__ import annotations

import asyncio

import pytest

from fieldbrook.gateway.listening.listener import Opening, peer_of


async def _never() -> None:
    await asyncio.get_running_loop().create_future()


def evict(opening: Opening) -> None:
    oldest = opening.evictable(10.0)
    assert oldest is not None
    oldest.evict()


async def test_the_oldest_connection_of_the_peer_with_most_makes_room() -> None:
    opening, tasks = Opening(), {}
    names = ["quiet-1", "crowd-1", "crowd-2", "other-1", "crowd-3"]
    for number, name in enumerate(names):
        tasks[name] = asyncio.create_task(_never())
        opening.add(name.partition("-")[0], tasks[name], float(number))
    for expected in (["crowd-1"], ["crowd-1", "crowd-2"]):
        evict(opening)
        assert [name for name in names if tasks[name].cancelling()] == expected
    assert opening.evictable(-1.0) is None, "all of them are new"
    evict(opening)
    assert tasks["quiet-1"].cancelling(), "the oldest of peers that have one each"
    assert len(opening) == 2
    for each in list(opening.idle()):
        each.evict()
    assert all(task.cancelling() for task in tasks.values())
    assert len(opening) == 0
    opening.discard("crowd", tasks["crowd-1"])
    assert len(opening) == 0


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8::1", "2001:db8::ffff:0:0:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("fe80::1%eth0", "fe80::2%eth0", True),
    ],
)
def test_an_ipv4_address_and_an_ipv6_network_of_64_bits_is_one_peer(
    one: str, other: str, same: bool
) -> None:
    assert (peer_of(one) == peer_of(other)) is same
