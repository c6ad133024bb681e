"""`GET /search`: what it finds, for whom, and how much of it."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from fieldbrook.storage.registry.search import (
    OF_A_KIND,
    PUBLISHER,
    Effort,
    search_registry,
)
from tests.support.management import Server, User, holder


def found(caller: Any, text: str) -> list[tuple[str, ...]]:
    reply = caller("GET", f"/search?q={quote(text)}")
    assert reply.status == 200, reply.body
    return [(one["kind"], one["name"], one.get("project", "")) for one in reply.json["data"]]


def publisher(caller: User, project: str, name: str, key: str) -> dict[str, Any]:
    made = caller("POST", f"/publisher/x/{project}", {"name": name, "key": key})
    assert made.status == 201, made.body
    created: dict[str, Any] = made.json
    return created


def test_names_and_keys_are_found_in_any_case_and_equal_ones_come_first(ada: User) -> None:
    ada.project("room")
    ada.project("mushroom")
    ada.applet("room", "Room-counter")
    created = publisher(ada, "room", "the door", "room-7")
    assert found(ada, "ROOM") == [
        ("project", "room", "room"),
        ("applet", "Room-counter", "room"),
        ("publisher", "the door", "room"),
        ("project", "mushroom", "mushroom"),
    ]
    assert found(ada, "door") == [("publisher", "the door", "room")]
    (row,) = ada("GET", "/search?q=door").json["data"]
    assert row["id"] == created["publisherID"]
    assert found(ada, "nothing") == []


def test_accounts_find_their_own_projects_and_administrators_all(
    ada: User, bob: User, root: User
) -> None:
    ada.project("room")
    ada.applet("room", "counter-of-ada")
    publisher(ada, "room", "door-of-ada", "key-of-ada")
    for text in ("room", "counter-of-ada", "door-of-ada", "key-of-ada"):
        assert found(ada, text)
        assert found(bob, text) == []
        assert found(root, text) == found(ada, text)


def test_addresses_of_operators_and_of_monitored_contracts_are_found(ada: User, bob: User) -> None:
    ada.project("chained")
    operator = ada("POST", "/operator/generate", {"name": "payer"}).json
    contract = "0x" + "aB" * 20
    body = {
        "eventType": "LOG",
        "chainID": 4690,
        "contractAddress": contract,
        "blockStart": 1,
        "topic0": "0x" + "1" * 64,
    }
    made = ada("POST", "/monitor/x/chained/contract_log", body)
    assert made.status == 201, made.body
    assert found(ada, operator["address"].lower()) == [("operator", operator["address"], "")]
    assert found(ada, "abab" * 4) == [("monitor", made.json["contractAddress"], "chained")]
    for text in (operator["address"], contract):
        assert found(bob, text) == []


def test_at_most_twenty_are_found_and_five_of_a_kind(ada: User) -> None:
    for number in range(OF_A_KIND + 2):
        ada.project(f"same{number}")
        ada.applet(f"same{number}", "same-applet")
        publisher(ada, f"same{number}", "same", f"same-{number}")
    kinds = [kind for kind, *_ in found(ada, "same")]
    assert len(kinds) == 3 * OF_A_KIND
    assert {kinds.count(kind) for kind in kinds} == {OF_A_KIND}


@pytest.mark.parametrize("query", ["", "?q=", "?q=a", f"?q={'a' * 257}", "?q=%ff"])
def test_a_text_that_is_too_short_or_too_long_is_refused(ada: User, query: str) -> None:
    reply = ada("GET", f"/search{query}")
    assert (reply.status, list(reply.fields)) == (400, ["q"])


def test_without_a_login_nothing_is_found(server: Server) -> None:
    assert server.send("GET", "/srv-applet-mgr/v0/search?q=room").status == 401


def test_an_access_key_finds_the_kinds_that_it_may_read(ada: User) -> None:
    ada.project("room")
    ada.applet("room", "room-applet")
    publisher(ada, "room", "room-door", "k")
    some = holder(ada, "some", Project="READONLY", Publisher="READONLY")
    assert [kind for kind, *_ in found(some, "room")] == ["project", "publisher"]
    none = holder(ada, "none", Publisher="READONLY")
    assert none("GET", "/search?q=room").status == 403


def test_a_project_with_many_rows_leaves_some_of_the_effort_to_others(
    ada: User, server: Server
) -> None:
    ada.project("big")
    ada.project("small")
    for number in range(60):
        publisher(ada, "big", f"device {number}", f"big-{number}")
    publisher(ada, "big", "device last", "the-last")
    publisher(ada, "small", "device small", "small-1")
    reader = server.writer.reader()

    def names(text: str, effort: Effort) -> set[str]:
        with reader.snapshot() as registry:
            projects = registry.projects(ada.account.account_id)
            matches = search_registry(
                registry, text, projects, ada.account.account_id, {PUBLISHER}, effort
            )
        return {match.name for match in matches}

    assert names("device small", Effort(rows=40)) == {"device small"}
    assert names("device last", Effort(rows=40)) == set(), "not all of a big project is read"
    assert names("the-last", Effort(rows=40)) == {"device last"}, "but a key is looked up"
    assert names("device last", Effort(rows=10_000)) == {"device last"}
    times = iter([0.0, 9.0])
    assert names("device", Effort(time_s=1.0, monotonic=lambda: next(times))) == set()
