"""Reads of the registry: queries, snapshots, other processes."""

from __future__ import annotations

import subprocess
import sys
import threading

from fieldbrook.core.model import ADMIN, DEVELOPER, STARTED
from tests.support.tools import LIMIT_S
from tests.unit.storage.registry.harness import Registry


def test_what_a_command_returns_is_what_readers_find(registry: Registry) -> None:
    account = registry.account()
    project = registry.project()
    made = registry.applet(project)
    publisher = registry("create_publisher", project_id=project.project_id, name="n", key="k")
    reader = registry.reader
    assert reader.account(account.account_id) == reader.account_named("ada") == account
    assert reader.project(project.project_id) == reader.project_named("NftMinter") == project
    assert reader.projects() == reader.projects(account.account_id) == [project]
    assert reader.applet(made.applet.applet_id) == made.applet
    assert reader.applet_of_instance(made.applet.instance_id) == made.applet
    assert reader.applets(project.project_id) == [made.applet]
    assert reader.strategies(project.project_id) == made.strategies
    assert reader.strategies_of_applet(made.applet.applet_id) == made.strategies
    assert reader.strategy(made.strategies[0].strategy_id) == made.strategies[0]
    assert reader.resource(made.resource.resource_id) == made.resource
    assert reader.resources() == reader.resources(account.account_id) == [made.resource]
    assert reader.publishers(project.project_id) == [publisher]
    assert made.applet.state == STARTED


def test_what_does_not_exist_is_none_or_empty(registry: Registry) -> None:
    reader = registry.reader
    for identifier in (0, 5, -1, 1 << 63, 1 << 70):
        assert reader.account(identifier) is None
        assert reader.project(identifier) is None
        assert reader.applet(identifier) is None
        assert reader.applet_of_instance(identifier) is None
        assert reader.resource(identifier) is None
        assert reader.strategy(identifier) is None
    assert reader.project_named("") is None
    assert reader.account_named("a" * 5_000) is None
    assert reader.publisher(5, "x") is None
    for rows in (reader.applets(5), reader.strategies(5), reader.publishers(5)):
        assert list(rows) == []
    assert not reader.has_administrator()


def test_only_an_administrator_counts_as_one(registry: Registry) -> None:
    registry.account("dev", DEVELOPER)
    assert not registry.reader.has_administrator()
    registry.account("root", ADMIN)
    assert registry.reader.has_administrator()


def test_a_publisher_is_found_by_key_before_id_and_only_in_its_project(
    registry: Registry,
) -> None:
    project, other = registry.project("one"), registry.project("two")
    make = {"project_id": project.project_id, "name": "n"}
    one = registry("create_publisher", key="dev-1", **make)
    reader = registry.reader
    assert reader.publisher(project.project_id, "dev-1") == one
    assert reader.publisher(project.project_id, str(one.publisher_id)) == one
    assert reader.publisher(other.project_id, "dev-1") is None
    assert reader.publisher(other.project_id, str(one.publisher_id)) is None
    assert reader.publisher(project.project_id, "dev-2") is None
    assert reader.publisher(project.project_id, "9" * 30) is None
    assert reader.publisher(project.project_id, "٣") is None
    assert reader.publisher(project.project_id, "\ud800") is None
    impostor = registry("create_publisher", key=str(one.publisher_id), **make)
    assert reader.publisher(project.project_id, str(one.publisher_id)) == impostor


def test_a_snapshot_does_not_move_with_later_commands(registry: Registry) -> None:
    registry.project("one")
    with registry.reader.snapshot() as snapshot:
        writing = threading.Thread(target=registry.project, args=("two",))
        writing.start()
        writing.join()
        assert [p.name for p in snapshot.projects()] == ["one"]
        assert snapshot.version() == registry.reader.version() - 1
    assert [p.name for p in registry.reader.projects()] == ["one", "two"]


def test_a_reader_in_another_process_sees_each_commit(registry: Registry) -> None:
    program = (
        "import sys; from pathlib import Path;"
        "from fieldbrook.storage.registry.service import RegistryReader;"
        "r = RegistryReader(Path(sys.argv[1]));"
        "[print(r.version(), r.project_named('late') is not None, flush=True)"
        " for _ in sys.stdin]"
    )
    reader = subprocess.Popen(
        [sys.executable, "-c", program, str(registry.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert reader.stdin is not None
    assert reader.stdout is not None
    reader.stdin.write(b"\n")
    reader.stdin.flush()
    assert reader.stdout.readline() == b"0 False\n"
    registry.project("late")
    answer, _ = reader.communicate(b"\n", timeout=LIMIT_S)
    assert answer == b"2 True\n"
