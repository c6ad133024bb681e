"""The registry's commands, one by one."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lmdb
import pytest

from fieldbrook.core.errors import (
    AccountIdentityConflictError,
    AccountNotFoundError,
    AppletNameConflictError,
    AppletNotFoundError,
    InstanceNotFoundError,
    InvalidOldPasswordError,
    NoAdminPermissionError,
    NodeError,
    ProjectNameConflictError,
    ProjectNotFoundError,
    PublisherConflictError,
    PublisherNotFoundError,
    ResourceNotFoundError,
    StoreError,
    StrategyConflictError,
    StrategyNotFoundError,
    from_wire,
    to_wire,
)
from fieldbrook.core.model import ADMIN, DEVELOPER, NAME_LIMIT, STARTED, STOPPED, Account, Project
from fieldbrook.security.tokens import TokenOwner, read_any_token
from fieldbrook.storage.lmdb.environment import open_environment
from fieldbrook.storage.lmdb.ids import to_key
from fieldbrook.storage.lmdb.schema import SCHEMA_CELL
from fieldbrook.storage.registry.service import (
    COMMANDS,
    Deployed,
    Module,
    RegistryReader,
    RegistryWriter,
    decode_result,
    encode_result,
    execute,
)
from fieldbrook.storage.registry.tables import SCHEMA
from tests.support.tools import LIMIT_S

KEY = b"k" * 32
MAP = 16 << 20
MODULE = Module("log.wasm", "ab" * 32, "cd" * 16, 100, ["start", "mint"])
OTHER_MODULE = Module("two.wasm", "12" * 32, "34" * 16, 200, ["start"])


class Registry:
    """A writer whose commands travel as they do between processes, and a clock to set."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now_ms = 1_800_000_000_000
        self._open()

    def _open(self) -> None:
        self.writer = RegistryWriter(self.path, MAP, lambda: self.now_ms, KEY)
        self.reader = self.writer.reader()

    def reopen(self) -> None:
        self.writer.close()
        self._open()

    def __call__(self, op: str, **args: Any) -> Any:
        return decode_result(op, encode_result(execute(self.writer, op, args)))

    def account(self, username: str = "ada", role: str = ADMIN) -> Account:
        created = self("create_account", username=username, password_hash="h", role=role)
        assert isinstance(created, Account)
        return created

    def project(self, name: str = "NftMinter", account_id: int | None = None) -> Project:
        if account_id is None:
            account = self.reader.account_named("ada") or self.account()
            account_id = account.account_id
        created = self("create_project", account_id=account_id, name=name)
        assert isinstance(created, Project)
        return created

    def applet(
        self,
        project: Project,
        name: str = "log",
        module: Module = MODULE,
        strategies: tuple[tuple[str, str], ...] = (("DEFAULT", "start"),),
    ) -> Deployed:
        created = self(
            "create_applet",
            project_id=project.project_id,
            account_id=project.account_id,
            name=name,
            wasm_name="log.wasm",
            filename=module.filename,
            sha256=module.sha256,
            md5=module.md5,
            size=module.size,
            handlers=module.handlers,
            strategies=strategies,
        )
        assert isinstance(created, Deployed)
        return created


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    registry = Registry(tmp_path / "registry")
    yield registry
    registry.writer.close()


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


def test_the_first_administrator_is_created_once(registry: Registry) -> None:
    first = {"password_hash": "h", "role": ADMIN, "only_if_first": True}
    registry("create_account", username="one", **first)
    with pytest.raises(NoAdminPermissionError):
        registry("create_account", username="two", **first)


def test_a_username_is_taken_once(registry: Registry) -> None:
    registry.account()
    with pytest.raises(AccountIdentityConflictError, match="ada"):
        registry.account()


def test_a_password_changes_only_from_the_one_that_was_verified(registry: Registry) -> None:
    account_id = registry.account().account_id
    registry("update_password", account_id=account_id, old_hash="h", new_hash="i")
    with pytest.raises(InvalidOldPasswordError):
        registry("update_password", account_id=account_id, old_hash="h", new_hash="j")
    with pytest.raises(AccountNotFoundError):
        registry("update_password", account_id=5, old_hash="h", new_hash="j")
    found = registry.reader.account(account_id)
    assert found is not None
    assert found.password_hash == "i"


def test_a_project_name_is_unique_in_the_node(registry: Registry) -> None:
    registry.project("minter")
    other = registry.account("bob")
    with pytest.raises(ProjectNameConflictError, match="minter"):
        registry.project("minter", other.account_id)
    registry.project("Minter", other.account_id)


