"""A host's facts about the others, read some time after they were written."""

from __future__ import annotations

import pytest

from fieldbrook.core.cluster.facts import Facts, Known, Told

HOST = Known(name="h2", told=Told(), heard=99.9)


@pytest.mark.parametrize(
    ("now", "silence_s"),
    [
        (100.0, 0.1),
        (100.9, 0.1),  # it sends heartbeats, and the next write is not due
        (110.0, 10.1),  # the process that receives them does not write any more
    ],
)
def test_a_host_that_beats_is_not_silent_between_two_writings(now: float, silence_s: float) -> None:
    facts = Facts(me="h1", at=100.0, hosts=[HOST], spare=1, outlook="")
    assert facts.silence_s(HOST, now) == pytest.approx(silence_s)
