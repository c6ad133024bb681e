"""On which topics the handlers of a project may publish."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fieldbrook.actors.project.topics import HandlerTopics, covers
from fieldbrook.core import clock
from fieldbrook.core.model import ADMIN, DEVELOPER, Project
from fieldbrook.storage.registry.service import RegistryWriter


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[RegistryWriter]:
    writer = RegistryWriter(tmp_path, 4 << 20, clock.now_ms, b"k" * 32)
    yield writer
    writer.close()


def _project(registry: RegistryWriter, account: str, name: str, role: str = DEVELOPER) -> Project:
    known = registry.reader().account_named(account)
    known = known or registry.create_account(account, "no password", role)
    return registry.create_project(known.account_id, name)


def test_handlers_publish_below_the_projects_of_their_own_account_alone(
    registry: RegistryWriter,
) -> None:
    own = _project(registry, "ada", "orchard")
    _project(registry, "ada", "barn")
    _project(registry, "bob", "meadow")
    topics = HandlerTopics(registry.reader(), own.project_id)
    for topic in ("orchard/gauge/mode", "barn/gauge/mode", "out/readings", "a", "meadows/gauge"):
        assert topics.why_not(topic) is None, topic
    for topic in ("meadow/gauge/mode", "meadow/", "meadow//"):
        reason = f"topic {topic!r} belongs to project meadow of another account"
        assert topics.why_not(topic) == reason
    for topic in ("orchard", "meadow", "meadow/push/TOKEN/DEFAULT"):
        assert "takes events" in str(topics.why_not(topic))
    assert "the broker's own" in str(topics.why_not("$SYS/uptime"))


def test_handlers_of_an_administrator_publish_below_all_projects(registry: RegistryWriter) -> None:
    own = _project(registry, "root", "control", ADMIN)
    _project(registry, "bob", "meadow")
    assert HandlerTopics(registry.reader(), own.project_id).why_not("meadow/gauge/mode") is None


def test_topics_that_are_open_to_all_are_open_to_handlers(registry: RegistryWriter) -> None:
    own = _project(registry, "ada", "orchard")
    _project(registry, "bob", "meadow")
    topics = HandlerTopics(registry.reader(), own.project_id, ("+/status", "lake/#"))
    assert topics.why_not("meadow/status") is None
    assert topics.why_not("meadow/gauge/mode") is not None


def test_replies_are_not_topics_of_a_project_of_that_name(registry: RegistryWriter) -> None:
    own = _project(registry, "ada", "orchard")
    _project(registry, "bob", "ack")
    assert HandlerTopics(registry.reader(), own.project_id).why_not("ack/gauge") is None


def test_the_handlers_of_a_removed_project_own_no_project(registry: RegistryWriter) -> None:
    own = _project(registry, "ada", "orchard")
    registry.remove_project(own.project_id)
    _project(registry, "bob", "orchard")
    assert HandlerTopics(registry.reader(), own.project_id).why_not("orchard/gauge") is not None


@pytest.mark.parametrize(
    ("allowed", "wanted", "expected"),
    [
        ("lake/#", "lake/a/b", True),
        ("lake/#", "lake", True),
        ("+/status", "meadow/status", True),
        ("+/status", "meadow/a/status", False),
        ("a/b", "a/b", True),
        ("a/+", "a/#", False),
        ("a/b", "a/+", False),
    ],
)
def test_a_filter_covers_another(allowed: str, wanted: str, expected: bool) -> None:
    assert covers(allowed, wanted) == expected
