"""Quotas of accounts in a running node: over HTTP, for events, and in the command line."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.applets import TALLY
from tests.support.nodes import Answer, StartNode, message, strategies, until
from tests.support.shell import Shell

PASSWORD = "correct horse"
QUOTAS = ("--quota-projects", "4", "--quota-publishers", "3", "--quota-processes", "1")


class World:
    """A node, its administrator, and accounts of developers."""

    def __init__(self, start: StartNode) -> None:
        self.node = start(*QUOTAS)
        self.root = self.node.token
        self.applet_id = ""

    def developer(self, name: str) -> str:
        """Create an account, which makes all later calls; return its id."""
        self.node.token = self.root
        body = {"username": name, "password": PASSWORD, "role": "DEVELOPER"}
        made = self.node.call("POST", "/register/admin", body)
        assert made.status == 201, made
        login = self.node.call("PUT", "/login", {"username": name, "password": PASSWORD})
        self.node.token = login.json["token"]
        return str(made.json["accountID"])

    def change(self, account_id: str, *quotas: dict[str, Any]) -> Answer:
        """Change an account's quotas as the administrator."""
        body = {"quotas": list(quotas)}
        return self.node.call("PUT", f"/account/{account_id}/quota", body, token=self.root)

    def rows(self) -> dict[str, dict[str, Any]]:
        """Return the caller's own quotas by name."""
        return {row["name"]: row for row in self.node.call("GET", "/quota").json["data"]}

    def room(self, name: str) -> Any:
        """Create a project with the tally applet; return its publisher."""
        self.node.create_project(name)
        self.applet_id = self.node.deploy(name, TALLY, strategies=strategies(DEFAULT="start"))[
            "appletID"
        ]
        return self.node.add_publisher(name, "d")


@pytest.fixture(scope="module")
def world(start_module_node: StartNode) -> World:
    return World(start_module_node)


def test_a_developer_is_told_the_limit_and_an_administrator_raises_it(world: World) -> None:
    account_id = world.developer("ada")
    node = world.node
    for n in range(4):
        node.create_project(f"ada{n}")
    refused = node.call("POST", "/project", {"name": "ada4"})
    assert (refused.status, refused.json["key"]) == (403, "QuotaExceeded")
    assert "account ada has 4 projects and asks for" in refused.json["desc"]
    row = world.rows()["projects"]
    assert (row["limit"], row["used"], row["from"]) == (4, 4, "SETTINGS")
    body = {"quotas": [{"name": "projects", "limit": 9}]}
    own = node.call("PUT", f"/account/{account_id}/quota", body)
    assert (own.status, own.json["key"]) == (401, "NoAdminPermission")
    assert world.change(account_id, {"name": "projects", "limit": 5}).status == 200
    assert node.create_project("ada4")
    assert node.call("POST", "/project", {"name": "ada5"}).status == 403
    changed = world.change(account_id, {"name": "projects", "unlimited": True}).json["data"][0]
    assert (changed["unlimited"], changed["from"], changed["used"]) == (True, "ACCOUNT", 5)
    assert node.create_project("ada5")
    assert world.change(account_id, {"name": "projects"}).json["data"][0]["limit"] == 4
    assert node.call("POST", "/project", {"name": "ada6"}).status == 403, "it keeps what it has"
    assert node.call("GET", "/project/ada5").status == 200


def test_a_public_project_without_room_for_its_publisher_is_not_made(world: World) -> None:
    account_id = world.developer("pia")
    assert world.change(account_id, {"name": "publishers", "limit": 0}).status == 200
    refused = world.node.call("POST", "/project", {"name": "open", "public": True})
    assert (refused.status, refused.json["key"]) == (403, "QuotaExceeded")
    assert "quota publishers" in refused.json["desc"]
    assert world.node.call("GET", "/project/open").status == 404, "nothing half done"
    assert world.node.call("POST", "/project", {"name": "open"}).json["public"] is False


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": "cakes", "limit": 1}, "quotas"),
        ({"name": "projects", "limit": -1}, "quotas"),
        ({"name": "projects", "limit": "many"}, "quotas"),
        ({"name": "projects", "limit": 1, "unlimited": True}, "quotas[0].limit"),
    ],
)
def test_an_invalid_quota_is_refused(world: World, change: dict[str, Any], field: str) -> None:
    refused = world.change("1", change)
    assert refused.status in (400, 404), refused
    own = world.node.call("GET", "/account", token=world.root).json["data"][0]["accountID"]
    refused = world.change(own, change)
    assert refused.status == 400
    assert refused.json["fields"][0]["field"] == field
    twice = world.change(own, {"name": "projects"}, {"name": "projects", "limit": 1})
    assert [each["field"] for each in twice.json["fields"]] == ["quotas[1].name"]


