"""Requests that wait for minutes change nothing if their caller's rights have ended meanwhile."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fieldbrook.core.model import ADMIN, DEVELOPER, DISABLED
from fieldbrook.gateway.links.pending_event import Outcome
from fieldbrook.gateway.management.routes.projects import uploads
from fieldbrook.storage.project.dead_letters import LetterFilter, LetterRange
from tests.support.management import PLAIN_WAT, MemoryStore, Server, User, serving, started, wasm

LETTERS = 35


class FullStore(MemoryStore):
    """A store with dead letters."""

    def select_dead_letters(
        self, wanted: LetterFilter, selected: LetterRange, limit: int
    ) -> tuple[list[int], int]:
        return list(range(1, 1 + LETTERS)), LETTERS


class World:
    """A server with a project, whose commands end the rights of the caller when they are sent."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.ada = server.account("ada")
        self.root = server.account("root", ADMIN)
        self.replayed = 0
        self.end: Callable[[], object] = lambda: None

    async def command(self, _project_id: int, _name: str, numbers: list[int]) -> Outcome:
        """Replay letters."""
        self.replayed += len(numbers)
        self.end()
        return tuple((1, 0, "") for _ in numbers)

    def disable(self) -> None:
        """Disable the account of the caller."""
        account_id = self.ada.account.account_id
        self.server.writer.set_account_state(account_id, DISABLED)

    def end_logins(self) -> None:
        """End the logins of the caller."""
        self.server.writer.end_logins(self.ada.account.account_id)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    server, context = started(tmp_path)
    made = World(server)
    with serving(dataclasses.replace(context, command=made.command)) as port:
        server.port = port
        yield made
    server.writer.close()


def _replay(world: World, user: User) -> tuple[int, str]:
    project_id = int(world.ada.project("p")["projectID"])
    world.server.stores[project_id] = FullStore()
    answer = user("POST", "/dead_letter/p/replay", {"all": True})
    return answer.status, "" if answer.status == 201 else answer.key


def test_a_replay_goes_on_while_nothing_ends_the_rights_of_its_caller(world: World) -> None:
    world.end = lambda: world.server.account(f"somebody-{world.replayed}")
    assert _replay(world, world.ada) == (201, "")
    assert world.replayed == LETTERS


@pytest.mark.parametrize(
    ("end", "status", "key"),
    [
        (World.disable, 403, "DisabledAccount"),
        (World.end_logins, 401, "InvalidToken"),
    ],
)
def test_a_replay_stops_when_its_caller_is_disabled_or_logged_out(
    world: World, end: Callable[[World], None], status: int, key: str
) -> None:
    world.end = lambda: end(world)
    found = _replay(world, world.ada)
    assert found[0] == status
    assert world.replayed < LETTERS / 2


def test_a_replay_stops_when_its_access_key_is_removed(world: World) -> None:
    body = {"name": "k", "privileges": [{"name": "Event", "perm": "READ_WRITE"}]}
    key = world.ada("POST", "/account_access_key", body).json["accessKey"]
    world.ada.project("p")
    caller = User(world.server, world.ada.account)
    caller.token = key
    account_id = world.ada.account.account_id
    world.end = lambda: world.server.writer.remove_access_key(account_id, "k")
    (project,) = world.server.writer.reader().projects(account_id)
    world.server.stores[project.project_id] = FullStore()
    assert caller("POST", "/dead_letter/p/replay", {"all": True}).key == "AccessKeyNotFound"
    assert world.replayed < LETTERS / 2


def test_a_replay_of_another_accounts_events_stops_when_its_caller_is_no_administrator_any_more(
    world: World,
) -> None:
    world.server.account("other", ADMIN)
    account_id = world.root.account.account_id
    world.end = lambda: world.server.writer.set_account_role(account_id, DEVELOPER)
    assert _replay(world, world.root) == (401, "NoAdminPermission")
    assert world.replayed < LETTERS / 2


def test_a_module_that_was_compiled_for_an_ended_login_is_not_deployed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.ada.project("p")
    compile_file = uploads.compile_file

    def slowly(*args: object, **more: object) -> object:
        made = compile_file(*args, **more)  # type: ignore[arg-type]
        world.end_logins()
        return made

    monkeypatch.setattr(uploads, "compile_file", slowly)
    answer = world.ada.upload("POST", "/applet/p", wasm(PLAIN_WAT), {"appletName": "late"})
    assert answer.status == 401
    assert world.server.writer.reader().applets(_only_project(world)) == []


def _only_project(world: World) -> int:
    (project,) = world.server.writer.reader().projects(world.ada.account.account_id)
    return project.project_id


def test_an_administrator_who_deletes_their_own_account_is_not_stopped_half_way(
    world: World,
) -> None:
    world.server.account("other", ADMIN)
    for name in ("one", "two", "three"):
        world.root.project(name)
    account_id = world.root.account.account_id
    assert world.root("DELETE", f"/account/{account_id}?force=true").status == 204
    reader = world.server.writer.reader()
    assert reader.account(account_id) is None
    assert reader.projects(account_id) == []
