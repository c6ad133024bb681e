"""Rates of projects or accounts over time, in little memory."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

Rates = tuple[float, float]
"""Events and failed runs, per second."""

NOTHING: Rates = (0.0, 0.0)
_PAIR = struct.Struct("<2e")
_HALF_MOST = 65_504.0  # the largest number of IEEE 754's half precision


class Rings:
    """A ring of samples for each of at most `limit` owners.

    A sample takes 4 bytes: two rates in half precision, which has three digits. An owner gets a
    ring with its first event. When all rings are in use, it gets the ring of an owner whose samples
    are all 0; if there is no such owner, it gets none.
    """

    def __init__(self, rows: int, limit: int) -> None:
        self._rows, self._limit = rows, limit
        self._rings: dict[int, bytearray] = {}
        self._latest: dict[int, int] = {}  # by owner: the number of the latest sample above 0

    def __len__(self) -> int:
        return len(self._rings)

    def __contains__(self, owner: int) -> bool:
        return owner in self._rings

    @property
    def is_full(self) -> bool:
        """Whether all rings are in use."""
        return len(self._rings) >= self._limit

    def begin(self, owner: int, number: int, others: Rings, other: int) -> None:
        """Give an owner a ring before the sample `number`, with the samples of one of `others`."""
        self._make_room(number, {owner: NOTHING})
        ring, copied = self._rings.get(owner), others._rings.get(other)
        if ring is not None and copied is not None:
            ring[:] = copied
            self._latest[owner] = others._latest.get(other, number)

    def put(self, number: int, rates: Mapping[int, Rates]) -> None:
        """Write the sample with this number for all owners; owners without rates get 0."""
        self._make_room(number, rates)
        place = _PAIR.size * (number % self._rows)
        for owner, ring in self._rings.items():
            events, failed = rates.get(owner, NOTHING)
            _PAIR.pack_into(ring, place, min(events, _HALF_MOST), min(failed, _HALF_MOST))
            if events or failed:
                self._latest[owner] = number

    def _make_room(self, number: int, rates: Mapping[int, Rates]) -> None:
        new = [owner for owner in rates if owner not in self._rings]
        if len(self._rings) + len(new) > self._limit:
            for owner, latest in list(self._latest.items()):
                if number - latest >= self._rows:
                    del self._rings[owner], self._latest[owner]
        for owner in new[: self._limit - len(self._rings)]:
            self._rings[owner] = bytearray(_PAIR.size * self._rows)

    def column(self, owner: int, at: int, places: Sequence[int]) -> list[float]:
        """Return one of an owner's two rates at these places of the ring; 0 without a ring."""
        ring = self._rings.get(owner)
        if ring is None:
            return [0.0] * len(places)
        numbers = struct.unpack(f"<{2 * self._rows}e", ring)[at::2]
        return [numbers[place] for place in places]
