"""Who may read which series of metrics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fieldbrook.core.model import ADMIN
from fieldbrook.gateway.metrics.readings import NAMES
from fieldbrook.gateway.metrics.sampling import Accounts
from fieldbrook.gateway.metrics.series import Series
from fieldbrook.gateway.metrics.series_client import LocalSeries
from fieldbrook.observability import metrics
from fieldbrook.observability.metrics_table import Table
from tests.support.management import Server, User, holder, serving, started

TAKEN = 5


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server with an open registry, and a metrics table that is sampled."""
    table = Table(8)
    begun = [time.time() - TAKEN]
    server, context = started(tmp_path)
    series = Series(
        lambda: table,
        account_of=Accounts(context.reader),
        clock=lambda: begun[0],
        monotonic=lambda: begun[0],
    )
    with serving(replace(context, series=LocalSeries(series))) as server.port:
        ada = server.account("ada")
        for slot, name in enumerate(("one", "two")):
            table.name(slot, f"project:{ada.project(name)['projectID']}")
        for _ in range(TAKEN + 1):
            series.sample()
            begun[0] += 1
            table.row(0)[metrics.PROJECT_EVENTS] += 3
            table.row(1)[metrics.PROJECT_EVENTS] += 4
        yield server
    server.writer.close()


@pytest.fixture
def ada(server: Server) -> User:
    account = server.writer.reader().account_named("ada")
    assert account is not None
    return User(server, account)


def test_an_administrator_gets_the_figures_of_the_node_and_of_any_project(server: Server) -> None:
    root = server.account("root", ADMIN)
    found = root("GET", "/series").json
    assert found["names"] == list(NAMES)
    assert len(found["columns"]) == 1 + len(NAMES)
    assert found["columns"][1 + NAMES.index("events")] == [7.0] * TAKEN
    assert found["columns"][1 + NAMES.index("eventP99Ms")] == [None] * TAKEN
    assert found["projects"] == {
        "one": {"events": 3.0, "failed": 0.0},
        "two": {"events": 4.0, "failed": 0.0},
    }
    found = root("GET", "/series?project=two&name=events").json
    assert found["columns"][1] == [4.0] * TAKEN
    assert set(found["projects"]) == {"two"}


def test_an_account_gets_the_sums_of_its_own_projects_and_nothing_of_the_node(
    server: Server, ada: User
) -> None:
    found = ada("GET", "/series").json
    assert found["names"] == ["events", "failed"]
    assert found["columns"][1] == [7.0] * TAKEN
    assert set(found["projects"]) == {"one", "two"}
    bob = server.account("bob")
    found = bob("GET", "/series").json
    assert found["columns"][1] == [0.0] * TAKEN
    assert found["projects"] == {}
    assert bob("GET", "/series?project=one").key == "ProjectNotFound"


def test_what_cannot_be_answered_names_the_parameter(ada: User) -> None:
    assert "must be one of events, failed" in ada("GET", "/series?name=cpu").fields["name"]
    assert "step" in ada("GET", "/series?step=5").fields
    assert "begin" in ada("GET", "/series?begin=yesterday").fields
    late = "2030-01-01T00:00:00Z"
    assert ada("GET", f"/series?begin={late}").fields == {"begin": "must be before end"}
    assert ada("GET", "/series?project=absent").key == "ProjectNotFound"


def test_a_span_of_the_past_has_only_its_samples(ada: User) -> None:
    found = ada("GET", "/series?end=2020-01-01T00:00:00Z").json
    assert (found["step"], found["columns"]) == (60, [[], [], []])


def test_an_access_key_needs_the_group_of_projects(ada: User) -> None:
    assert holder(ada, "reads", Project="READONLY")("GET", "/series").status == 200
    refused = holder(ada, "sends", Event="READONLY")("GET", "/series")
    assert (refused.status, refused.key) == (403, "AccessKeyPermissionDenied")
