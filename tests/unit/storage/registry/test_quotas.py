"""Quotas in the registry's commands: limits for one account."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fieldbrook.core import quotas
from fieldbrook.core.errors import QuotaExceededError, from_wire, to_wire
from fieldbrook.core.model import ADMIN, CONTRACT_LOG, DEVELOPER, PROJECT_DATABASE, Account
from fieldbrook.core.quotas import Quotas
from fieldbrook.storage.backup.transfer import collect
from fieldbrook.storage.lmdb.codec import encode_record
from fieldbrook.storage.registry.service import Module, OperatorDraft, RegistryWriter

MODULE = Module("log.wasm", "ab" * 32, "cd" * 16, 100, ["start", "mint"])
OTHER = Module("two.wasm", "12" * 32, "34" * 16, 200, ["start"])
TABLES = b'{"dialect":"POSTGRES","schemas":[{"schema":"public","tables":[{"name":"t","cols":[]}]}]}'
NO_TABLES = b'{"dialect":"POSTGRES","schemas":[{"schema":"public","tables":[]}]}'


class Node:
    """A registry with small quotas, and the disk space of projects."""

    def __init__(self, folder: Path, **limits: int | None) -> None:
        self.stored: dict[int, int] = {}
        self.writer = RegistryWriter(
            folder / "registry",
            16 << 20,
            lambda: 1_700_000_000_000,
            b"k" * 32,
            quotas=Quotas(limits),
            stored=lambda project_id: self.stored.get(project_id, 0),
        )
        self.reader = self.writer.reader()
        self.ada = self.writer.create_account("ada", "h", DEVELOPER)
        self.root = self.writer.create_account("root", "h", ADMIN)

    def used(self, name: str) -> int:
        return self.reader.usage(self.ada.account_id, name, lambda n: self.stored.get(n, 0))

    def project(self, name: str = "room", owner: Account | None = None) -> int:
        owner_id = (owner or self.ada).account_id
        return self.writer.create_project(owner_id, name).project_id

    def applet(self, project_id: int, name: str = "a", module: Module = MODULE, **more: Any) -> int:
        project = self.reader.project(project_id)
        assert project is not None
        given = {"strategies": [], **msgspec.to_builtins(msgspec.structs.asdict(module)), **more}
        made = self.writer.create_applet(project_id, project.account_id, name, "w", **given)
        return made.applet.applet_id


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    made: list[Node] = []

    def node(**limits: int | None) -> Node:
        made.append(Node(tmp_path / str(len(made)), **limits))
        return made[-1]

    yield node
    for each in made:
        each.writer.close()


def fill(node: Node, name: str, n: int) -> None:
    """Make the `n`th object of a kind in one project, or the `n`th project."""
    writer, ada = node.writer, node.ada.account_id
    room = node.reader.project_named("room")
    project_id = room.project_id if room else node.project()
    match name:
        case quotas.PROJECTS:
            node.project(f"p{n}")
        case quotas.APPLETS:
            node.applet(project_id, f"a{n}")
        case quotas.MODULES:
            node.applet(project_id, f"a{n}", Module("m", f"{n:064x}", "cd" * 16, 1, []))
        case quotas.STRATEGIES:
            applets = node.reader.applets(project_id)
            applet_id = applets[0].applet_id if applets else node.applet(project_id)
            writer.create_strategy(project_id, applet_id, f"T{n}", "start")
        case quotas.PUBLISHERS:
            writer.create_publisher(project_id, f"d{n}", f"d{n}")
        case quotas.DATABASES:
            writer.put_config(node.project(f"p{n}"), PROJECT_DATABASE, TABLES)
        case quotas.DEDICATED:
            writer.set_dedicated(node.project(f"p{n}"), True)
        case quotas.MONITORS:
            writer.create_monitor(project_id, CONTRACT_LOG, 1, "E", address=f"0x{n:040x}")
        case quotas.CRON_JOBS:
            writer.create_cron_job(project_id, f"{n} 0 * * *", "E", limit=1_000)
        case quotas.ABIS:
            writer.create_contract_abi(project_id, f"abi{n}", b"[]", limit=1_000)
        case quotas.OPERATORS:
            writer.create_operator(ada, OperatorDraft(f"o{n}", 1, f"0x{n:040x}", b"sealed"))
        case quotas.ACCESS_KEYS:
            writer.create_access_key(ada, f"k{n}", {})


COUNTED = [name for name in quotas.NAMES if name not in (quotas.BYTES, quotas.PROCESSES)]


@pytest.mark.parametrize("name", COUNTED)
def test_an_account_has_as_many_as_it_may_and_no_more(make: Callable[..., Node], name: str) -> None:
    node = make()
    node.project()
    before = node.used(name)
    node.writer.set_account_quotas(node.ada.account_id, {name: before + 2})
    for n in range(2):
        fill(node, name, n)
    version = node.reader.version()
    with pytest.raises(QuotaExceededError) as refused:
        fill(node, name, 2)
    assert node.used(name) == before + 2
    made_project = name in (quotas.DATABASES, quotas.DEDICATED)
    assert made_project or node.reader.version() == version, "nothing has changed"
    said = str(from_wire(*to_wire(refused.value)))
    assert f"account ada has {before + 2} {quotas.NOUNS[name]} and asks for 1 more" in said
    assert f"its limit is {before + 2} (quota {name})" in said
    assert (refused.value.status, refused.value.key) == (403, "QuotaExceeded")
    node.writer.set_account_quotas(node.ada.account_id, {name: None})
    fill(node, name, 3)


def test_limits_of_the_settings_bind_developers_and_leave_administrators_alone(
    make: Callable[..., Node],
) -> None:
    node = make(projects=1)
    node.project("first")
    with pytest.raises(QuotaExceededError):
        node.project("second")
    for n in range(3):
        node.project(f"root{n}", node.root)
    node.writer.set_account_quotas(node.root.account_id, {quotas.PROJECTS: 3})
    with pytest.raises(QuotaExceededError):
        node.project("root3", node.root)
    node.writer.set_account_quotas(node.root.account_id, {}, [quotas.PROJECTS])
    node.project("root3", node.root)


def test_an_account_above_its_quota_keeps_what_it_has_and_gets_nothing_more(
    make: Callable[..., Node],
) -> None:
    node = make()
    projects = [node.project(f"p{n}") for n in range(3)]
    node.writer.set_account_quotas(node.ada.account_id, {quotas.PROJECTS: 1})
    assert node.used(quotas.PROJECTS) == 3
    node.writer.put_config(projects[0], "PROJECT_ENV", b'{"env":[["A","1"]]}')
    for project_id in projects[:2]:
        with pytest.raises(QuotaExceededError):
            node.project("more")
        node.writer.remove_project(project_id)
    with pytest.raises(QuotaExceededError):
        node.project("more")
    node.writer.remove_project(projects[2])
    node.project("more")


def test_publishers_that_a_data_push_makes_count_all_or_none(make: Callable[..., Node]) -> None:
    node = make(publishers=3)
    project_id = node.project()
    node.writer.create_anonymous_publisher(project_id)
    assert len(node.writer.register_publishers(project_id, ["a", "a", "b"])) == 3
    with pytest.raises(QuotaExceededError, match="has 3 .* asks for 2 more"):
        node.writer.register_publishers(project_id, ["b", "c", "d"])
    assert node.used(quotas.PUBLISHERS) == 3
    assert len(node.writer.register_publishers(project_id, ["b", "a"])) == 2
    assert node.writer.upsert_publisher(project_id, "a", "a").key == "a"
    node.writer.create_anonymous_publisher(project_id)
    with pytest.raises(QuotaExceededError):
        node.writer.upsert_publisher(project_id, "c", "c")


def test_strategies_count_with_the_applet_they_come_with_and_when_they_are_replaced(
    make: Callable[..., Node],
) -> None:
    node = make(strategies=3)
    project_id = node.project()
    rules = [("A", "start"), ("B", "start")]
    applet_id = node.applet(project_id, strategies=rules)
    with pytest.raises(QuotaExceededError, match="has 2 .* asks for 2 more"):
        node.applet(project_id, "other", strategies=rules)
    assert [applet.name for applet in node.reader.applets(project_id)] == ["a"]
    node.writer.update_applet(applet_id, strategies=[*rules, ("C", "start")])
    with pytest.raises(QuotaExceededError):
        node.writer.update_applet(applet_id, strategies=[(f"T{n}", "start") for n in range(4)])
    with pytest.raises(QuotaExceededError):
        node.writer.create_strategies(project_id, [(applet_id, "D", "start")])
    assert node.used(quotas.STRATEGIES) == 3
    node.writer.set_account_quotas(node.ada.account_id, {quotas.STRATEGIES: 1})
    node.writer.update_applet(applet_id, strategies=rules)
    assert node.used(quotas.STRATEGIES) == 2, "above the quota, and fewer than before"


def test_bytes_are_those_of_modules_and_of_stores(make: Callable[..., Node]) -> None:
    node = make(bytes=1_000)
    project_id = node.project()
    applet_id = node.applet(project_id)
    node.applet(project_id, "same content")
    assert node.used(quotas.BYTES) == MODULE.size
    node.stored[project_id] = 750
    with pytest.raises(QuotaExceededError, match="has 850 bytes .* asks for 200 more"):
        node.writer.update_applet(applet_id, module=OTHER)
    node.stored[project_id] = 700
    node.writer.update_applet(applet_id, module=OTHER)
    assert node.used(quotas.BYTES) == 1_000
    with pytest.raises(QuotaExceededError):
        node.project("second")
    assert not account_is_over(node)
    node.stored[project_id] = 701
    assert account_is_over(node)
    node.writer.set_account_quotas(node.ada.account_id, {quotas.BYTES: 1_001})
    assert not account_is_over(node)


def account_is_over(node: Node) -> bool:
    node.writer.update_storage_marks()
    account = node.reader.account(node.ada.account_id)
    assert account is not None
    return account.over_storage


def test_the_compiled_form_of_a_module_counts_too(make: Callable[..., Node]) -> None:
    node = make(**{quotas.BYTES: 1_000})
    project_id = node.project()
    compiled = Module("log.wasm", "ab" * 32, "cd" * 16, 100, ["start"], compiled_size=700)
    node.applet(project_id, "a", compiled)
    assert node.used(quotas.BYTES) == 800
    node.applet(project_id, "b", compiled)  # the same content is stored once
    assert node.used(quotas.BYTES) == 800
    with pytest.raises(QuotaExceededError, match="asks for 201"):
        node.applet(project_id, "c", msgspec.structs.replace(OTHER, size=100, compiled_size=101))
    node.applet(project_id, "d", msgspec.structs.replace(OTHER, size=100, compiled_size=100))
    assert node.used(quotas.BYTES) == 1_000


def test_a_look_at_storage_that_finds_nothing_new_changes_nothing(
    make: Callable[..., Node],
) -> None:
    node = make(bytes=10)
    node.writer.update_storage_marks()
    version = node.reader.version()
    node.writer.update_storage_marks()
    assert node.reader.version() == version
    node.stored[node.project()] = 11
    assert [account.username for account in node.writer.update_storage_marks()] == ["ada"]
    assert node.writer.update_storage_marks() == []
    version = node.reader.version()
    assert account_is_over(node)
    assert node.reader.version() == version


def test_an_account_that_is_above_when_quotas_come_goes_on_sending_events(
    make: Callable[..., Node], caplog: pytest.LogCaptureFixture
) -> None:
    node = make(bytes=10, processes=1)
    projects = [node.writer.create_project(node.root.account_id, "r").project_id]
    node.writer.set_account_quotas(node.ada.account_id, {quotas.BYTES: None})
    projects += [node.project(f"p{n}") for n in range(3)]
    node.writer.set_account_quotas(node.ada.account_id, {}, [quotas.BYTES])
    node.stored = dict.fromkeys(projects, 11)
    assert not account_is_over(node)
    ada = node.reader.account(node.ada.account_id)
    root = node.reader.account(node.root.account_id)
    assert ada is not None
    assert root is not None
    assert (ada.quotas, root.quotas) == ({quotas.BYTES: None, quotas.PROCESSES: 3}, {})
    assert "account ada has more than the quotas" in caplog.text
    assert "bytes unlimited, processes 3" in caplog.text
    bob = node.writer.create_account("bob", "h", DEVELOPER)
    late = node.writer.create_project(bob.account_id, "late").project_id
    node.stored[late] = 11
    assert [account.username for account in node.writer.update_storage_marks()] == ["bob"]


def test_sql_tables_that_come_with_a_project_count_and_those_it_has_already_do_not(
    make: Callable[..., Node],
) -> None:
    node = make(databases=1)
    ada = node.ada.account_id
    first = node.writer.create_project(ada, "first", configs={PROJECT_DATABASE: TABLES})
    node.writer.put_config(first.project_id, PROJECT_DATABASE, TABLES.replace(b'"t"', b'"u"'))
    with pytest.raises(QuotaExceededError):
        node.writer.create_project(ada, "second", configs={PROJECT_DATABASE: TABLES})
    node.writer.create_project(ada, "second", configs={PROJECT_DATABASE: NO_TABLES})
    node.writer.put_config(first.project_id, PROJECT_DATABASE, NO_TABLES)
    assert node.used(quotas.DATABASES) == 0


def test_keys_of_publishers_and_the_default_operator_do_not_count(
    make: Callable[..., Node],
) -> None:
    node = make(access_keys=0, operators=0)
    project_id = node.project()
    node.writer.create_publisher(project_id, "d", "d", access_key=True)
    node.writer.create_operator(node.ada.account_id, OperatorDraft("default", 1, "0x1", b"s"))
    with pytest.raises(QuotaExceededError):
        node.writer.create_access_key(node.ada.account_id, "ci", {})


@pytest.mark.parametrize(
    "name",
    [
        *(quotas.PROJECTS, quotas.APPLETS, quotas.MODULES, quotas.STRATEGIES, quotas.PUBLISHERS),
        *(quotas.DATABASES, quotas.MONITORS, quotas.CRON_JOBS, quotas.ABIS, quotas.BYTES),
    ],
)
def test_an_import_counts_with_all_that_is_in_it(make: Callable[..., Node], name: str) -> None:
    node = make()
    project_id = node.project("room", node.root)
    root_applet = node.applet(project_id, strategies=[("A", "start")])
    assert root_applet
    node.writer.put_config(project_id, PROJECT_DATABASE, TABLES)
    node.writer.create_publisher(project_id, "d", "d")
    node.writer.create_monitor(project_id, CONTRACT_LOG, 1, "E", address="0x" + "0" * 40)
    node.writer.create_cron_job(project_id, "0 0 * * *", "E", limit=10)
    node.writer.create_contract_abi(project_id, "abi", b"[]", limit=10)
    with node.reader.snapshot() as registry:
        project = registry.project(project_id)
        assert project is not None
        exported = encode_record(collect(registry, project, with_tokens=False))

    def bring() -> None:
        fresh, applet = node.writer.reserve_ids(2)
        node.stored[fresh] = 500
        ada = node.ada.account_id
        node.writer.import_project(ada, "copy", exported, [MODULE], fresh, [applet])

    node.writer.set_account_quotas(node.ada.account_id, {name: 0})
    version = node.reader.version()
    with pytest.raises(QuotaExceededError):
        bring()
    assert node.reader.version() == version
    enough = 500 + MODULE.size if name == quotas.BYTES else 1
    node.writer.set_account_quotas(node.ada.account_id, {name: enough})
    bring()
    assert node.used(name) == enough


@pytest.mark.parametrize("allowed", [0, 1])
def test_an_import_is_dedicated_only_as_far_as_the_quota_allows(
    make: Callable[..., Node], allowed: int
) -> None:
    node = make(dedicated=allowed)
    project_id = node.project("room", node.root)
    node.writer.set_dedicated(project_id, True)
    with node.reader.snapshot() as registry:
        project = registry.project(project_id)
        assert project is not None
        exported = encode_record(collect(registry, project, with_tokens=False))
    for n in range(2):
        (fresh,) = node.writer.reserve_ids(1)
        made = node.writer.import_project(node.ada.account_id, f"copy{n}", exported, [], fresh, [])
        assert made.dedicated is (n < allowed)


def test_a_project_stays_dedicated_when_the_quota_is_lowered(make: Callable[..., Node]) -> None:
    node = make(dedicated=1)
    project_id = node.project()
    node.writer.set_dedicated(project_id, True)
    node.writer.set_account_quotas(node.ada.account_id, {quotas.DEDICATED: 0})
    assert node.writer.set_dedicated(project_id, True).dedicated
    assert not node.writer.set_dedicated(project_id, False).dedicated
    with pytest.raises(QuotaExceededError):
        node.writer.set_dedicated(project_id, True)