def test_a_project_needs_an_account(registry: Registry) -> None:
    with pytest.raises(AccountNotFoundError):
        registry.project("minter", 5)


def test_removing_a_project_removes_what_is_in_it_and_nothing_else(registry: Registry) -> None:
    project, other = registry.project("one"), registry.project("two")
    gone, stays = registry.applet(project), registry.applet(other)
    for each in (project, other):
        registry("create_publisher", project_id=each.project_id, name="n", key="k")
    registry("remove_project", project_id=project.project_id)
    reader = registry.reader
    assert reader.project_named("one") is None
    assert reader.applet(gone.applet.applet_id) is None
    assert reader.applet_of_instance(gone.applet.instance_id) is None
    assert reader.strategy(gone.strategies[0].strategy_id) is None
    assert reader.publisher(project.project_id, "k") is None
    assert reader.resource(gone.resource.resource_id) == gone.resource
    assert reader.applets(other.project_id) == [stays.applet]
    assert reader.strategies(other.project_id) == stays.strategies
    assert reader.publisher(other.project_id, "k") is not None
    with pytest.raises(ProjectNotFoundError):
        registry("remove_project", project_id=project.project_id)
    registry.project("one")


def test_the_same_module_is_one_resource_per_account(registry: Registry) -> None:
    project = registry.project("one")
    foreign = registry.project("two", registry.account("bob").account_id)
    first = registry.applet(project, "a").resource
    assert registry.applet(project, "b").resource == first
    assert registry.applet(foreign).resource.resource_id != first.resource_id
    assert len(registry.reader.resources()) == 2


def test_a_name_that_the_project_has_already_gets_the_first_free_suffix(
    registry: Registry,
) -> None:
    project = registry.project("one")
    registry.applet(project, "log_3")
    names = [registry.applet(project).applet.name for _ in range(4)]
    assert names == ["log", "log_2", "log_4", "log_5"]
    long = [registry.applet(project, "n" * NAME_LIMIT).applet.name for _ in range(2)]
    assert long == ["n" * NAME_LIMIT, "n" * (NAME_LIMIT - 2) + "_2"]
    assert registry.applet(registry.project("two")).applet.name == "log"


def test_a_refused_applet_leaves_no_trace(registry: Registry) -> None:
    project = registry.project()
    before = registry.reader.version()
    with pytest.raises(StrategyConflictError):
        registry.applet(project, strategies=(("A", "start"), ("A", "start")))
    assert registry.reader.version() == before
    assert not registry.reader.resources()
    assert not registry.reader.applets(project.project_id)


def test_a_refusal_keeps_its_class_and_its_reason_between_processes() -> None:
    error = StrategyConflictError(project="p", applet="a", event_type="T", handler="h")
    same = from_wire(*to_wire(error))
    assert same.body("1") == error.body("1")
    assert same.body("1")["code"] == 409_999_005
    assert same.body("1")["desc"] == "[prj: p] [app: a] [type: T] [hdl: h]"


def test_updating_an_applet_changes_what_is_given(registry: Registry) -> None:
    project = registry.project()
    made = registry.applet(project)
    applet_id = made.applet.applet_id
    registry("set_instance_state", instance_id=made.applet.instance_id, state=STOPPED)
    renamed = registry("update_applet", applet_id=applet_id, name="other")
    assert (renamed.applet.name, renamed.applet.state) == ("other", STOPPED)
    assert renamed.strategies == made.strategies
    module = OTHER_MODULE
    swapped = registry("update_applet", applet_id=applet_id, module=list(_fields(module)))
    assert swapped.applet.sha256 == swapped.resource.sha256 == module.sha256
    assert (swapped.applet.name, swapped.applet.state) == ("other", STARTED)
    assert swapped.applet.instance_id == made.applet.instance_id
    assert swapped.applet.updated_at > made.applet.updated_at
    assert registry.reader.applets(project.project_id) == [swapped.applet]


def _fields(module: Module) -> tuple[Any, ...]:
    return module.filename, module.sha256, module.md5, module.size, module.handlers


def test_a_strategy_whose_handler_vanishes_with_a_new_module_stays(registry: Registry) -> None:
    made = registry.applet(registry.project(), strategies=(("A", "mint"),))
    update = {"applet_id": made.applet.applet_id, "module": list(_fields(OTHER_MODULE))}
    updated = registry("update_applet", **update)
    assert updated.strategies == made.strategies
    assert not updated.resource.exports("mint")
    replaced = registry("update_applet", strategies=[["A", "start"]], **update)
    assert [s.handler for s in replaced.strategies] == ["start"]
    assert registry.reader.strategy(made.strategies[0].strategy_id) is None


