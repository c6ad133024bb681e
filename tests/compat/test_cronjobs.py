"""Cron jobs over the routes of both generations."""

from __future__ import annotations

from typing import Any

import pytest

from fieldbrook.core.clock import now_ms, rfc3339
from tests.support.management import User

HUGE = "9" * 40


@pytest.fixture
def path(ada: User) -> str:
    return f"/cronjob/{ada.project()['projectID']}"


def test_a_cron_job_is_created_listed_found_and_removed(ada: User, path: str) -> None:
    made = ada("POST", path, {"cronExpressions": " */3  * * * *", "eventType": "default", "x": 1})
    assert made.status == 201
    assert made.headers["X-Meta"] == "srv-applet-mgr@0.0.9/CreateCronJob"
    row = made.json
    assert (row["cronExpressions"], row["eventType"]) == ("*/3 * * * *", "default")
    assert row["projectID"] == path.rpartition("/")[2]
    assert rfc3339(now_ms()) < row["nextAt"] <= rfc3339(now_ms() + 181_000)
    assert row["next"][0] == row["nextAt"]
    assert len(row["next"]) == 5
    assert row["next"] == sorted(set(row["next"]))
    assert ada("GET", path).json == {"data": [row], "total": 1}
    one = f"/cronjob/data/{row['cronJobID']}"
    assert ada("GET", one).json == row
    gone = ada("DELETE", one)
    assert (gone.status, gone.body) == (204, b"")
    assert ada("GET", one).key == ada("DELETE", one).key == "CronJobNotFound"


def test_the_seed_era_removes_a_cron_job_through_its_project(ada: User, path: str) -> None:
    other = ada.project("other")["projectID"]
    job_id = ada("POST", path, {"cronExpressions": "@hourly"}).json["cronJobID"]
    assert ada("DELETE", f"/cronjob/{other}/{job_id}").key == "CronJobNotFound"
    assert ada("DELETE", f"/cronjob/5/{job_id}").key == "ProjectNotFound"
    assert ada("DELETE", f"{path}/{job_id}").status == 204
    assert ada("GET", path).json == {"data": [], "total": 0}


def test_the_next_times_of_an_expression_are_shown_before_a_job_is_created(
    ada: User, bob: User
) -> None:
    project_id = ada.project()["projectID"]
    asked = ada("GET", f"/cronjob/{project_id}/next?cronExpressions=0%20%209+1+1+*")
    assert asked.status == 200
    assert asked.json["cronExpressions"] == "0 9 1 1 *"
    years = [int(time[:4]) for time in asked.json["next"]]
    assert years == list(range(years[0], years[0] + 5))
    assert {time[4:] for time in asked.json["next"]} == {"-01-01T09:00:00.000Z"}
    every = ada("GET", f"/cronjob/{project_id}/next?cronExpressions=@every+10m").json["next"]
    assert len(every) == 5
    assert (
        ada("GET", f"/cronjob/{project_id}/next?cronExpressions=*+*").key
        == "InvalidCronExpressions"
    )
    assert list(ada("GET", f"/cronjob/{project_id}/next").fields) == ["cronExpressions"]
    assert bob("GET", f"/cronjob/{project_id}/next?cronExpressions=@daily").key == "ProjectNotFound"
    assert ada("GET", f"/cronjob/{project_id}").json["total"] == 0


def test_an_empty_event_type_is_the_default_one(ada: User, path: str) -> None:
    for sent in ({}, {"eventType": ""}, {"eventType": None}):
        made = ada("POST", path, {"cronExpressions": "@daily", **sent}).json
        assert made["eventType"] == "DEFAULT"
        ada("DELETE", f"/cronjob/data/{made['cronJobID']}")


