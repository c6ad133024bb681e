"""What sessions cost, and what their clients may leave in them."""

from __future__ import annotations

from pathlib import Path

from fieldbrook.gateway.mqtt.protocol.reason_codes import ReasonCode
from fieldbrook.gateway.mqtt.sessions.access import ANYBODY
from fieldbrook.gateway.mqtt.sessions.limits import Limits
from fieldbrook.gateway.mqtt.sessions.routing import Router
from fieldbrook.gateway.mqtt.sessions.session import Session, Wire
from fieldbrook.gateway.mqtt.sessions.sessions import Sessions
from fieldbrook.storage.mqtt import MqttStore


class _Line:
    """A connection that nothing is sent to."""

    is_congested = False
    send_maximum = 1

    def send_publish(self, *_: object, **__: object) -> None:
        raise AssertionError("nothing is published here")

    def send_release(self, packet_id: int) -> None:
        raise AssertionError(packet_id)

    def end(self, code: ReasonCode, reason: str) -> None:
        raise AssertionError(code, reason)


def test_a_client_that_connects_again_and_again_leaves_nothing_behind(tmp_path: Path) -> None:
    store = MqttStore(tmp_path, 1 << 24)
    router = Router(Limits(), store, lambda *_: None, lambda _: False)
    sessions = Sessions(Limits(), store, lambda *_: None, router, lambda *_: None)
    wire: Wire = _Line()
    for number in range(5_000):
        session, present = sessions.open(
            ANYBODY, "again", clean_start=False, expiry_s=100_000, wire=wire
        )
        assert present is bool(number)
        sessions.closed(session)
    assert len(sessions) == 1
    assert sessions.scheduled < 2_000
    store.close()


def test_a_client_may_leave_as_many_messages_unreleased_as_it_may_send() -> None:
    session, limit = Session("all"), Limits(receive_maximum=2_000).unreleased
    session.received.update(range(1, 2_000))
    assert session.may_receive(limit)
    session.received.add(2_000)
    assert not session.may_receive(limit)
