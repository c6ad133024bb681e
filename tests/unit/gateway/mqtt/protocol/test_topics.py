"""Topic names, filters, and the trees of both."""

from __future__ import annotations

import sys
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.gateway.mqtt.protocol.errors import (
    MalformedPacketError,
    TopicFilterError,
    TopicNameError,
)
from fieldbrook.gateway.mqtt.protocol.topics import (
    FilterTree,
    TopicTree,
    check_filter,
    check_topic_name,
    matches,
    parse_shared,
)
from tests.unit.gateway.mqtt.protocol.packets_made import shared_filters

CPU_LIMIT_S = 20.0

# Few names, so that filters and topics often meet.
_names = st.sampled_from(["", "a", "b", "$a", "ab", "A"])
topics = st.lists(_names, min_size=1, max_size=5).map("/".join).filter(bool)


def _filter(levels: list[str], below: bool) -> str:
    return "/".join([*levels, "#"] if below else levels) or "+"


filters = st.builds(_filter, st.lists(_names | st.just("+"), max_size=5), st.booleans())

# The examples of the standards, 4.7.1 and 4.7.2.
MATCHING = [
    ("sport/tennis/player1/#", "sport/tennis/player1"),
    ("sport/tennis/player1/#", "sport/tennis/player1/ranking"),
    ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon"),
    ("sport/#", "sport"),
    ("#", "sport/tennis"),
    ("#", "/"),
    ("sport/tennis/+", "sport/tennis/player1"),
    ("sport/+", "sport/"),
    ("+/+", "/finance"),
    ("/+", "/finance"),
    ("+/tennis/#", "sport/tennis"),
    ("sport/+/player1", "sport/tennis/player1"),
    ("$SYS/#", "$SYS/monitor/Clients"),
    ("$SYS/#", "$SYS"),
    ("$SYS/monitor/+", "$SYS/monitor/Clients"),
    ("a/#", "a/$b"),
    ("a/+", "a/$b"),
]
DIFFERENT = [
    ("sport/tennis/+", "sport/tennis/player1/ranking"),
    ("sport/+", "sport"),
    ("+", "/finance"),
    ("#", "$SYS/monitor/Clients"),
    ("+/monitor/Clients", "$SYS/monitor/Clients"),
    ("+", "$SYS"),
    ("+/#", "$SYS"),
    ("ACCOUNTS", "Accounts"),
    ("a", "a/"),
    ("/a", "a"),
    ("a/b/#", "a"),
    ("é", "e\u0301"),
    ("a", "\ufeffa"),
]


@pytest.mark.parametrize(("topic_filter", "topic"), MATCHING)
def test_filters_match_topics_as_the_standards_say(topic_filter: str, topic: str) -> None:
    assert matches(topic_filter, topic)
    assert found(topic_filter, topic) == ([topic_filter], [topic])


@pytest.mark.parametrize(("topic_filter", "topic"), DIFFERENT)
def test_filters_do_not_match_topics_that_the_standards_exclude(
    topic_filter: str, topic: str
) -> None:
    assert not matches(topic_filter, topic)
    assert found(topic_filter, topic) == ([], [])


def found(topic_filter: str, topic: str) -> tuple[list[str], list[str]]:
    """Return the matches of the trees, with one filter and one topic in them."""
    by_filter: FilterTree[str] = FilterTree()
    by_filter.add(topic_filter, 1, topic_filter)
    by_topic: TopicTree[int] = TopicTree()
    by_topic.set(topic, 1)
    return by_filter.match(topic), [name for name, _ in by_topic.match(topic_filter)]


@given(st.lists(filters, max_size=12), topics)
def test_the_tree_of_filters_finds_what_matches_one_by_one(made: list[str], topic: str) -> None:
    tree: FilterTree[tuple[int, str]] = FilterTree()
    for key, topic_filter in enumerate(made):
        assert tree.add(topic_filter, key, (key, topic_filter))
    wanted = [(key, each) for key, each in enumerate(made) if matches(each, topic)]
    assert sorted(tree.match(topic)) == wanted
    assert len(tree) == len(made)