def test_renaming_an_applet_to_a_taken_name_is_refused(registry: Registry) -> None:
    project = registry.project()
    registry.applet(project, "one")
    two = registry.applet(project, "two").applet
    with pytest.raises(AppletNameConflictError):
        registry("update_applet", applet_id=two.applet_id, name="one")
    with pytest.raises(AppletNotFoundError):
        registry("update_applet", applet_id=5, name="one")


def test_removing_an_applet_removes_its_instance_and_strategies(registry: Registry) -> None:
    project = registry.project()
    made, other = registry.applet(project, "one"), registry.applet(project, "two")
    registry("remove_applet", applet_id=made.applet.applet_id)
    assert registry.reader.strategies(project.project_id) == other.strategies
    with pytest.raises(InstanceNotFoundError):
        registry("set_instance_state", instance_id=made.applet.instance_id, state=STOPPED)
    with pytest.raises(AppletNotFoundError):
        registry("remove_applet", applet_id=made.applet.applet_id)


def test_an_instance_stops_and_starts_and_a_restart_is_always_noticed(registry: Registry) -> None:
    instance_id = registry.applet(registry.project()).applet.instance_id
    version = registry.reader.version()
    registry("set_instance_state", instance_id=instance_id, state=STARTED)
    assert registry.reader.version() == version
    stopped = registry("set_instance_state", instance_id=instance_id, state=STOPPED)
    assert stopped.state == STOPPED
    started = registry("restart_instance", instance_id=instance_id)
    assert started.state == STARTED
    again = registry("restart_instance", instance_id=instance_id)
    assert again.updated_at > started.updated_at
    assert registry.reader.version() == version + 3


def test_strategies_are_created_all_or_none(registry: Registry) -> None:
    project = registry.project()
    applet_id = registry.applet(project, strategies=()).applet.applet_id
    good, bad = [applet_id, "MINT", "mint"], [5, "BURN", "burn"]
    with pytest.raises(AppletNotFoundError):
        registry("create_strategies", project_id=project.project_id, strategies=[good, bad])
    assert registry.reader.strategies(project.project_id) == []
    made = registry("create_strategies", project_id=project.project_id, strategies=[good])
    assert registry.reader.strategies(project.project_id) == made
    with pytest.raises(StrategyConflictError, match=r"\[app: log\] \[type: MINT\] \[hdl: mint\]"):
        registry("create_strategies", project_id=project.project_id, strategies=[good])


def test_strategies_are_listed_in_the_order_of_their_creation(registry: Registry) -> None:
    project = registry.project()
    applet_id = registry.applet(project, strategies=()).applet.applet_id
    types = ["Z", "A", "M"]
    for event_type in types:
        registry.now_ms -= 1_000
        rule = [applet_id, event_type, "start"]
        registry("create_strategies", project_id=project.project_id, strategies=[rule])
    assert [s.event_type for s in registry.reader.strategies(project.project_id)] == types


def test_a_strategy_belongs_to_an_applet_of_its_project(registry: Registry) -> None:
    project, other = registry.project("one"), registry.project("two")
    mine, foreign = registry.applet(project), registry.applet(other)
    rule = [foreign.applet.applet_id, "A", "start"]
    with pytest.raises(AppletNotFoundError):
        registry("create_strategies", project_id=project.project_id, strategies=[rule])
    with pytest.raises(AppletNotFoundError):
        registry(
            "update_strategy",
            strategy_id=mine.strategies[0].strategy_id,
            applet_id=foreign.applet.applet_id,
            event_type="A",
            handler="start",
        )


def test_a_strategy_is_changed_within_the_same_rules(registry: Registry) -> None:
    project = registry.project()
    made = registry.applet(project, strategies=(("A", "start"), ("B", "start")))
    first = made.strategies[0]
    change = {"strategy_id": first.strategy_id, "applet_id": first.applet_id}
    changed = registry("update_strategy", event_type="C", handler="mint", **change)
    assert (changed.event_type, changed.handler) == ("C", "mint")
    assert registry.reader.strategy(first.strategy_id) == changed
    version = registry.reader.version()
    assert registry("update_strategy", event_type="C", handler="mint", **change) == changed
    assert registry.reader.version() == version
    with pytest.raises(StrategyConflictError):
        registry("update_strategy", event_type="B", handler="start", **change)
    dead = registry("update_strategy", event_type="B", handler="none", **change)
    assert registry.reader.strategy(first.strategy_id) == dead
    with pytest.raises(StrategyNotFoundError):
        registry(
            "update_strategy",
            strategy_id=5,
            applet_id=first.applet_id,
            event_type="A",
            handler="start",
        )


