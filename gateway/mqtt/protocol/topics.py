"""Topic names and topic filters: checks, matching, and trees of both.

The levels of a topic are separated by `/`. In a filter, the level `+` matches any one level. `#` at
the end matches any number of levels, including no level. Neither matches a first level that begins
with `$`.

Source: MQTT 5.0, 4.7 and 4.8; MQTT 3.1.1, 4.7.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from fieldbrook.gateway.mqtt.protocol.errors import (
    MalformedPacketError,
    TopicFilterError,
    TopicNameError,
)

T = TypeVar("T")

MAX_BYTES = 65_535
MAX_LEVELS = MAX_BYTES + 1
"""The standard's own limits; a level may be empty."""

_SHARE = "$share/"


def check_topic_name(topic: str, max_levels: int = MAX_LEVELS, max_bytes: int = MAX_BYTES) -> None:
    """Check a topic name, as in a PUBLISH.

    Raises:
        MalformedPacketError: the name is empty or contains a wildcard or U+0000.
        TopicNameError: the name has more levels or bytes than the limits.
    """
    if not topic or "+" in topic or "#" in topic or "\0" in topic:
        raise MalformedPacketError("a topic name is empty, or contains a wildcard or U+0000")
    if _is_too_large(topic, max_levels, max_bytes):
        raise TopicNameError("the topic is too long or has too many levels")


def check_filter(
    topic_filter: str, max_levels: int = MAX_LEVELS, max_bytes: int = MAX_BYTES
) -> None:
    """Check a topic filter, with or without the prefix of a shared subscription.

    Raises:
        MalformedPacketError: it is empty, contains U+0000, has a wildcard beside other
            characters, `#` before its end, or is no complete shared subscription.
        TopicFilterError: it has more levels or bytes than the limits.
    """
    if _is_too_large(topic_filter, max_levels, max_bytes):
        raise TopicFilterError("the filter is too long or has too many levels")
    if "\0" in topic_filter:
        raise MalformedPacketError("a topic filter contains U+0000")
    shared = parse_shared(topic_filter)
    check_wildcards(topic_filter if shared is None else shared[1])


def check_wildcards(topic_filter: str) -> None:
    """Check that a filter is not empty, and that each wildcard is a whole level. The filter must
    not have the prefix of a shared subscription.

    Raises:
        MalformedPacketError: the filter is empty, a wildcard is only a part of a level, or `#` is
            not at the end.
    """
    if not topic_filter:
        raise MalformedPacketError("a topic filter is empty")
    end = topic_filter.find("#")
    if end >= 0 and (end != len(topic_filter) - 1 or topic_filter[-2:] not in ("#", "/#")):
        raise MalformedPacketError("# does not fill the last level of its filter")
    if "+" in topic_filter:
        # Each level gets its own separators, so that `count` also finds neighbouring levels.
        apart = f"/{topic_filter.replace('/', '//')}/"
        if apart.count("/+/") != apart.count("+"):
            raise MalformedPacketError("+ does not fill its level")


def _is_too_large(text: str, max_levels: int, max_bytes: int) -> bool:
    # A character has at most four bytes, so most topics need not be encoded.
    if len(text) * 4 > max_bytes and len(text.encode()) > max_bytes:
        return True
    return text.count("/") >= max_levels


def parse_shared(topic_filter: str) -> tuple[str, str] | None:
    """Split the filter of a shared subscription: `$share/<group>/<filter>`.

    Returns:
        The group and the filter, or None for a filter that is not shared.

    Raises:
        MalformedPacketError: the group is empty or contains a wildcard, or no filter
            follows (MQTT-4.8.2-1, MQTT-4.8.2-2).
    """
    if not topic_filter.startswith(_SHARE):
        return None
    group, _, rest = topic_filter[len(_SHARE) :].partition("/")
    if not group or "+" in group or "#" in group or not rest:
        raise MalformedPacketError("a shared subscription needs $share/<group>/<filter>")
    return group, rest


def matches(topic_filter: str, topic: str) -> bool:
    """Whether a topic matches a filter; both have been checked."""
    if topic.startswith("$") and topic_filter[:1] in ("+", "#"):
        return False
    wanted = topic_filter.split("/")
    levels = topic.split("/")
    if wanted[-1] == "#":
        wanted.pop()
        if len(levels) < len(wanted):
            return False
    elif len(levels) != len(wanted):
        return False
    return all(want in ("+", level) for want, level in zip(wanted, levels, strict=False))


class _Branch(Generic[T]):
    """One level of filters."""

    __slots__ = ("all_below", "any_level", "here", "levels")

    def __init__(self) -> None:
        self.levels: dict[str, _Branch[T]] = {}
        self.any_level: _Branch[T] | None = None
        """The filters that continue with `+`."""
        self.here: dict[Hashable, T] = {}
        """The filters that end here."""
        self.all_below: dict[Hashable, T] = {}
        """The filters that end with `#` below this level."""

    def is_empty(self) -> bool:
        """Whether no filter has this level."""
        return not (self.levels or self.here or self.all_below or self.any_level is not None)


