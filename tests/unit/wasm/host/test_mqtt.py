"""Topics that applets may publish to."""

from __future__ import annotations

import pytest

from fieldbrook.wasm.host.guest import GuestError
from fieldbrook.wasm.host.mqtt import read_topic


@pytest.mark.parametrize(
    "topic",
    ["a b", "a\tb", "a\nb", "a\x01b", "a\x7fb", "a\x85b", "a\ufdd0b", "a\uffffb", "a\U0010ffffb"],
)
def test_a_topic_over_which_a_broker_ends_the_connection_is_refused(topic: str) -> None:
    with pytest.raises(GuestError):
        read_topic(topic.encode())


@pytest.mark.parametrize("topic", ["a/b", "/", "//", "a//b", "a.b", "*", ">", "$x", "a\U0001f600b"])
def test_other_topics_are_taken(topic: str) -> None:
    assert read_topic(topic.encode()) == topic
