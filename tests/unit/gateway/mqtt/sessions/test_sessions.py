"""The cost of sessions, and the limits of their content."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.core import clock
from fieldbrook.gateway.memory_budget import Shared
from fieldbrook.gateway.mqtt.protocol.properties import Properties
from fieldbrook.gateway.mqtt.protocol.reason_codes import ReasonCode
from fieldbrook.gateway.mqtt.sessions.access import ANYBODY, Principal
from fieldbrook.gateway.mqtt.sessions.limits import (
    LEAST_PACKET_IDS,
    UNRELEASED,
    Limits,
)
from fieldbrook.gateway.mqtt.sessions.routing import Router
from fieldbrook.gateway.mqtt.sessions.session import Message, Session, Subscribed, Wire
from fieldbrook.gateway.mqtt.sessions.sessions import Sessions
from fieldbrook.storage.mqtt import MqttStore, Operation

DEFAULTS = Limits()


class _Line:
    """A connection whose client acknowledges nothing."""

    is_congested = False
    send_maximum = 1_000

    def __init__(self) -> None:
        self.topics: list[str] = []

    def send_publish(self, message: Message, *_: object, **__: object) -> None:
        self.topics.append(message.topic)

    def send_release(self, packet_id: int) -> None:
        raise AssertionError(packet_id)

    def end(self, code: ReasonCode, reason: str) -> None:
        raise AssertionError(code, reason)


class _NoRights:
    """Rights under which nobody may read anything."""

    def opens(self, topic: str) -> bool:
        return False

    def may_read(self, principal: Principal, topic: str) -> bool:
        return False

    def project_of(self, topic: str) -> int:
        return 0


def _sessions(store: MqttStore, limits: Limits = DEFAULTS) -> Sessions:
    """Make the sessions of a store without writes."""
    router = Router(limits, store, lambda *_: None, _NoRights())
    return _sessions_of(router, store, limits)


def _sessions_of(router: Router, store: MqttStore, limits: Limits = DEFAULTS) -> Sessions:
    return Sessions(limits, store, lambda *_: None, router, lambda *_: None, lambda *_: None)


def test_a_client_that_connects_again_and_again_leaves_nothing_behind(tmp_path: Path) -> None:
    store = MqttStore(tmp_path, 1 << 24)
    sessions = _sessions(store)
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


def test_all_sessions_together_remember_a_limited_number_of_packet_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fieldbrook.gateway.mqtt.sessions.sessions.ALL_PACKET_IDS", 4_000)
    store = MqttStore(tmp_path, 1 << 24)
    sessions = _sessions(store, Limits(share_percent=50))
    opened = {
        address: [
            sessions.open(
                ANYBODY,
                f"{address} {number}",
                clean_start=True,
                expiry_s=60,
                wire=_Line(),
                address=address,
            )[0]
            for number in range(10)
        ]
        for address in ("one", "two", "three")
    }
    received = {}
    for address, clients in opened.items():
        for session in clients:
            for packet_id in range(1, UNRELEASED + 1):
                if session.may_receive(session.may_remember(UNRELEASED)):
                    session.received.add(packet_id)
                    session.count_packet_ids()
        received[address] = sum(len(session.received) for session in clients)
    # Half for the first address, the rest for the second, and a few for every other session.
    first, least = 2_000 + 8 * LEAST_PACKET_IDS, 8 * LEAST_PACKET_IDS
    assert received["one"] == first
    assert received["two"] == 4_000 - first + least
    assert received["three"] == 10 * LEAST_PACKET_IDS
    for session in opened["one"]:
        sessions.closed(session)
        sessions.remove(session)
        session.count_packet_ids()
    assert opened["three"][0].may_remember(UNRELEASED) == UNRELEASED
    store.close()


def test_a_packet_id_is_remembered_while_few_are_though_all_have_many(tmp_path: Path) -> None:
    session = Session("full", packet_ids=Shared(0, 50))
    for packet_id in range(1, 100):
        session.remember_handled(packet_id, b"digest")
        session.note_release(packet_id)
        session.releasing.clear()
    assert list(session.handled) == list(session.releases) == list(range(92, 100))


def test_members_of_a_group_take_turns_and_those_who_are_away_get_nothing_meanwhile(
    tmp_path: Path,
) -> None:
    store = MqttStore(tmp_path, 1 << 24)
    router = Router(DEFAULTS, store, lambda *_: None, _NoRights())
    sessions = _sessions_of(router, store)
    lines = [_Line() for _ in range(6)]
    members = []
    for number, line in enumerate(lines):
        session, _ = sessions.open(ANYBODY, f"{number}", clean_start=True, expiry_s=600, wire=line)
        session.wire, session.opening = line, None
        router.resume(session)
        router.subscribe(session, Subscribed("$share/crew/shared/+", 0))
        members.append(session)

    def publish(count: int) -> list[int]:
        for line in lines:
            line.topics.clear()
        for number in range(count):
            router.publish(Message(f"shared/{number}", b""))
        return [len(line.topics) for line in lines]

    assert publish(12) == [2] * 6
    for session in members[:4]:
        sessions.closed(session)
    assert publish(6) == [0, 0, 0, 0, 3, 3]
    members[0].wire = lines[0]
    router.resume(members[0])
    router.unsubscribe(members[5], "$share/crew/shared/+")
    assert publish(6) == [3, 0, 0, 0, 3, 0]
    for session in (members[0], members[4]):
        sessions.closed(session)
    router.publish(Message("shared/away", b"", 1))
    assert publish(3) == [0] * 6
    for session in members[:5]:
        sessions.remove(session)
    assert router.publish(Message("shared/nobody", b"")) == 0
    store.close()


def test_topics_and_properties_of_messages_count_as_their_payloads_do(tmp_path: Path) -> None:
    limits = Limits(queued_bytes=100_000, share_percent=100)
    pair = ("name", "v" * 10_000)
    for expiry_s in (0, 600):
        store = MqttStore(tmp_path / str(expiry_s), 1 << 24)
        router = Router(limits, store, lambda *_: None, _NoRights())
        sessions = _sessions_of(router, store, limits)
        line = _Line()
        line.send_maximum = 1
        session, _ = sessions.open(
            ANYBODY, "reader", clean_start=True, expiry_s=expiry_s, wire=line, address="one"
        )
        session.wire, session.opening = line, None
        router.subscribe(session, Subscribed("#", 1))
        long = Message("t/" + "l" * 4_000, b"", 1, properties=Properties(user_properties=(pair,)))
        found = sum(router.publish(long) for _ in range(20))
        assert found in {7, 8}  # including the one in transmission
        assert session.queued_bytes > 14_000 * found
        sessions.closed(session)
        if expiry_s:
            sessions.remove(session)
        assert router.queues.has_room("one", limits.store_bytes)
        store.close()


def test_what_sessions_have_subscribed_to_counts_for_their_share(tmp_path: Path) -> None:
    store = MqttStore(tmp_path, 1 << 24)

    def write(operations: Sequence[Operation], done: object) -> None:
        store.commit(operations)

    limits = Limits(store_bytes=1 << 20, share_percent=50)
    opened: list[Session] = []

    def start() -> tuple[Router, Sessions]:
        router = Router(limits, store, write, _NoRights())
        return router, Sessions(limits, store, write, router, lambda *_: None, lambda *_: None)

    router, sessions = start()
    while router.queues.has_room("one", 4_000):
        session, _ = sessions.open(
            ANYBODY,
            f"{len(opened)}",
            clean_start=True,
            expiry_s=600,
            wire=_Line(),
            address="one",
        )
        for number in range(8):
            router.subscribe(session, Subscribed(f"ack/{number}" + "f" * 4_000, 0))
        sessions.save(session, None)
        opened.append(session)
    assert len(opened) == 17
    router, sessions = start()  # as after a restart
    assert not router.queues.has_room("one", 4_000)
    assert router.queues.has_room("two", 500_000)
    sessions.remove(sessions.all()[0])
    assert router.queues.has_room("one", 4_000)
    store.close()


def test_a_reply_costs_nothing_for_those_who_may_not_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MqttStore(tmp_path, 1 << 24)
    router = Router(DEFAULTS, store, lambda *_: None, _NoRights())
    sessions = _sessions_of(router, store)
    sender, owner, publisher, admin, stranger = lines = [_Line() for _ in range(5)]
    principals = {
        owner: Principal("account 1", account_id=1, project_ids=frozenset({5})),
        publisher: Principal("publisher 7", publisher_id=7, project_id=5, publisher_key="k"),
        admin: Principal("account 2", account_id=2, is_admin=True),
    }
    opened = {}
    for number, line in enumerate(lines):
        session, _ = sessions.open(
            principals.get(line, ANYBODY), f"{number}", clean_start=True, expiry_s=0, wire=line
        )
        session.wire, session.opening = line, None
        for topic_filter in ("ack/+", "$share/crew/ack/k", "ack/#", "lake/#"):
            router.subscribe(session, Subscribed(topic_filter, 0))
        opened[line] = session
    router.readers.add_sender(opened[sender], 7, 5, "k")

    def match(topic: str) -> list[Any]:
        raise AssertionError(topic)

    monkeypatch.setattr(router._subscriptions, "match", match)
    reply = Message("ack/k", b"", 0, publisher_id=7, project_id=5)
    assert router.publish(reply) == 5  # including one member of the group
    assert [len(line.topics) for line in (owner, publisher, admin, stranger)] in (
        [1, 1, 1, 0],
        [2, 1, 1, 0],
        [1, 2, 1, 0],
        [1, 1, 2, 0],
    )
    assert router.publish(Message("ack/other", b"", 0, publisher_id=8, project_id=6)) == 1
    assert router.publish(Message("ack/k", b"", 0, project_id=5)) == 5  # the message of a handler
    for line in lines:
        sessions.closed(opened[line])
    assert router.publish(reply) == 0
    assert (len(router.readers._keys), len(router.readers._sessions)) == (0, 0)
    store.close()


class _OneSlice:
    """Time slices that end after a number of deliveries."""

    def __init__(self, lines: list[_Line]) -> None:
        self.lines, self.later = lines, list[Callable[[], object]]()

    @property
    def is_used_up(self) -> bool:
        return True

    def continue_later(self, work: Callable[[], object]) -> None:
        self.later.append(work)

    def delivered(self) -> int:
        return sum(len(line.topics) for line in self.lines)


def test_a_message_for_many_subscribers_is_delivered_in_pieces(tmp_path: Path) -> None:
    store = MqttStore(tmp_path, 1 << 24)
    lines = [_Line() for _ in range(100)]
    slices = _OneSlice(lines)
    router = Router(DEFAULTS, store, lambda *_: None, _NoRights(), slices)
    sessions = _sessions_of(router, store)
    opened = []
    for number, line in enumerate(lines):
        session, _ = sessions.open(ANYBODY, f"{number}", clean_start=True, expiry_s=0, wire=line)
        session.wire, session.opening = line, None
        router.subscribe(session, Subscribed("lake/level", number % 2))
        opened.append(session)
    done: list[object] = []
    assert router.publish(Message("lake/level", b"1", 1), done.append) == 100
    assert done == [None]  # nothing has to be stored
    assert 0 < slices.delivered() < 20
    gone = next(each for each in reversed(opened) if not _topics(each))
    router.unsubscribe(gone, "lake/level")
    pieces = 0
    while slices.later:
        pieces += 1
        slices.later.pop()()
    assert pieces > 4
    assert [len(_topics(each)) for each in opened if each is not gone] == [1] * 99
    assert _topics(gone) == []
    store.close()


def _topics(session: Session) -> list[str]:
    assert isinstance(session.wire, _Line)
    return session.wire.topics


def test_a_reply_to_a_shared_subscription_costs_nothing_for_members_who_may_not_read_it(
    tmp_path: Path,
) -> None:
    store = MqttStore(tmp_path, 1 << 24)
    router = Router(DEFAULTS, store, lambda *_: None, _NoRights())
    sessions = _sessions_of(router, store)
    lines = [_Line() for _ in range(50)]
    readers = [_Line() for _ in range(3)]
    for number, line in enumerate([*lines, *readers]):
        session, _ = sessions.open(ANYBODY, f"{number}", clean_start=True, expiry_s=0, wire=line)
        session.wire, session.opening = line, None
        router.subscribe(session, Subscribed("$share/crew/ack/#", 0))
        if line in readers:
            router.readers.add_sender(session, 7, 5, "k")
    looks = _CountedLooks(router._groups["crew", "ack/#"].connected)
    router._groups["crew", "ack/#"].connected = looks
    reply = Message("ack/k", b"", 0, publisher_id=7, project_id=5)
    for _ in range(6):
        assert router.publish(reply) == 1
    assert [len(line.topics) for line in readers] == [2, 2, 2]  # they take turns
    assert not any(line.topics for line in lines)
    assert looks.count == 0
    store.close()


class _CountedLooks(collections.OrderedDict[str, Any]):
    """Counts the iterations over all items."""

    count = 0

    def items(self) -> Any:
        self.count += 1
        return super().items()


def test_the_sessions_that_end_at_the_same_time_end_some_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MqttStore(tmp_path, 1 << 24)
    router = Router(DEFAULTS, store, lambda *_: None, _NoRights())
    later: list[Callable[[], None]] = []
    sessions = Sessions(
        DEFAULTS,
        store,
        lambda *_: None,
        router,
        lambda *_: None,
        lambda _, work: later.append(work),
    )
    now = [1_000_000]
    monkeypatch.setattr(clock, "now_ms", lambda: now[0])
    for number in range(500):
        session, _ = sessions.open(
            ANYBODY, f"{number}", clean_start=True, expiry_s=10, wire=_Line()
        )
        sessions.closed(session)
    now[0] += 20_000
    left = [len(sessions)]
    sessions.expire()
    while later:
        left.append(len(sessions))
        later.pop()()
    assert len(sessions) == 0
    assert len(left) > 5
    assert max(before - after for before, after in itertools.pairwise(left)) <= 100
    store.close()