class FilterTree(Generic[T]):
    """Filters with values: which of them match a topic?

    Each filter has at most one value for each key; a key is, for example, the session that
    subscribed. `match` visits each level of each filter at most once, wherever the wildcards are,
    and only levels whose predecessors match.
    """

    def __init__(self) -> None:
        self._root: _Branch[T] = _Branch()
        self._count = 0

    def __len__(self) -> int:
        """The number of values."""
        return self._count

    def is_empty(self) -> bool:
        """Whether the tree is empty, without levels of removed filters."""
        return self._root.is_empty()

    def add(self, topic_filter: str, key: Hashable, value: T) -> bool:
        """Set the value of a filter and key; return whether there was none before."""
        levels = topic_filter.split("/")
        all_below = levels[-1] == "#"
        if all_below:
            levels.pop()
        branch = self._root
        for level in levels:
            if level == "+":
                if branch.any_level is None:
                    branch.any_level = _Branch()
                branch = branch.any_level
            else:
                below = branch.levels.get(level)
                if below is None:
                    below = branch.levels[level] = _Branch()
                branch = below
        values = branch.all_below if all_below else branch.here
        is_new = key not in values
        values[key] = value
        self._count += is_new
        return is_new

    def remove(self, topic_filter: str, key: Hashable) -> bool:
        """Remove the value of a filter and key; return whether there was one."""
        levels = topic_filter.split("/")
        all_below = levels[-1] == "#"
        if all_below:
            levels.pop()
        path = [self._root]
        for level in levels:
            below = path[-1].any_level if level == "+" else path[-1].levels.get(level)
            if below is None:
                return False
            path.append(below)
        values = path[-1].all_below if all_below else path[-1].here
        if key not in values:
            return False
        del values[key]
        self._count -= 1
        while levels and path.pop().is_empty():
            level = levels.pop()
            if level == "+":
                path[-1].any_level = None
            else:
                del path[-1].levels[level]
        return True

    def match(self, topic: str) -> list[T]:
        """The values of all filters that match a topic, in no particular order.

        If several filters of a key match, the result has several values of the key.
        """
        levels = topic.split("/")
        root = self._root
        first = root.levels.get(levels[0])
        branches = [] if first is None else [first]
        found: list[T] = []
        if not topic.startswith("$"):
            found.extend(root.all_below.values())
            if root.any_level is not None:
                branches.append(root.any_level)
        for level in levels[1:]:
            reached = []
            for branch in branches:
                if branch.all_below:
                    found.extend(branch.all_below.values())
                below = branch.levels.get(level)
                if below is not None:
                    reached.append(below)
                if branch.any_level is not None:
                    reached.append(branch.any_level)
            if not reached:
                return found
            branches = reached
        for branch in branches:
            found.extend(branch.all_below.values())
            found.extend(branch.here.values())
        return found


class _Level(Generic[T]):
    """One level of topics; `found` holds the topic that ends here and its value."""

    __slots__ = ("found", "levels")

    def __init__(self) -> None:
        self.levels: dict[str, _Level[T]] = {}
        self.found: tuple[str, T] | None = None


class TopicTree(Generic[T]):
    """Topics with values, such as retained messages: which of them does a filter match?"""

    def __init__(self) -> None:
        self._root: _Level[T] = _Level()
        self._count = 0

    def __len__(self) -> int:
        """The number of topics."""
        return self._count

    def is_empty(self) -> bool:
        """Whether the tree is empty, without levels of removed topics."""
        return not self._root.levels

    def get(self, topic: str) -> T | None:
        """The value of a topic."""
        level = self._root
        for name in topic.split("/"):
            below = level.levels.get(name)
            if below is None:
                return None
            level = below
        return None if level.found is None else level.found[1]

    def set(self, topic: str, value: T) -> bool:
        """Set the value of a topic; return whether it had none before."""
        level = self._root
        for name in topic.split("/"):
            below = level.levels.get(name)
            if below is None:
                below = level.levels[name] = _Level()
            level = below
        is_new = level.found is None
        level.found = (topic, value)
        self._count += is_new
        return is_new

    def remove(self, topic: str) -> bool:
        """Remove a topic; return whether it was there."""
        names = topic.split("/")
        path = [self._root]
        for name in names:
            below = path[-1].levels.get(name)
            if below is None:
                return False
            path.append(below)
        if path[-1].found is None:
            return False
        path[-1].found = None
        self._count -= 1
        while names:
            last = path.pop()
            if last.levels or last.found is not None:
                break
            del path[-1].levels[names.pop()]
        return True

    def match(self, topic_filter: str) -> Iterator[tuple[str, T]]:
        """The topics that a filter matches, and their values, in no particular order.

        Topics may be set and removed between two steps of the iterator. It returns topics that
        exist all the time exactly once, does not return removed ones, and may or may not return new
        ones. A step visits levels until a topic matches; each level is visited at most once.
        """
        wanted = topic_filter.split("/")
        all_below = wanted[-1] == "#"
        if all_below:
            wanted.pop()
        depth = len(wanted)
        waiting: list[tuple[_Level[T], int]] = [(self._root, 0)]
        while waiting:
            level, at = waiting.pop()
            if at < depth and wanted[at] != "+":
                below = level.levels.get(wanted[at])
                if below is not None:
                    waiting.append((below, at + 1))
                continue
            if at >= depth and level.found is not None:
                yield level.found
            if at < depth or all_below:
                # Names that begin with $ do not match a wildcard in the first level (MQTT-4.7.2-1).
                waiting.extend(
                    (below, at + 1)
                    for name, below in level.levels.items()
                    if at or not name.startswith("$")
                )
