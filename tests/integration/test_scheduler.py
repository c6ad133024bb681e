"""Cron jobs: the ticker with a registry and a clock that the tests set, and in a real node."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fieldbrook.actors.wire import BY_CRON, NAMED, WireEvent
from fieldbrook.core.errors import NodeError, OutcomeUnknownError, TooManyRequestsError
from fieldbrook.core.model import ADMIN, NODE_PUBLISHER
from fieldbrook.gateway.links.pending_event import Settle
from fieldbrook.gateway.schedule.ticker import Ticker
from fieldbrook.storage.registry.service import RegistryWriter
from tests.support.applets import TALLY
from tests.support.nodes import StartNode, parts, until

NOON = int(datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()) * 1000


class World:
    """A registry with a project, and a ticker with a simulated clock and project."""

    def __init__(self, folder: Path) -> None:
        self.now_ms = NOON
        self.writer = RegistryWriter(folder / "registry", 16 << 20, lambda: self.now_ms, b"k" * 32)
        account = self.writer.create_account("ada", "no password", ADMIN)
        self.project_id = self.writer.create_project(account.account_id, "p").project_id
        self.sent: list[tuple[int, WireEvent, Settle]] = []
        self.later: list[Callable[[], None]] = []
        self.refuse_with: NodeError | None = None
        self.ticker = self.another()

    def another(self) -> Ticker:
        """Make another ticker, as after a restart."""
        return Ticker(self.writer.reader(), UTC, self.submit, self.call_later, lambda: self.now_ms)

    def submit(self, project_id: int, event: WireEvent, settle: Settle) -> None:
        if self.refuse_with is not None:
            raise self.refuse_with
        self.sent.append((project_id, event, settle))

    def call_later(self, delay_s: float, call: Callable[[], None]) -> None:
        assert delay_s > 0
        self.later.append(call)

    def job(self, expression: str, event_type: str = "DEFAULT") -> int:
        made = self.writer.create_cron_job(self.project_id, expression, event_type, 100)
        return made.cron_job_id

    def turn(self, ms: int) -> list[WireEvent]:
        """Move the clock and run the ticker; return what was sent and settled."""
        self.now_ms += ms
        self.ticker.run_once()
        events = [event for _, event, _ in self.sent]
        for _, _, settle in self.sent:
            settle(())
        self.sent.clear()
        return events


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.writer.close()


def test_a_tick_is_an_event_with_an_id_of_its_job_and_its_time(world: World) -> None:
    job_id = world.job("*/3 * * * *", "REPORT")
    assert world.turn(0) == []
    (event,) = world.turn(180_250)
    event_type, publisher_id, event_id, payload, received_at, kind, _ = event
    assert (event_type, publisher_id) == ("REPORT", NODE_PUBLISHER)
    assert event_id == f"cron-{job_id}-20261121T120300Z"
    assert json.loads(payload) == {"ID": str(job_id), "Timestamp": "2026-11-21T12:03:00Z"}
    assert (received_at, kind) == (NOON + 180_250, NAMED | BY_CRON)


def test_the_ticker_sleeps_until_the_next_tick_and_no_longer_than_a_second(world: World) -> None:
    assert world.ticker.run_once() == 1.0
    world.job("* * * * *")
    assert world.ticker.run_once() == 1.0
    world.now_ms += 59_600
    assert world.ticker.run_once() == pytest.approx(0.4)
    world.now_ms += 399
    assert world.ticker.run_once() == pytest.approx(0.01)


def test_jobs_made_and_removed_are_noticed_at_the_next_turn(world: World) -> None:
    world.turn(0)
    job_id = world.job("* * * * *")
    world.turn(0)
    assert len(world.turn(60_000)) == 1
    world.writer.remove_cron_job(job_id)
    assert world.turn(60_000) == []


def test_a_change_of_one_job_leaves_the_others_as_they_are(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.job("61 * * * *")  # as if another version had accepted it
    world.job("* * * * *", "FIRST")
    world.turn(0)
    world.job("* * * * *", "SECOND")
    world.turn(0)
    assert [event[0] for event in world.turn(60_000)] == ["FIRST", "SECOND"]
    assert [event[0] for event in world.turn(60_000)] == ["FIRST", "SECOND"]
    assert caplog.text.count("never runs") == 1


def test_a_removed_projects_jobs_are_gone_with_it(world: World) -> None:
    world.job("* * * * *")
    world.turn(0)
    world.writer.remove_project(world.project_id)
    assert world.turn(60_000) == []


def test_a_ticker_that_starts_anew_makes_up_for_nothing(world: World) -> None:
    world.job("* * * * *")
    world.turn(0)
    assert len(world.turn(60_000)) == 1
    world.ticker = world.another()
    assert world.turn(10) == [], "the minute has had its tick"
    world.ticker = world.another()
    world.now_ms += 600_000
    world.ticker = world.another()
    assert world.turn(0) == [], "ten minutes were missed"
    assert len(world.turn(60_000)) == 1


def test_a_tick_that_could_not_be_taken_is_sent_again_under_the_same_id(world: World) -> None:
    world.job("* * * * *")
    world.turn(0)
    world.refuse_with = TooManyRequestsError(what="full")
    world.now_ms += 60_000
    world.ticker.run_once()
    assert world.sent == []
    world.refuse_with = None
    world.later.pop()()
    ((_, first, settle),) = world.sent
    settle(OutcomeUnknownError(what="it died"))
    world.now_ms += 1_000
    world.later.pop()()
    again = world.sent[1][1]
    assert again[:4] == first[:4]


def test_a_tick_that_cannot_be_handled_is_given_up_with_a_line_in_the_log(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    job_id = world.job("0 * * * *")
    world.turn(0)
    world.now_ms += 3_600_000
    world.ticker.run_once()
    world.sent.pop()[2](NodeError())
    assert f"the tick of cron job {job_id} was not handled" in caplog.text
    world.now_ms += 3_600_000
    world.ticker.run_once()
    world.now_ms += 61_000
    world.sent.pop()[2](OutcomeUnknownError(what="it died"))
    assert not world.later, "a minute late is too late"
    assert caplog.text.count("was not handled") == 2


def test_while_a_tick_runs_the_next_ones_of_its_job_are_skipped(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.job("@every 1s")
    world.turn(0)
    for _ in range(3):
        world.now_ms += 1_000
        world.ticker.run_once()
    assert len(world.sent) == 1
    assert "while the last one is still being handled" in caplog.text
    world.sent.pop()[2](())
    assert len(world.turn(1_000)) == 1


@pytest.mark.thorough
def test_a_cron_job_runs_its_handler_in_a_running_node(start_node: StartNode) -> None:
    node = start_node()
    project = node.create_project("clock")
    rule = [{"eventType": "TICK", "handler": "echo"}, {"eventType": "TICK", "handler": "quiet"}]
    applet = node.deploy("clock", TALLY, "tally", strategies=rule)
    path = f"/cronjob/{project['projectID']}"
    made = node.call("POST", path, {"cronExpressions": "@every 1s", "eventType": "TICK"})
    assert made.status == 201, made
    until(lambda: node.count("clock", applet["appletID"]) >= 2, "two ticks")
    told = json.loads(node.kv("clock", applet["appletID"], b"last"))
    assert told["ID"] == made.json["cronJobID"]
    assert "fb-scheduler" in parts(node)
    gone = node.call("DELETE", f"/cronjob/data/{made.json['cronJobID']}")
    assert gone.status == 204
    node.stop()
    assert "ERROR" not in node.log, "nothing had to be killed after its time"