def test_cron_jobs_are_listed_by_filters_and_in_pages(ada: User, path: str) -> None:
    ids = [
        ada("POST", path, {"cronExpressions": "@daily", "eventType": t}).json["cronJobID"]
        for t in "ABC"
    ]

    def listed(query: str) -> list[str]:
        return [row["eventType"] for row in ada("GET", f"{path}?{query}").json["data"]]

    assert listed("") == ["C", "B", "A"]
    assert listed("size=1&offset=1") == ["B"]
    assert listed(f"size={HUGE}") == ["C", "B", "A"]
    assert listed("eventType=A&eventType=B") == ["B", "A"]
    assert listed(f"cronJobID={ids[0]}&cronJobID={ids[2]}") == ["C", "A"]
    assert list(ada("GET", f"{path}?size=-2&offset=x").fields) == ["size", "offset"]


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, ["cronExpressions"]),
        ({"cronExpressions": ""}, ["cronExpressions"]),
        ({"cronExpressions": 5}, ["cronExpressions"]),
        ({"cronExpressions": "* " * 200}, ["cronExpressions"]),
        ({"cronExpressions": "* * * * *", "eventType": ["A"]}, ["eventType"]),
        ({"cronExpressions": "* * * * *", "eventType": "x" * 257}, ["eventType"]),
    ],
)
def test_a_cron_job_of_the_wrong_form_is_refused(
    ada: User, path: str, body: dict[str, Any], fields: list[str]
) -> None:
    assert list(ada("POST", path, body).fields) == fields


def test_a_job_may_name_the_time_zone_of_its_hours(ada: User, path: str) -> None:
    made = ada("POST", path, {"cronExpressions": "CRON_TZ=Asia/Tokyo 0 0 1 1 *"})
    assert made.status == 201
    assert made.json["cronExpressions"] == "CRON_TZ=Asia/Tokyo 0 0 1 1 *"
    assert made.json["nextAt"].endswith("-12-31T15:00:00.000Z")
    unknown = ada("POST", path, {"cronExpressions": "TZ=Asia/Tokio 0 0 1 1 *"})
    assert (unknown.status, unknown.key) == (400, "InvalidCronExpressions")
    assert "the time zone 'Asia/Tokio' must be UTC" in unknown.json["desc"]


@pytest.mark.parametrize("expression", ["*/3 * * * * *", "* * * *", "61 * * * *", "x", "@every 1"])
def test_an_invalid_expression_is_refused(ada: User, path: str, expression: str) -> None:
    refused = ada("POST", path, {"cronExpressions": expression})
    assert (refused.status, refused.key) == (400, "InvalidCronExpressions")
    assert refused.json["code"] == 400_999_005


def test_the_same_job_twice_and_one_too_many_are_refused(ada: User, path: str) -> None:
    job = {"cronExpressions": "* * * * *", "eventType": "A"}
    assert ada("POST", path, job).status == 201
    same = ada("POST", path, {**job, "cronExpressions": "*  *  * * *"})
    assert (same.status, same.key) == (409, "CronJobConflict")
    assert ada("POST", path, {**job, "eventType": "B"}).status == 201
    assert ada("POST", path, {**job, "eventType": "C"}).status == 201
    full = ada("POST", path, {**job, "eventType": "D"})
    assert (full.status, full.key) == (403, "CronJobLimit")
    other = ada.project("other")["projectID"]
    assert ada("POST", f"/cronjob/{other}", job).status == 201, "the limit is each project's own"


def test_somebody_elses_cron_jobs_do_not_exist(ada: User, bob: User, root: User, path: str) -> None:
    job = {"cronExpressions": "* * * * *"}
    job_id = ada("POST", path, job).json["cronJobID"]
    assert bob("POST", path, job).key == "ProjectNotFound"
    assert bob("GET", path).key == "ProjectNotFound"
    assert bob("DELETE", f"{path}/{job_id}").key == "ProjectNotFound"
    for method in ("GET", "DELETE"):
        assert bob(method, f"/cronjob/data/{job_id}").key == "CronJobNotFound"
    own = bob.project("bobs")["projectID"]
    assert bob("DELETE", f"/cronjob/{own}/{job_id}").key == "CronJobNotFound"
    assert root("GET", f"/cronjob/data/{job_id}").status == 200


def test_a_project_that_is_gone_or_was_never_there_has_no_cron_jobs(ada: User, path: str) -> None:
    job = {"cronExpressions": "* * * * *"}
    job_id = ada("POST", path, job).json["cronJobID"]
    ada("DELETE", "/project/NftMinter")
    assert ada("GET", f"/cronjob/data/{job_id}").key == "CronJobNotFound"
    assert ada("POST", path, job).key == "ProjectNotFound"
    for text in ("abc", HUGE, "-1"):
        assert list(ada("POST", f"/cronjob/{text}", job).fields) == ["projectID"]
        assert list(ada("DELETE", f"/cronjob/data/{text}").fields) == ["cronJobID"]
