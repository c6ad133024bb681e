"""SQL tables of projects on three hosts: rows move with their project."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.sql_rows import INSERT, PROJECT, Inserts, Rows
from tests.cluster.test_rescue import rescue
from tests.integration.test_sql import TABLE
from tests.support.hosts import Cluster, Host
from tests.support.nodes import RunningNode, until

WIDER = {
    **TABLE,
    "cols": [
        *TABLE["cols"],
        {"name": "f_room", "constrains": {"datatype": "TEXT", "default": "hall"}},
    ],
}


class Site(Rows):
    """A cluster whose first host had a project with rows before the others joined."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.cluster = Cluster(folder, self.prepare)
        self.hosts = self.cluster.hosts


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("sql"))
    yield made
    for host in made.hosts:
        host.kill()


def test_rows_are_on_whichever_host_the_project_moves_to(site: Site) -> None:
    for host in (*site.hosts, site.hosts[0]):
        site.move(host)
        for other in site.hosts:
            site.insert(other)
        assert site.counts(host) == (site.inserted, site.inserted)


def test_rows_are_read_at_any_host(site: Site) -> None:
    for host in site.hosts:
        answer = host.call("GET", f"/sql/{PROJECT}/t_readings?limit=500")
        assert answer.status == 200, answer
        assert len(answer.json["data"]) == site.inserted


def test_an_event_that_fails_leaves_no_row_on_any_host(site: Site) -> None:
    assert site.run(site.hosts[1], "SET_AND_TRAP", INSERT, "trapped") == -1
    for host in site.hosts:
        site.move(host)
        assert site.counts(host) == (site.inserted, site.inserted)


def test_a_table_that_gets_a_column_has_it_on_all_hosts(site: Site) -> None:
    site.move(site.hosts[0])
    site.configure(site.hosts[1], WIDER)
    for host in site.hosts:
        site.insert(host)
    for host in site.hosts:
        site.move(host)
        page = host.call("GET", f"/sql/{PROJECT}/t_readings?filter=f_room=hall&limit=500")
        assert page.status == 200, page
        assert len(page.json["data"]) == site.inserted
        site.insert(host)


def test_an_imported_project_has_its_rows_on_all_hosts(site: Site) -> None:
    first, second, _ = site.hosts
    archive = first.call("POST", f"/project/x/{PROJECT}/export", {"data": True})
    assert archive.status == 200, archive
    form = {"name": "copy", "newTokens": True}
    answer = second._send_form("POST", "/project/import", form, archive.body)
    assert answer.status == 201, answer
    for host in site.hosts:
        path = "/cluster/projects/copy/pin"
        assert host.call("PUT", path, {"host": host.name}).status == 204
        rows: list[Any] = until(partial(_rows_of_copy, host), "its rows")
        assert len(rows) == site.inserted


def _rows_of_copy(host: Host) -> list[Any] | None:
    answer = host.call("GET", "/sql/copy/t_readings?limit=500")
    return answer.json["data"] if answer.status == 200 else None


def test_the_death_of_the_owner_loses_no_row_and_doubles_none(site: Site) -> None:
    owner, *others = site.hosts
    site.move(owner)
    with Inserts(site, others[0]) as inserts:
        inserts.await_more(20)
        owner.kill()
        inserts.await_more(20)
    assert site.counts(others[1]) == (site.inserted, site.inserted)
    owner.start()
    site.cluster.await_up()
    site.move(owner)
    assert site.counts(others[0]) == (site.inserted, site.inserted)


def test_the_crash_of_all_hosts_loses_no_row_and_doubles_none(site: Site) -> None:
    for _ in range(2):
        with Inserts(site, site.hosts[1]) as inserts:
            inserts.await_more(20)
            site.cluster.crash()
            inserts.await_more(5)
        for host in site.hosts:
            site.move(host)
            assert site.counts(host) == (site.inserted, site.inserted)


def test_the_last_host_becomes_a_node_with_all_rows(site: Site) -> None:
    owner, _, left = site.hosts
    site.move(owner)
    site.insert(owner)
    until(lambda: _is_level(left), "it has all records")
    site.cluster.kill()
    done = rescue(left.data)
    assert done.returncode == 0, done
    node = RunningNode(left.data)
    try:
        node.token = left.token
        event = site.request("SET", INSERT, "afterwards")
        assert node.send(PROJECT, event).json["results"][0]["code"] == 0
        page = node.call("GET", f"/sql/{PROJECT}/t_readings?limit=500").json
        assert len(page["data"]) == site.inserted + 1
    finally:
        node.kill()


def _is_level(host: Host) -> bool:
    rows = host.call("GET", "/cluster").json["data"]
    return all(row.get("lagRecords") == 0 and row.get("registryLag") == 0 for row in rows)