def test_strategies_of_other_projects_are_not_removed(registry: Registry) -> None:
    project, other = registry.project("one"), registry.project("two")
    mine = registry.applet(project).strategies[0].strategy_id
    foreign = registry.applet(other).strategies[0].strategy_id
    remove = {"project_id": project.project_id, "strategy_ids": [mine, mine, foreign, 5]}
    assert registry("remove_strategies", **remove) == 1
    assert registry.reader.strategies(project.project_id) == []
    assert registry.reader.strategy(foreign) is not None
    version = registry.reader.version()
    assert registry("remove_strategies", **remove) == 0
    assert registry.reader.version() == version


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


def test_a_publishers_token_is_its_own(registry: Registry) -> None:
    make = {"project_id": registry.project().project_id, "name": "n"}
    one, two = (registry("create_publisher", key=key, **make) for key in "ab")
    assert read_any_token(KEY, one.token) == TokenOwner(one.publisher_id, is_account=False)
    assert read_any_token(KEY, two.token) == TokenOwner(two.publisher_id, is_account=False)


def test_a_publisher_key_is_taken_once_in_a_project_however_long(registry: Registry) -> None:
    project, other = registry.project("one"), registry.project("two")
    for key in ("k", "é" * 3_000):
        make = {"name": "n", "key": key}
        registry("create_publisher", project_id=project.project_id, **make)
        with pytest.raises(PublisherConflictError):
            registry("create_publisher", project_id=project.project_id, **make)
        registry("create_publisher", project_id=other.project_id, **make)
        assert registry.reader.publisher(project.project_id, key) is not None
    with pytest.raises(ProjectNotFoundError):
        registry("create_publisher", project_id=5, name="n", key="k")


def test_a_renamed_publisher_keeps_its_token(registry: Registry) -> None:
    make = {"project_id": registry.project().project_id, "name": "n"}
    one = registry("create_publisher", key="one", **make)
    registry("create_publisher", key="two", **make)
    renamed = registry("update_publisher", publisher_id=one.publisher_id, name="m", key="three")
    assert (renamed.name, renamed.key, renamed.token) == ("m", "three", one.token)
    assert registry.reader.publisher(one.project_id, "one") is None
    with pytest.raises(PublisherConflictError):
        registry("update_publisher", publisher_id=one.publisher_id, name="m", key="two")
    with pytest.raises(PublisherNotFoundError):
        registry("update_publisher", publisher_id=5, name="m", key="z")


def test_removed_publishers_are_gone_from_every_index(registry: Registry) -> None:
    project_id = registry.project().project_id
    one = registry("create_publisher", project_id=project_id, name="n", key="one")
    gone = registry("remove_publishers", project_id=project_id, publisher_ids=[one.publisher_id])
    assert gone == 1
    assert registry.reader.publisher(project_id, "one") is None
    assert registry.reader.publishers(project_id) == []
    registry("create_publisher", project_id=project_id, name="n", key="one")


def test_a_deleted_resource_goes_with_the_last_applet_that_runs_it(registry: Registry) -> None:
    project = registry.project()
    one, two = registry.applet(project, "one"), registry.applet(project, "two")
    resource_id = one.resource.resource_id
    registry("remove_resource", resource_id=resource_id)
    (kept,) = registry.reader.resources()
    assert (kept.resource_id, kept.deleted) == (resource_id, True)
    with pytest.raises(ResourceNotFoundError):
        registry("remove_resource", resource_id=resource_id)
    registry("remove_applet", applet_id=one.applet.applet_id)
    assert registry.reader.resources() == [kept]
    assert not registry.writer.resources_removed
    registry("remove_applet", applet_id=two.applet.applet_id)
    assert registry.reader.resources() == []
    assert registry.writer.resources_removed


def test_a_resource_that_nothing_uses_goes_at_once(registry: Registry) -> None:
    made = registry.applet(registry.project())
    registry("remove_applet", applet_id=made.applet.applet_id)
    assert not registry.writer.resources_removed
    registry("remove_resource", resource_id=made.resource.resource_id)
    assert registry.reader.resources() == []
    assert registry.writer.resources_removed