@given(st.lists(topics, max_size=12), filters)
def test_the_tree_of_topics_finds_what_matches_one_by_one(
    made: list[str], topic_filter: str
) -> None:
    tree: TopicTree[str] = TopicTree()
    for topic in made:
        tree.set(topic, topic.upper())
    wanted = sorted({topic for topic in made if matches(topic_filter, topic)})
    assert sorted(tree.match(topic_filter)) == [(topic, topic.upper()) for topic in wanted]
    assert len(tree) == len(set(made))


@given(st.lists(st.tuples(st.booleans(), filters, st.integers(0, 2)), max_size=30), topics)
def test_filters_come_and_go_and_leave_nothing(
    steps: list[tuple[bool, str, int]], topic: str
) -> None:
    tree: FilterTree[tuple[str, int, int]] = FilterTree()
    held: dict[tuple[str, int], tuple[str, int, int]] = {}
    for number, (add, topic_filter, key) in enumerate(steps):
        if add:
            is_new = (topic_filter, key) not in held
            held[topic_filter, key] = (topic_filter, key, number)
            assert tree.add(topic_filter, key, (topic_filter, key, number)) is is_new
        else:
            was_there = held.pop((topic_filter, key), None) is not None
            assert tree.remove(topic_filter, key) is was_there
        wanted = sorted(each for each in held.values() if matches(each[0], topic))
        assert sorted(tree.match(topic)) == wanted
        assert len(tree) == len(held)
    for topic_filter, key in list(held):
        assert tree.remove(topic_filter, key)
    assert tree.is_empty()


@given(st.lists(st.tuples(st.booleans(), topics), max_size=30))
def test_topics_come_and_go_and_leave_nothing(steps: list[tuple[bool, str]]) -> None:
    tree: TopicTree[int] = TopicTree()
    held: dict[str, int] = {}
    for number, (add, topic) in enumerate(steps):
        if add:
            assert tree.set(topic, number) is (topic not in held)
            held[topic] = number
        else:
            assert tree.remove(topic) is (held.pop(topic, None) is not None)
        assert tree.get(topic) == held.get(topic)
        assert len(tree) == len(held)
    assert dict(tree.match("#")) == {t: v for t, v in held.items() if not t.startswith("$")}
    for topic in held:
        assert tree.remove(topic)
    assert tree.is_empty()


def test_a_key_with_overlapping_filters_has_a_value_for_each() -> None:
    tree: FilterTree[int] = FilterTree()
    for qos, topic_filter in enumerate(("a/#", "a/+", "a/b")):
        tree.add(topic_filter, "session", qos)
    assert sorted(tree.match("a/b")) == [0, 1, 2]
    assert not tree.add("a/+", "session", 7)
    assert sorted(tree.match("a/b")) == [0, 2, 7]


def test_topics_may_change_while_they_are_found() -> None:
    tree: TopicTree[int] = TopicTree()
    for number in range(100):
        tree.set(f"a/{number}", number)
    seen = []
    for topic, number in tree.match("a/+"):
        seen.append(number)
        tree.remove(topic)
        tree.remove(f"a/{(number + 50) % 100}")
        tree.set(f"b/{number}", number)
        tree.set(f"a/new{number}", number)
    assert len(seen) == len(set(seen)) == 50


# Names


@pytest.mark.parametrize("topic", ["", "a+", "+", "a/#", "\0", "a\0b"])
def test_what_is_no_topic_name_is_refused(topic: str) -> None:
    with pytest.raises(MalformedPacketError):
        check_topic_name(topic)


@pytest.mark.parametrize("topic", ["/", "a", "//", " ", "$SYS/x", "é", "a b/c", "$share/a/b", "*"])
def test_everything_else_is_a_topic_name(topic: str) -> None:
    check_topic_name(topic)
    check_filter("+/" + topic)


def test_a_topic_is_limited_in_levels_and_bytes() -> None:
    check_topic_name("a/b/c", max_levels=3)
    with pytest.raises(TopicNameError):
        check_topic_name("a/b/c", max_levels=2)
    check_topic_name("éé", max_bytes=4)
    with pytest.raises(TopicNameError):
        check_topic_name("éé", max_bytes=3)
    check_topic_name("/" * 65_535)
    with pytest.raises(TopicNameError):
        check_topic_name("x" * 65_536)


