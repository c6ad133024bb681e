"""How many WebSockets a process relays, and which one makes room."""

from __future__ import annotations

from fieldbrook.gateway.mqtt.websocket import Relays


def test_the_quietest_websocket_of_the_peer_with_most_makes_room() -> None:
    relays, dropped = Relays(tls=False, descriptors=64), list[str]()
    assert relays.limit == 8

    def add(name: str) -> None:
        relays.add(name[0], name, lambda: dropped.append(name))

    for name in ("a1", "b1", "b2", "b3", "c1", "b4", "c2", "c3"):
        add(name)
    assert (dropped, relays.descriptors) == ([], 16)
    relays.heard("b", "b1")
    relays.heard("b", "gone")
    relays.heard("d", "gone")
    add("d1")
    assert (dropped, relays.descriptors) == (["b2"], 16)
    relays.discard("b", "b2")
    assert relays.descriptors == 16, "it is not counted any more"
    for name in ("d2", "d3"):
        add(name)
    assert dropped == ["b2", "b3", "c1"]
    for name in ("a1", "b1", "b4", "c2", "c3", "d1", "d2", "d3"):
        relays.discard(name[0], name)
    assert (relays.descriptors, list(relays.idle())) == (0, [])


def test_websockets_leave_half_of_the_descriptors_of_connections_to_requests() -> None:
    for tls in (False, True):
        relays = Relays(tls=tls, descriptors=1_024)
        assert relays.limit is not None
        for number in range(relays.limit):
            relays.add("a", number, lambda: None)
        assert relays.descriptors == 256
        assert relays.connections == 0
