"""What the gateway holds of the embedded broker's messages."""

from __future__ import annotations

from fieldbrook.gateway.mqtt.nats_source import InFlight
from fieldbrook.gateway.mqtt.sources import UNACKNOWLEDGED_HIGH, UNACKNOWLEDGED_HIGH_BYTES


def test_messages_that_nobody_stores_are_bounded_in_number_and_in_bytes() -> None:
    for size in (1, 1 << 20):
        in_flight = InFlight()
        numbers = []
        while in_flight.has_room_for_unstored:
            numbers.append(in_flight.add("", size))
        assert len(numbers) == min(UNACKNOWLEDGED_HIGH, UNACKNOWLEDGED_HIGH_BYTES // size)
        assert in_flight.stored == in_flight.stored_bytes == 0
        for number in numbers[:1] * 2:  # the second time says nothing new
            in_flight.finish(number)
        assert (in_flight.unstored, in_flight.unstored_bytes) == (
            len(numbers) - 1,
            (len(numbers) - 1) * size,
        )