def test_an_administrator_has_no_limits_and_sees_those_of_others(world: World) -> None:
    account_id = world.developer("bob")
    mine = world.node.token
    world.node.token = world.root
    assert {row["from"] for row in world.rows().values()} == {"ROLE"}
    assert all(row["unlimited"] for row in world.rows().values())
    shown = world.node.call("GET", f"/account/{account_id}/quota").json
    assert (shown["username"], shown["data"][0]["limit"]) == ("bob", 4)
    assert world.node.call("GET", f"/account/{account_id}/quota", token=mine).status == 200
    other = world.developer("carol")
    hidden = world.node.call("GET", f"/account/{other}/quota", token=mine)
    assert (hidden.status, hidden.json["key"]) == (404, "AccountNotFound")


def test_requests_that_arrive_together_do_not_exceed_a_quota(world: World) -> None:
    world.developer("dora")
    node = world.node
    with ThreadPoolExecutor(16) as pool:
        answers = list(
            pool.map(lambda n: node.call("POST", "/project", {"name": f"dora{n}"}), range(24))
        )
    assert sorted(answer.status for answer in answers) == [201] * 4 + [403] * 20
    assert world.rows()["projects"]["used"] == 4


def test_devices_that_a_data_push_would_make_count_and_known_ones_go_on(world: World) -> None:
    world.developer("eve")
    node = world.node
    world.room("eve")
    body = {"name": "gw", "privileges": [{"name": "Event", "perm": "READ_WRITE"}]}
    key = node.call("POST", "/account_access_key", body).json["accessKey"]

    def push(*devices: str) -> Answer:
        items = [{"device_id": d, "event_type": "DEFAULT", "payload": "x"} for d in devices]
        path = "/event/eve?eventType=DA-TA_PU-SH&timestamp=1795233228152"
        return node.call("POST", path, json.dumps(items).encode(), token=key)

    assert push("d", "new-1", "new-2").status == 201
    refused = push("new-3", "d")
    assert (refused.status, refused.json["key"]) == (403, "QuotaExceeded")
    assert "3 publishers" in refused.json["desc"]
    assert push("d", "new-1").status == 201
    assert world.rows()["publishers"]["used"] == 3


def test_events_are_refused_while_an_account_has_too_much_stored(world: World) -> None:
    account_id = world.developer("fay")
    node = world.node
    publisher = world.room("fay")
    assert node.send("fay", message(publisher)).status == 201
    used = world.rows()["bytes"]["used"]
    assert used > len(TALLY)
    world.change(account_id, {"name": "bytes", "limit": used - 1})
    refused = node.send("fay", message(publisher))
    assert (refused.status, refused.json["key"]) == (403, "StorageQuotaExceeded")
    assert "account fay stores more bytes than its quota allows" in refused.json["desc"]
    more = node.upload("fay", TALLY + b";; another", "second")
    assert (more.status, more.json["key"]) == (403, "QuotaExceeded")
    known = node.upload("fay", TALLY, "second")
    assert known.status == 201, "what it has already takes no more room"
    digest = hashlib.sha256(TALLY + b";; another").hexdigest()
    assert not list((node.data / "modules").glob(f"{digest}.*")), "it is not kept for nothing"
    world.change(account_id, {"name": "bytes", "limit": used + (64 << 20)})
    assert node.send("fay", message(publisher)).status == 201


def test_a_module_is_not_kept_when_the_quota_has_no_room_for_its_compiled_form(
    world: World,
) -> None:
    account_id = world.developer("flo")
    node = world.node
    node.create_project("flo")
    assert node.upload("flo", TALLY).status == 201
    used = world.rows()["bytes"]["used"]
    assert used > 2 * len(TALLY), "the compiled form counts"
    another, own = TALLY + b";; flo's", node.token
    node.token = world.root
    node.create_project("flo_model")
    assert node.upload("flo_model", TALLY + b";; model").status == 201
    archive = node.call("POST", "/project/x/flo_model/export", {}).body
    assert node.call("DELETE", "/project/flo_model").status == 204
    node.token = own
    world.change(account_id, {"name": "bytes", "limit": used + 2 * len(another)})
    digest = hashlib.sha256(another).hexdigest()
    imported = node._send_form("POST", "/project/import", {"name": "flo2"}, archive)
    for refused in (node.upload("flo", another, "second"), imported):
        assert (refused.status, refused.json["key"]) == (403, "QuotaExceeded"), refused
    assert not list((node.data / "modules").glob(f"{digest}.*")), "it was not written"
    world.change(account_id, {"name": "bytes", "unlimited": True})
    assert node.upload("flo", another, "second").status == 201


