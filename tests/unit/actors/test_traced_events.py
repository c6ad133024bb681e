"""The context of a traced event: after its items, and kept when its flags change."""

from __future__ import annotations

from fieldbrook.actors.wire import (
    POISON,
    WireEvent,
    context_of,
    entry_context,
    pack,
    unpack,
    with_context,
    with_flags,
)

EVENT: WireEvent = ("T", 1, "id", b"payload", 5, 0, "")
CONTEXT = bytes(range(24))


def test_an_event_without_a_context_has_none() -> None:
    assert context_of(EVENT) == b""
    assert with_flags(EVENT, POISON) == (*EVENT[:5], POISON, "")


def test_a_context_survives_frames_and_other_flags() -> None:
    traced = with_context(EVENT, CONTEXT)
    assert traced[:7] == EVENT
    (sent,) = unpack(pack([with_flags(traced, POISON)]))
    assert (context_of(sent), sent[5]) == (CONTEXT, POISON)
    assert with_context(traced, bytes(24))[:7] == EVENT, "an event that is sent again has one"


def test_an_outbox_entry_has_a_context_or_none() -> None:
    entry = (1, "mqtt", "topic", b"body", "id")
    assert entry_context(entry) == b""
    assert entry_context(unpack(pack((*entry, CONTEXT)))) == CONTEXT
