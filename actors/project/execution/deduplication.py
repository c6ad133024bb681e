"""Deduplication of events: a repeated event returns its stored result and does not run again."""

from __future__ import annotations

from fieldbrook.actors.wire import (
    DELIVERY,
    KEY_ITEM,
    KEYED,
    NAMED,
    NODE_COMMAND,
    POISON,
    REDELIVERY,
    RESENT,
    WireEvent,
    delivery_of,
    key_of,
)
from fieldbrook.core import clock
from fieldbrook.core.errors import IdempotencyKeyReusedError
from fieldbrook.storage.project.deduplication import (
    Outcome,
    digest_of,
    digests_of_key,
    old_digest_of,
)
from fieldbrook.storage.project.store import ProjectStore

HANDLED_BEFORE: Outcome = ((0, 0, ""),)
"""The answer to a repeated delivery; its content is not read."""


def is_certainly_new(store: ProjectStore, event: WireEvent) -> bool:
    """Whether an event is certainly no duplicate, so that it may share an instance.

    An event with a name or an idempotency key always gets an instance of its own: the same frame
    may contain a duplicate of it. The same applies to poison events and to commands of the node.
    """
    kind = event[5]
    if kind & (NAMED | KEYED | POISON) or event[1] == NODE_COMMAND:
        return False
    return not _was_delivered(store, event)


def stored_result(store: ProjectStore, event: WireEvent) -> Outcome | None:
    """Return the stored result of a duplicate event; None for a new event.

    Raises:
        IdempotencyKeyReusedError: the event's key was used for another event.
        StoreError: the store cannot be read.
    """
    kind = event[5]
    if kind & KEYED:
        result = _result_by_key(store, event)
        if result is not None:
            return result
    if kind & NAMED:
        return _result_by_name(store, event)
    return HANDLED_BEFORE if _was_delivered(store, event) else None


def _was_delivered(store: ProjectStore, event: WireEvent) -> bool:
    """Whether an MQTT delivery was handled before.

    A sender may use its name again for another message. Therefore the name is looked up only if the
    sender says that it repeats a message. The rest of the name (`delivery_of`) is unique.
    """
    kind = event[5]
    if not kind & (REDELIVERY | RESENT):
        return False
    name, unique = delivery_of(event)
    if kind & REDELIVERY and store.was_delivered(name):
        return True
    return bool(kind & RESENT) and store.was_delivered(unique)


def _result_by_name(store: ProjectStore, event: WireEvent) -> Outcome | None:
    event_type, publisher_id, event_id, payload, _, kind, name = event[:7]
    now = clock.now_ms()
    name = key_of(event)[1] if kind & KEYED else name or event_id
    result = store.outcome_of(digest_of(publisher_id, event_type, name, payload), now)
    if result is None and store.has_old_digests:
        result = store.outcome_of(old_digest_of(publisher_id, event_id, payload), now)
    return result


def _result_by_key(store: ProjectStore, event: WireEvent) -> Outcome | None:
    event_type, publisher_id, _, payload = event[:4]
    key, now = key_of(event)[0], clock.now_ms()
    with_event, alone = digests_of_key(publisher_id, event_type, key, payload)
    result = store.outcome_of(with_event, now)
    if result is None and store.outcome_of(alone, now) is not None:
        raise IdempotencyKeyReusedError(key=key.partition(KEY_ITEM)[0])
    return result


def remember(store: ProjectStore, event: WireEvent, outcome: Outcome) -> None:
    """Store an event's result with the commit of its batch.

    The result of an event without a matching strategy is not stored: the event has done nothing,
    and a strategy may match when it is sent again. MQTT deliveries are stored in any case.
    """
    event_type, publisher_id, event_id, payload, _, kind, name = event[:7]
    finished = store.outcomes
    if kind & DELIVERY:
        for part in delivery_of(event):
            store.deliveries[part] = None
    elif not outcome:
        return
    if kind & KEYED:
        key, name = key_of(event)
        with_event, alone = digests_of_key(publisher_id, event_type, key, payload)
        finished[with_event], finished[alone] = outcome, ()
    if kind & NAMED:
        finished[digest_of(publisher_id, event_type, name or event_id, payload)] = outcome
