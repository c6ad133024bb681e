"""Last wills that wait to be published."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from fieldbrook.gateway.mqtt.connection.time_slices import TimeSlices
from fieldbrook.gateway.mqtt.listener.own_messages import OwnMessages
from fieldbrook.gateway.mqtt.sessions.limits import WILLS_WAITING, Limits
from fieldbrook.gateway.mqtt.sessions.session import Session, WillRecord


def test_the_wills_of_one_address_leave_room_for_those_of_others() -> None:
    loop, now = asyncio.new_event_loop(), [0.0]
    slices = TimeSlices(loop, lambda: now[0])

    def use_up() -> None:
        now[0] += 1.0

    slices.run("somebody", use_up)  # so that nothing is published in this turn of the loop
    server: Any = SimpleNamespace(limits=Limits(), slices=slices, loop=loop)
    events: Any = None
    messages, will = OwnMessages(server, events), WillRecord("lake/will", b"gone", 0, False)
    hog, other = (Session("c", address=address) for address in ("192.0.2.1", "192.0.2.2"))
    for _ in range(WILLS_WAITING):
        messages.publish_will(hog, will)
    messages.publish_will(other, will)
    assert slices.waiting(hog.holder) == WILLS_WAITING // 2
    assert slices.waiting(other.holder) == 1
    loop.close()