def test_a_filter_is_limited_in_levels_and_bytes() -> None:
    check_filter("+/+/#", max_levels=3, max_bytes=5)
    with pytest.raises(TopicFilterError):
        check_filter("+/+/#", max_levels=2)
    with pytest.raises(TopicFilterError):
        check_filter("+/+/#", max_bytes=4)
    with pytest.raises(TopicFilterError):
        check_filter("$share/g/a/b/c", max_levels=4)


def test_a_shared_subscription_is_a_group_and_a_filter() -> None:
    assert parse_shared("$share/group/a/+/#") == ("group", "a/+/#")
    assert parse_shared("$share/g//") == ("g", "/")
    for other in ("a", "$share", "$shared/g/a", "/$share/g/a", "$SHARE/g/a"):
        assert parse_shared(other) is None
    for bad in ("$share/", "$share/g", "$share/g/", "$share//a", "$share/a+/b", "$share/#/b"):
        with pytest.raises(MalformedPacketError):
            parse_shared(bad)


@given(shared_filters)
def test_shared_subscriptions_are_filters(topic_filter: str) -> None:
    check_filter(topic_filter)
    shared = parse_shared(topic_filter)
    assert shared is not None
    assert topic_filter == f"$share/{shared[0]}/{shared[1]}"


# What it costs


def test_depth_costs_no_recursion() -> None:
    deep = "/" * 65_535
    assert len(deep) > sys.getrecursionlimit()
    by_filter: FilterTree[int] = FilterTree()
    by_topic: TopicTree[int] = TopicTree()
    began = time.process_time()
    for topic_filter in (deep, "+" + deep[1:] + "+", "/" * 65_533 + "/#"):
        by_filter.add(topic_filter, 1, 1)
    by_topic.set(deep, 1)
    assert len(by_filter.match(deep)) == 2
    assert [value for _, value in by_topic.match("#")] == [1]
    assert matches("+" + deep, deep)
    assert time.process_time() - began < CPU_LIMIT_S
    for topic_filter in (deep, "+" + deep[1:] + "+", "/" * 65_533 + "/#"):
        assert by_filter.remove(topic_filter, 1)
    assert by_topic.remove(deep)
    assert by_filter.is_empty()
    assert by_topic.is_empty()


def test_filters_of_many_wildcards_cost_no_more_than_their_levels() -> None:
    # All 2^12 filters of `a` and `+` match the topic, and none of those with another end.
    tree: FilterTree[int] = FilterTree()
    for number in range(1 << 12):
        levels = ["+" if number >> at & 1 else "a" for at in range(12)]
        tree.add("/".join(levels), number, number)
        tree.add("/".join([*levels, "other"]), number, number)
    began = time.process_time()
    for _ in range(20):
        assert len(tree.match("/".join("a" * 12))) == 1 << 12
        assert len(tree.match("/".join("a" * 13))) == 0
    assert time.process_time() - began < CPU_LIMIT_S
    deep: FilterTree[int] = FilterTree()
    deep.add("+/" * 1000 + "end", 1, 1)
    deep.add("+/" * 500 + "#", 2, 2)
    began = time.process_time()
    assert deep.match("/".join("a" * 1000)) == [2]
    assert time.process_time() - began < CPU_LIMIT_S


def test_a_filter_of_many_wildcards_visits_each_topic_once() -> None:
    tree: TopicTree[int] = TopicTree()
    for number in range(5000):
        tree.set("/".join(f"{number:05}"), number)
    began = time.process_time()
    assert len(list(tree.match("+/+/+/+/+"))) == 5000
    assert not list(tree.match("+/+/+/+/none"))
    assert time.process_time() - began < CPU_LIMIT_S


def test_a_topic_takes_memory_in_proportion_to_its_levels() -> None:
    tree: TopicTree[int] = TopicTree()
    topic = "/".join(["level"] * 1000)
    tracemalloc.start()
    try:
        tree.set(topic, 1)
        assert tracemalloc.get_traced_memory()[0] < 1000 * 600
    finally:
        tracemalloc.stop()