def test_a_deleted_resource_that_is_uploaded_again_is_its_accounts_again(
    registry: Registry,
) -> None:
    project = registry.project()
    made = registry.applet(project, "one")
    registry("remove_resource", resource_id=made.resource.resource_id)
    registry.now_ms += 5_000
    again = registry.applet(project, "two")
    assert again.resource.resource_id == made.resource.resource_id
    assert (again.resource.deleted, again.resource.created_at) == (False, registry.now_ms)
    registry("remove_project", project_id=project.project_id)
    assert registry.reader.resources() == [again.resource]


@pytest.mark.parametrize("end", ["a newer module", "an earlier version", "the project"])
def test_a_deleted_resource_goes_with_the_version_that_needed_it(
    registry: Registry, end: str
) -> None:
    project = registry.project()
    made = registry.applet(project)
    applet_id = made.applet.applet_id
    newer = {"applet_id": applet_id, "module": list(_fields(OTHER_MODULE)), "versions_kept": 5}
    swapped = registry("update_applet", **newer)
    registry("remove_resource", resource_id=made.resource.resource_id)
    registry("remove_resource", resource_id=swapped.resource.resource_id)
    assert [resource.deleted for resource in registry.reader.resources()] == [True, True]
    if end == "the project":
        registry("remove_project", project_id=project.project_id)
        assert registry.reader.resources() == []
        return
    if end == "an earlier version":
        back = registry("roll_back_applet", applet_id=applet_id, number=1)
        assert back.resource.deleted
    third = Module("three.wasm", "56" * 32, "78" * 16, 300, ["start"])
    registry("update_applet", applet_id=applet_id, module=list(_fields(third)), versions_kept=1)
    assert [resource.sha256 for resource in registry.reader.resources()] == [third.sha256]


def test_ids_survive_a_clock_that_goes_back_over_a_restart(registry: Registry) -> None:
    before = registry.account("one").account_id
    registry.now_ms -= 365 * 86_400_000
    registry.reopen()
    assert registry.account("two").account_id > before


def test_the_change_counter_survives_a_restart(registry: Registry) -> None:
    registry.project()
    version = registry.reader.version()
    registry.reopen()
    assert registry.reader.version() == version == 2


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


def test_a_store_of_something_else_is_no_registry(tmp_path: Path) -> None:
    with (
        open_environment(tmp_path / "store", map_size=MAP) as other,
        other.begin(write=True) as txn,
    ):
        txn.put(b"theirs", b"value")
    with pytest.raises(StoreError, match="not a registry"):
        RegistryWriter(tmp_path / "store", MAP, lambda: 0, KEY)
    with pytest.raises(StoreError, match="not a registry"):
        RegistryReader(tmp_path / "store")


def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "registry"
    RegistryWriter(path, MAP, lambda: 0, KEY).close()
    with lmdb.open(str(path), max_dbs=32) as environment:
        meta = environment.open_db(b"meta")
        with environment.begin(write=True) as txn:
            txn.put(SCHEMA_CELL, to_key(SCHEMA + 1), db=meta)
    with pytest.raises(StoreError, match=f"schema {SCHEMA + 1}.*up to {SCHEMA}"):
        RegistryWriter(path, MAP, lambda: 0, KEY)
    with pytest.raises(StoreError, match="newer version"):
        RegistryReader(path)


def test_a_full_registry_refuses_the_command_and_answers_on(tmp_path: Path) -> None:
    writer = RegistryWriter(tmp_path / "registry", 1 << 20, lambda: 1, KEY)
    reader = writer.reader()
    account = writer.create_account("ada", "h", ADMIN)
    with pytest.raises(StoreError, match="size limit"):
        for number in range(1_000):
            project = writer.create_project(
                account.account_id, f"p{number}", description="d" * 4_000
            )
    version = reader.version()
    assert version == len(reader.projects()) + 1
    writer.remove_project(project.project_id)
    assert reader.version() == version + 1
    writer.close()


def test_only_listed_commands_with_fitting_arguments_run(registry: Registry) -> None:
    for op in ("close", "reader", "_change", "__init__", "nonsense"):
        assert op not in COMMANDS
        with pytest.raises(StoreError, match="knows no command"):
            execute(registry.writer, op, {})
    for args in ({}, {"project_id": "5"}, {"project_id": 5, "more": 1}):
        with pytest.raises(StoreError, match="remove_project"):
            execute(registry.writer, "remove_project", args)
    with pytest.raises(NodeError):
        decode_result("nonsense", b"")
