"""Records that no route would accept are not imported either."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fieldbrook.core.model import (
    CHAIN_HEIGHT,
    CHAIN_TX,
    CONTRACT_LOG,
    PROJECT_DATABASE,
    PROJECT_ENV,
    PROJECT_SPENDING,
    Applet,
    Config,
    CronJob,
    Monitor,
    Project,
    Publisher,
    Strategy,
    TrafficLimit,
)
from fieldbrook.gateway.management.routes.projects.imported import find_problem
from fieldbrook.storage.backup.transfer import Exported, ExportedToken

TIMES: dict[str, Any] = {"created_at": 1, "updated_at": 1, "project_id": 1}
HASH = "ab" * 32
APPLET = Applet(
    applet_id=2, resource_id=3, name="a", wasm_name="a.wasm", instance_id=4, sha256="0" * 64,
    **TIMES,
)  # fmt: skip
STRATEGY = Strategy(strategy_id=1, applet_id=2, event_type="DEFAULT", handler="start", **TIMES)
PUBLISHER = Publisher(publisher_id=1, name="p", key="p", token="", **TIMES)
JOB = CronJob(cron_job_id=1, expression="*/5 * * * *", event_type="TICK", **TIMES)
LOGS = Monitor(
    monitor_id=1, kind=CONTRACT_LOG, chain_id=1, event_type="LOG", address="0x" + "1a" * 20,
    topics=[HASH, "", "", ""], block_start=1, **TIMES,
)  # fmt: skip
TX = Monitor(monitor_id=2, kind=CHAIN_TX, chain_id=1, event_type="TX", tx_hash=HASH, **TIMES)
HEIGHT = Monitor(monitor_id=3, kind=CHAIN_HEIGHT, chain_id=1, event_type="H", height=9, **TIMES)
LIMIT = TrafficLimit(
    traffic_limit_id=1, threshold=1, duration_ms=1_000, api_type="BLOCKCHAIN", start_at=1, **TIMES
)
ENV = Config(config_id=1, kind=PROJECT_ENV, value=b'{"env":[["A","b"]]}', **TIMES)
GOOD = Exported(
    Project(account_id=1, name="p", **TIMES),
    [
        ENV,
        Config(config_id=2, kind=PROJECT_DATABASE, value=b'{"schemas":[]}', **TIMES),
        Config(config_id=3, kind=PROJECT_SPENDING, value=b'{"weiPerDay":"5"}', **TIMES),
    ],
    [APPLET], [], [STRATEGY], [PUBLISHER], [JOB], [LOGS, TX, HEIGHT], [LIMIT], False, [],
)  # fmt: skip
changed = msgspec.structs.replace


def test_what_the_routes_have_made_is_taken() -> None:
    assert find_problem(GOOD) == ""


@pytest.mark.parametrize(
    ("field", "record", "reason"),
    [
        ("configs", changed(ENV, value=b'{"env":1}'), "Expected `array`"),
        ("configs", changed(ENV, value=b"[" * 99_999), "its configuration"),
        ("configs", changed(ENV, value=b'{"env":[["","b"]]}'), "the key is empty"),
        ("configs", changed(ENV, value=b"[" * ((1 << 20) + 1)), "it has 1048577 bytes"),
        ("configs", changed(ENV, kind="PROJECT_X"), "there is no such kind"),
        ("configs", changed(ENV, kind=PROJECT_SPENDING, value=b'{"weiPerDay":"-1"}'), "regex"),
        ("applets", changed(APPLET, isolation="X"), "isolation 'X'"),
        ("applets", changed(APPLET, state="X"), "state 'X'"),
        ("applets", changed(APPLET, reuse_events=0), "reuseEvents is 0"),
        ("applets", changed(APPLET, name="x" * 300), "more than 256"),
        ("strategies", changed(STRATEGY, event_type=""), "an event type of 0"),
        ("publishers", changed(PUBLISHER, key=""), "a key has 1 to 256"),
        ("publishers", changed(PUBLISHER, token="x" * 1_025), "its token is too long"),
        ("publishers", changed(PUBLISHER, event_types=["x"] * 101), "too many event types"),
        ("publishers", changed(PUBLISHER, token_expires_at=-1), "Expected `int`"),
        ("publishers", changed(PUBLISHER, token_expires_at=1 << 53), "Expected `int`"),
        ("tokens", ExportedToken(1, b"short", 1, 0), "its digest is not a SHA-256 digest"),
        ("tokens", ExportedToken(1, bytes(32), 1, 1 << 62), "Expected `int`"),
        ("cron_jobs", changed(JOB, expression="@never"), "descriptors"),
        ("cron_jobs", changed(JOB, expression="* * * *"), "4 fields instead of 5"),
        ("cron_jobs", changed(JOB, expression="0 " * 1_000), "too long"),
        ("monitors", changed(LOGS, address="zz"), "contractAddress"),
        ("monitors", changed(LOGS, topics=[HASH]), "1 topics"),
        ("monitors", changed(LOGS, topics=["zz", "", "", ""]), "topic0"),
        ("monitors", changed(LOGS, block_start=5, block_end=4), "blockEnd"),
        ("monitors", changed(LOGS, block_current=1 << 63), "Expected `int`"),
        ("monitors", changed(LOGS, event_abi="[" * 99_999), "its monitor"),
        ("monitors", changed(LOGS, event_abi='{"name":"A","inputs":[]}'), "of another event"),
        ("monitors", changed(TX, tx_hash="0x12"), "txAddress"),
        ("monitors", changed(HEIGHT, kind="x"), "kind 'x'"),
        ("traffic_limits", changed(LIMIT, duration_ms=0), "a window of 0 ms"),
        ("traffic_limits", changed(LIMIT, threshold=0), "Expected `int`"),
        ("traffic_limits", changed(LIMIT, start_at=(1 << 64) - 1), "Expected `int`"),
        ("traffic_limits", changed(LIMIT, start_at=(1 << 63) - 1), "Expected `int`"),
        ("traffic_limits", changed(LIMIT, duration="x" * 100_000), "not a duration"),
        (
            "traffic_limits",
            changed(LIMIT, duration="7s"),
            "the text and the number of its duration differ",
        ),
        ("traffic_limits", changed(LIMIT, api_type="X"), "there is no such kind"),
    ],
)
def test_a_record_that_no_route_would_have_made_is_named(
    field: str, record: object, reason: str
) -> None:
    found = find_problem(changed(GOOD, **{field: [record]}))
    assert reason in found
    assert len(found) < 1_000


@pytest.mark.parametrize(
    ("field", "first", "second", "what"),
    [
        ("configs", ENV, changed(ENV, config_id=9), "configurations"),
        ("cron_jobs", JOB, changed(JOB, cron_job_id=9), "cron jobs"),
        ("monitors", LOGS, changed(LOGS, monitor_id=9, address="1A" * 20), "monitors"),
        ("traffic_limits", LIMIT, changed(LIMIT, traffic_limit_id=9), "traffic limits"),
    ],
)
def test_two_records_of_which_a_project_has_one_are_refused(
    field: str, first: object, second: object, what: str
) -> None:
    found = find_problem(changed(GOOD, **{field: [first, second]}))
    assert found == f"it has two {what} of the same kind"


def test_a_finished_monitor_does_not_keep_the_same_one_from_being_imported() -> None:
    both = [changed(TX, monitor_id=9, finished=True), TX]
    assert find_problem(changed(GOOD, monitors=both)) == ""