@pytest.mark.thorough
def test_what_handlers_store_is_noticed_and_making_room_lets_events_in(world: World) -> None:
    account_id = world.developer("gil")
    node = world.node
    publisher = world.room("gil")
    other = node.create_project("gil_other")
    assert other
    assert node.send("gil", message(publisher)).status == 201
    limit = world.rows()["bytes"]["used"] + (256 << 10)
    world.change(account_id, {"name": "bytes", "limit": limit})

    def over() -> bool:
        return node.send("gil", message(publisher, b"x" * 20_000)).status == 403

    until(over, "what the handlers log and keep is more than the quota")
    assert node.call("DELETE", "/project/gil").status == 204
    until(
        lambda: node.call("POST", "/project", {"name": "gil"}).status == 201,
        "the project's bytes are free",
    )


def test_cron_jobs_of_a_disabled_account_run_nothing(world: World) -> None:
    account_id = world.developer("hal")
    node = world.node
    world.room("hal")
    project_id = node.call("GET", "/project/hal").json["projectID"]
    applet_id = world.applet_id
    body = {"cronExpressions": "@every 1s", "eventType": "DEFAULT"}
    made = node.call("POST", f"/cronjob/{project_id}", body)
    assert made.status == 201, made
    node.token = world.root
    until(lambda: node.count("hal", applet_id) > 0, "the cron job runs")
    assert node.call("PUT", f"/account/{account_id}/disable").status == 200
    before = node.count("hal", applet_id)
    refused = f"account {account_id}"
    until(lambda: node.log.count(f" was not handled: {refused}") > 1, "ticks are refused")
    assert node.count("hal", applet_id) <= before + 1, "the one that ran already"
    assert node.call("PUT", f"/account/{account_id}/enable").status == 200
    until(lambda: node.count("hal", applet_id) > before + 1, "it runs again")
    assert node.call("DELETE", "/project/hal").status == 204


def test_projects_of_an_account_take_turns_where_few_may_run_at_once(world: World) -> None:
    world.developer("ida")
    node = world.node
    first, second = world.room("ida1"), world.room("ida2")
    assert node.send("ida1", message(first)).status == 201
    assert world.rows()["processes"]["used"] == 1
    refused = node.send("ida2", message(second))
    assert (refused.status, refused.json["key"]) == (429, "TooManyRequests")
    assert (
        "runs as many projects at once as its quota allows (1, quota processes)"
        in refused.json["desc"]
    )
    assert refused.headers["Retry-After"] == "1"
    until(lambda: node.send("ida2", message(second)).status == 201, "the first gives way")
    assert world.rows()["processes"]["used"] == 1


@pytest.mark.thorough
def test_the_command_line_shows_quotas_and_changes_them(world: World, tmp_path: Path) -> None:
    world.developer("jon")
    shell = Shell(tmp_path / "config", world.node, logged_in=False)
    shell("login", "--username", "jon", "--password-stdin", stdin=PASSWORD.encode() + b"\n")
    shown = {row["name"]: row for row in shell.json("quota")}
    assert (shown["projects"]["limit"], shown["bytes"]["limit"]) == (4, 4 << 30)
    assert "projects with SQL tables" in shell.text("quota")
    shell("login", "--password-stdin", stdin=PASSWORD.encode() + b"\n")
    arguments = ("--set", "bytes=10GiB", "--set", "cron-jobs=unlimited", "--set", "projects=7")
    rows = {row["name"]: row for row in shell.json("account", "quota", "jon", *arguments)}
    assert rows["bytes"]["limit"] == 10 << 30
    assert rows["cron_jobs"]["unlimited"]
    shell("account", "quota", "jon", "--set", "bytes=default")
    rows = {row["name"]: row for row in shell.json("account", "quota", "jon")}
    assert (rows["bytes"]["from"], rows["projects"]["from"]) == ("SETTINGS", "ACCOUNT")
    assert "no limit" in shell.text("account", "quota", "jon")
    for wrong in ("projects", "projects=", "projects=-1", "projects=1e9", "bytes=1GB"):
        shell.fails("account", "quota", "jon", "--set", wrong, code=2)
    assert "cakes" in shell.fails("account", "quota", "jon", "--set", "cakes=1")
