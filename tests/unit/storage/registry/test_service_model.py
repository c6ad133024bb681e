"""The registry compared with a model of dictionaries, over any sequence of commands."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
)

from fieldbrook.core.errors import NodeError
from fieldbrook.core.model import ADMIN, NAME_LIMIT, REMOVED, STARTED, STOPPED, Applet, Record
from fieldbrook.storage.lmdb.table import OpenTable
from fieldbrook.storage.registry.service import (
    Deployed,
    Module,
    RegistryWriter,
    decode_result,
    encode_result,
    execute,
)

MODULES = (
    Module("one.wasm", "11" * 32, "11" * 16, 10, ["start", "mint"]),
    Module("two.wasm", "22" * 32, "22" * 16, 20, ["start"]),
)
names = st.sampled_from(["a", "b", "c", "", "é" * 300])
types = st.sampled_from(["DEFAULT", "MINT"])
handlers = st.sampled_from(["start", "mint", "absent"])
pairs = st.tuples(types, handlers)
rules = st.lists(pairs, max_size=2)
unknown = st.just(7)


class RegistryMachine(RuleBasedStateMachine):
    """The model's rows by id; the registry must have the same rows, in every index."""

    projects = Bundle("projects")
    applets = Bundle("applets")

    @initialize()
    def open(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.now_ms = 1_800_000_000_000
        self.rows: dict[str, dict[int, Any]] = {
            kind: {}
            for kind in (
                "accounts",
                "projects",
                "applets",
                "applet_versions",
                "configs",
                "strategies",
                "publishers",
                "resources",
            )
        }
        self.given: set[int] = set()
        self.last_id = 0
        self.version = 0
        self._open()
        for username in ("ada", "bob"):
            account = self.call("create_account", username=username, password_hash="h", role=ADMIN)
            self.rows["accounts"][account.account_id] = account
            self.remember(account.account_id)

    def _open(self) -> None:
        path = Path(self.folder.name) / "registry"
        self.writer = RegistryWriter(path, 64 << 20, lambda: self.now_ms, b"k" * 32)
        self.reader = self.writer.reader()

    def teardown(self) -> None:
        if hasattr(self, "writer"):
            self.writer.close()
            self.folder.cleanup()

    def call(self, op: str, **args: Any) -> Any:
        """Run a command; the counter increases by one, or not at all if it is refused."""
        try:
            result = decode_result(op, encode_result(execute(self.writer, op, args)))
        except NodeError:
            assert self.reader.version() == self.version
            raise
        self.version += 1
        return result

    def remember(self, *identifiers: int) -> None:
        for identifier in sorted(identifiers):
            assert identifier > self.last_id
            assert identifier not in self.given
            self.given.add(identifier)
            self.last_id = identifier

    def refused(self, op: str, **args: Any) -> None:
        with pytest.raises(NodeError):
            self.call(op, **args)

    def having(self, kind: str, **fields: Any) -> list[Any]:
        return [
            row
            for row in self.rows[kind].values()
            if all(getattr(row, name) == value for name, value in fields.items())
        ]

    # ------------------------------------------------------------ commands

    @rule(ms=st.integers(-5_000, 5_000))
    def move_clock(self, ms: int) -> None:
        self.now_ms += ms

    @rule()
    def reopen(self) -> None:
        self.writer.close()
        self._open()

    @rule(target=projects, name=names, owner=st.integers(0, 1))
    def create_project(self, name: str, owner: int) -> Any:
        account_id = sorted(self.rows["accounts"])[owner]
        if self.having("projects", name=name):
            self.refused("create_project", account_id=account_id, name=name)
            return multiple()
        project = self.call("create_project", account_id=account_id, name=name)
        self.rows["projects"][project.project_id] = project
        configs = self.reader.configs(project.project_id)
        assert [config.kind for config in configs] == ["PROJECT_DATABASE", "PROJECT_ENV"]
        self.rows["configs"] |= {config.config_id: config for config in configs}
        self.remember(project.project_id, *(config.config_id for config in configs))
        return project.project_id

    @rule(
        project_id=projects | unknown,
        kind=st.sampled_from(["PROJECT_ENV", "PROJECT_FLOW"]),
        value=st.sampled_from([b'{"env":[]}', b'{"env":[["a","b"]]}']),
    )
    def put_config(self, project_id: int, kind: str, value: bytes) -> None:
        args = {"project_id": project_id, "kind": kind, "value": value}
        if project_id not in self.rows["projects"]:
            self.refused("put_config", **args)
            return
        own = self.having("configs", project_id=project_id)
        known = [config for config in own if config.kind == kind]
        config = self.call("put_config", **args)
        self.version -= known == [config]
        if not known:
            self.remember(config.config_id)
        assert config.value == value
        self.rows["configs"][config.config_id] = config

    @rule(project_id=projects | unknown)
    def remove_project(self, project_id: int) -> None:
        if project_id not in self.rows["projects"]:
            self.refused("remove_project", project_id=project_id)
            return
        self.call("remove_project", project_id=project_id)
        del self.rows["projects"][project_id]
        for kind in ("applets", "strategies", "publishers", "configs"):
            kept = {n: r for n, r in self.rows[kind].items() if r.project_id != project_id}
            self.rows[kind] = kept
        self.forget_versions()

    @rule(
        target=applets,
        project_id=projects | unknown,
        name=names,
        module=st.sampled_from(MODULES),
        strategies=rules,
    )
    def create_applet(
        self, project_id: int, name: str, module: Module, strategies: list[tuple[str, str]]
    ) -> Any:
        project = self.rows["projects"].get(project_id)
        fits = project is not None and len(set(strategies)) == len(strategies)
        owner = project.account_id if project else min(self.rows["accounts"])
        args = {
            "project_id": project_id,
            "account_id": owner,
            "name": name,
            "wasm_name": "",
            "filename": module.filename,
            "sha256": module.sha256,
            "md5": module.md5,
            "size": module.size,
            "handlers": module.handlers,
            "strategies": strategies,
        }
        if not fits:
            self.refused("create_applet", **args)
            return multiple()
        made: Deployed = self.call("create_applet", **args)
        assert made.applet.name == self.free_name(project_id, name)
        shared = self.having("resources", account_id=owner, sha256=module.sha256)
        if shared and shared[0].deleted:
            assert made.resource.resource_id == shared[0].resource_id
            assert not made.resource.deleted
            self.rows["resources"][made.resource.resource_id] = made.resource
        elif shared:
            assert made.resource == shared[0]
        else:
            self.rows["resources"][made.resource.resource_id] = made.resource
            self.remember(made.resource.resource_id)
        versions = self.reader.applet_versions(made.applet.applet_id)
        assert [version.number for version in versions] == [made.applet.version] == [1]
        self.rows["applet_versions"] |= {version.version_id: version for version in versions}
        self.remember(
            made.applet.applet_id,
            made.applet.instance_id,
            *(version.version_id for version in versions),
            *(strategy.strategy_id for strategy in made.strategies),
        )
        self.rows["applets"][made.applet.applet_id] = made.applet
        self.rows["strategies"] |= {s.strategy_id: s for s in made.strategies}
        return made.applet.applet_id

    @rule(
        applet_id=applets | unknown,
        module=st.sampled_from(MODULES),
        name=names,
        kept=st.integers(1, 3),
    )
    def update_applet(self, applet_id: int, module: Module, name: str, kept: int) -> None:
        applet = self.rows["applets"].get(applet_id)
        args = {
            "applet_id": applet_id,
            "name": name,
            "module": msgspec.to_builtins(module),
            "versions_kept": kept,
        }
        if applet is None or any(
            other.applet_id != applet_id
            for other in self.having("applets", project_id=applet.project_id, name=name)
        ):
            self.refused("update_applet", **args)
            return
        before = dict(self.rows["resources"])
        made: Deployed = self.call("update_applet", **args)
        known = before.get(made.resource.resource_id)
        self.version -= made.applet == applet and known == made.resource
        assert (made.applet.name, made.applet.sha256) == (name, module.sha256)
        assert made.applet.state == STARTED
        if made.resource.resource_id not in self.rows["resources"]:
            self.remember(made.resource.resource_id)
        self.rows["resources"][made.resource.resource_id] = made.resource
        if made.applet.instance_id != applet.instance_id:
            self.remember(made.applet.instance_id)
        self.rows["applets"][applet_id] = made.applet
        self.expect_version(applet, made.applet, kept)
        self.forget_resources()

    def expect_version(self, before: Applet, after: Applet, kept: int) -> None:
        """A different module becomes the latest version; the oldest versions beyond `kept` are
        removed."""
        if before.sha256 == after.sha256:
            assert after.version == before.version
            return
        known = sorted(
            self.having("applet_versions", applet_id=after.applet_id), key=lambda v: v.number
        )
        latest = self.reader.applet_versions(after.applet_id)[-1]
        assert latest.number == after.version == known[-1].number + 1
        self.remember(latest.version_id)
        for version in known[: max(0, len(known) + 1 - kept)]:
            del self.rows["applet_versions"][version.version_id]
        self.rows["applet_versions"][latest.version_id] = latest

    @rule(applet_id=applets | unknown)
    def remove_applet(self, applet_id: int) -> None:
        if applet_id not in self.rows["applets"]:
            self.refused("remove_applet", applet_id=applet_id)
            return
        self.call("remove_applet", applet_id=applet_id)
        del self.rows["applets"][applet_id]
        kept = {n: s for n, s in self.rows["strategies"].items() if s.applet_id != applet_id}
        self.rows["strategies"] = kept
        self.forget_versions()

    def forget_versions(self) -> None:
        rows = self.rows["applet_versions"]
        kept = {n: v for n, v in rows.items() if v.applet_id in self.rows["applets"]}
        self.rows["applet_versions"] = kept
        self.forget_resources()

    def free_name(self, project_id: int, name: str) -> str:
        """Return the name, with the first unused suffix if an applet of the project has it."""
        suffixes = [f"_{number}" for number in range(2, 100)]
        candidates = [name, *(name[: NAME_LIMIT - len(s)] + s for s in suffixes)]
        taken = {applet.name for applet in self.having("applets", project_id=project_id)}
        return next(found for found in candidates if found not in taken)

    @rule(applet_id=applets, number=st.integers(0, 4))
    def roll_back(self, applet_id: int, number: int) -> None:
        applet = self.rows["applets"].get(applet_id)
        found = self.having("applet_versions", applet_id=applet_id, number=number)
        args = {"applet_id": applet_id, "number": number}
        if applet is None or not found:
            self.refused("roll_back_applet", **args)
            return
        made = self.call("roll_back_applet", **args)
        self.version -= made.applet == applet
        if made.applet.instance_id != applet.instance_id:
            self.remember(made.applet.instance_id)
        assert (made.applet.sha256, made.applet.version) == (found[0].sha256, number)
        self.rows["applets"][applet_id] = made.applet

    @rule(applet_id=applets)
    def remove_instance(self, applet_id: int) -> None:
        applet = self.rows["applets"].get(applet_id)
        if applet is None:
            return
        gone = self.call(
            "remove_instances",
            project_id=applet.project_id,
            instance_ids=[applet.instance_id, applet_id],
        )
        self.version -= not gone
        assert gone == (applet.state != REMOVED)
        removed = self.reader.applet(applet_id)
        assert removed is not None
        assert removed.state == REMOVED
        assert self.reader.applet_of_instance(applet.instance_id) is None
        self.rows["applets"][applet_id] = removed

    @rule(applet_id=applets | unknown)
    def create_instance(self, applet_id: int) -> None:
        applet = self.rows["applets"].get(applet_id)
        if applet is None:
            self.refused("create_instance", applet_id=applet_id)
            return
        made = self.call("create_instance", applet_id=applet_id)
        self.version -= made == applet
        assert made.state == STARTED
        if applet.state == REMOVED:
            self.remember(made.instance_id)
        else:
            assert made.instance_id == applet.instance_id
        self.rows["applets"][applet_id] = made

    @rule(applet_id=applets, state=st.sampled_from([STARTED, STOPPED]))
    def set_state(self, applet_id: int, state: str) -> None:
        applet = self.rows["applets"].get(applet_id)
        if applet is None or applet.state == REMOVED:
            return
        changed = self.call("set_instance_state", instance_id=applet.instance_id, state=state)
        self.version -= changed == applet
        assert changed.state == state
        self.rows["applets"][applet_id] = changed

    @rule(applet_id=applets | unknown, strategies=st.lists(pairs, min_size=1, max_size=2))
    def create_strategies(self, applet_id: int, strategies: list[tuple[str, str]]) -> None:
        applet = self.rows["applets"].get(applet_id)
        project_id = applet.project_id if applet else 7
        drafts = [(applet_id, event_type, handler) for event_type, handler in strategies]
        args = {"project_id": project_id, "strategies": drafts}
        taken = {(s.event_type, s.handler) for s in self.having("strategies", applet_id=applet_id)}
        if applet is None or taken & set(strategies) or len(set(strategies)) < len(strategies):
            self.refused("create_strategies", **args)
            return
        made = self.call("create_strategies", **args)
        self.remember(*(strategy.strategy_id for strategy in made))
        self.rows["strategies"] |= {s.strategy_id: s for s in made}

    @rule(pick=st.integers(0, 20), event_type=types, handler=handlers)
    def update_strategy(self, pick: int, event_type: str, handler: str) -> None:
        if not self.rows["strategies"]:
            return
        all_ = sorted(self.rows["strategies"])
        strategy = self.rows["strategies"][all_[pick % len(all_)]]
        args = {
            "strategy_id": strategy.strategy_id,
            "applet_id": strategy.applet_id,
            "event_type": event_type,
            "handler": handler,
        }
        same = self.having(
            "strategies", applet_id=strategy.applet_id, event_type=event_type, handler=handler
        )
        if any(other != strategy for other in same):
            self.refused("update_strategy", **args)
            return
        changed = self.call("update_strategy", **args)
        self.version -= changed == strategy
        self.rows["strategies"][strategy.strategy_id] = changed

    @rule(picks=st.lists(st.integers(0, 20), max_size=3), project_id=projects | unknown)
    def remove_strategies(self, picks: list[int], project_id: int) -> None:
        all_ = sorted(self.rows["strategies"]) or [7]
        chosen = {all_[pick % len(all_)] for pick in picks}
        own = {s.strategy_id for s in self.having("strategies", project_id=project_id)}
        gone = self.call("remove_strategies", project_id=project_id, strategy_ids=sorted(chosen))
        self.version -= not gone
        assert gone == len(chosen & own)
        for strategy_id in chosen & own:
            del self.rows["strategies"][strategy_id]

    @rule(project_id=projects | unknown, key=names)
    def create_publisher(self, project_id: int, key: str) -> None:
        args = {"project_id": project_id, "name": "n", "key": key}
        known = project_id in self.rows["projects"]
        if not known or self.having("publishers", project_id=project_id, key=key):
            self.refused("create_publisher", **args)
            return
        publisher = self.call("create_publisher", **args)
        self.remember(publisher.publisher_id)
        self.rows["publishers"][publisher.publisher_id] = publisher

    @rule(pick=st.integers(0, 20), key=names)
    def update_publisher(self, pick: int, key: str) -> None:
        if not self.rows["publishers"]:
            return
        all_ = sorted(self.rows["publishers"])
        publisher = self.rows["publishers"][all_[pick % len(all_)]]
        args = {"publisher_id": publisher.publisher_id, "name": "n", "key": key}
        same = self.having("publishers", project_id=publisher.project_id, key=key)
        if any(other != publisher for other in same):
            self.refused("update_publisher", **args)
            return
        changed = self.call("update_publisher", **args)
        self.version -= changed == publisher
        self.rows["publishers"][publisher.publisher_id] = changed

    @rule(pick=st.integers(0, 20))
    def remove_resource(self, pick: int) -> None:
        all_ = sorted(self.rows["resources"]) or [7]
        resource_id = all_[pick % len(all_)]
        resource = self.rows["resources"].get(resource_id)
        if resource is None or resource.deleted:
            self.refused("remove_resource", resource_id=resource_id)
            return
        self.call("remove_resource", resource_id=resource_id)
        if self.is_used(resource_id):
            later = max(self.now_ms, resource.updated_at + 1)
            resource = msgspec.structs.replace(resource, deleted=True, updated_at=later)
            self.rows["resources"][resource_id] = resource
        else:
            del self.rows["resources"][resource_id]

    def is_used(self, resource_id: int) -> bool:
        return bool(
            self.having("applets", resource_id=resource_id)
            or self.having("applet_versions", resource_id=resource_id)
        )

    def forget_resources(self) -> None:
        """Remove deleted resources with the last applet or version that needs them."""
        rows = self.rows["resources"]
        kept = {n: r for n, r in rows.items() if not r.deleted or self.is_used(n)}
        self.rows["resources"] = kept

    # ------------------------------------------------------------ what must hold

    @invariant()
    def rows_and_indexes_are_the_models(self) -> None:
        if not hasattr(self, "writer"):
            return
        with self.reader.snapshot() as snapshot:
            tables, txn = snapshot._tables, snapshot._txn
            for kind, rows in self.rows.items():
                table: OpenTable[Record] = getattr(tables, kind)
                assert {table.table.id_of(row): row for row in table.all(txn)} == rows
                for index, key_of in table.table.indexes.items():
                    expected = {key_of(row): table.table.id_of(row) for row in rows.values()}
                    assert len(expected) == len(rows)
                    assert table.index_entries(txn, index) == expected

    @invariant()
    def the_counter_counts_changes(self) -> None:
        if hasattr(self, "writer"):
            assert self.reader.version() == self.version

    @invariant()
    def questions_are_answered_as_by_the_model(self) -> None:
        if not hasattr(self, "writer"):
            return
        for project_id, project in self.rows["projects"].items():
            assert self.reader.project_named(project.name) == project
            for kind in ("applets", "strategies", "publishers"):
                rows = sorted(self.having(kind, project_id=project_id), key=_first_id)
                assert getattr(self.reader, kind)(project_id) == rows
            for publisher in self.having("publishers", project_id=project_id):
                assert self.reader.publisher(project_id, publisher.key) == publisher
        for account_id in self.rows["accounts"]:
            own = sorted(self.having("projects", account_id=account_id), key=_first_id)
            assert self.reader.projects(account_id) == own


def _first_id(row: Any) -> int:
    name = type(row).__name__.lower() + "_id"
    found = getattr(row, name)
    assert isinstance(found, int)
    return found


RegistryMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=40)
TestRegistryAgainstItsModel = RegistryMachine.TestCase
