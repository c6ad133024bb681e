"""Projects and their configurations over the routes of both generations."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fieldbrook.core.errors import BadRequestError
from fieldbrook.gateway.management.framework.binding import bind_body
from fieldbrook.gateway.management.routes.projects.configurations.database import (
    Database,
    check_database,
    database_value,
)
from fieldbrook.gateway.management.routes.projects.configurations.environment import (
    ENV_LIMIT,
    Environment,
    check_environment,
)
from fieldbrook.gateway.management.routes.projects.configurations.flow import Flow
from fieldbrook.observability.health import NO_BROKER, Condition, NodeHealth
from tests.support.management import V0, Server, User

TABLE = {
    "name": "t_readings",
    "desc": "what devices said",
    "cols": [
        {"name": "f_id", "constrains": {"datatype": "int64", "autoincrement": True}},
        {"name": "f_name", "constrains": {"datatype": "TEXT", "length": 255, "default": ""}},
        {"name": "f_value", "constrains": {"datatype": "FLOAT64", "null": True, "default": 1.5}},
    ],
    "keys": [
        {"name": "primary", "isUnique": True, "columnNames": ["f_id"]},
        {"name": "by_name", "method": "BTREE", "columnNames": ["f_name", "f_created_at"]},
    ],
    "withSoftDeletion": True,
}
DATABASE = {"dialect": "POSTGRES", "schemas": [{"schema": "public", "tables": [TABLE]}]}
FLOW = {
    "source": {"strategies": ["DEFAULT"]},
    "operators": [{"opType": "filter", "wasmFunc": "keep"}, {"opType": "WINDOW", "parallel": 2}],
    "sink": {
        "sinkType": "RMDB",
        "sinkInfo": {"DBInfo": {"endpoint": "e", "DBType": "d", "table": "t", "columns": ["c"]}},
    },
}


# ---------------------------------------------------------------- projects


def test_a_project_is_created_with_everything_later_clients_send(ada: User) -> None:
    body = {
        "name": "NftMinter",
        "public": True,
        "version": "v1",
        "protocol": "mqtt",
        "description": "d",
        "envs": {"env": [["A", "1"], ["B", ""]]},
        "database": DATABASE,
        "flow": FLOW,
    }
    created = ada("POST", "/project", body)
    assert created.status == 201, created.body
    made = created.json
    early = made.pop("project")
    assert early["projectID"] == made["projectID"]
    assert early.keys() == made.keys() - {"envs", "database", "flow"}, "the early clients' object"
    assert (made["name"], made["public"], made["protocol"]) == ("NftMinter", True, "MQTT")
    assert made["envs"] == {"env": [["A", "1"], ["B", ""]]}
    assert made["database"]["schemas"][0]["tables"][0]["name"] == "t_readings"
    assert made["flow"]["operators"][0] == {"opType": "FILTER", "wasmFunc": "keep"}
    assert made["channelState"] is True
    assert ada("GET", "/project/x/NftMinter/data").json == made
    assert ada("GET", "/project/NftMinter").json == made
    assert ada("GET", "/publisher/NftMinter").json["data"][0]["key"] == "anonymous"


def test_the_seed_eras_schema_is_the_database_of_a_new_project(ada: User) -> None:
    body = {"name": "p", "envs": [["A", "1"]], "schema": {"tables": [TABLE]}}
    assert ada("POST", "/project", body).status == 201
    stored = ada("GET", "/project_config/x/p/PROJECT_DATABASE").json
    assert [s["schema"] for s in stored["schemas"]] == ["public"]
    assert stored["schemas"][0]["tables"][0]["name"] == "t_readings"
    assert ada("GET", "/project_config/p/PROJECT_SCHEMA").json["tables"][0]["withSoftDeletion"]


def test_a_topic_nobody_listens_to_shows_in_the_channels_state(ada: User, server: Server) -> None:
    server.health = NodeHealth((Condition("mqtt:0", NO_BROKER, "connection refused", 1),))
    assert ada("POST", "/project", {"name": "p"}).json["channelState"] is False


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({"name": "p", "protocol": "CARRIER_PIGEON"}, ["protocol"]),
        ({"name": "p", "public": "yes"}, ["public"]),
        ({"name": "p", "version": "v" * 257}, ["version"]),
        ({"name": "p", "description": "d" * 4097}, ["description"]),
        ({"name": "p", "envs": [["", "v"]]}, ["envs[0][0]"]),
        ({"name": "p", "envs": {"env": [["A", "1"], ["A", "2"]]}}, ["envs.env[1][0]"]),
        ({"name": "p", "envs": {"env": [["A", 1]]}}, ["envs.env[0][1]"]),
        ({"name": "p", "envs": {"env": 5}}, ["envs.env"]),
        ({"name": "p", "envs": 5}, ["envs"]),
        ({"name": "p", "envs": [["A", 1]]}, ["envs[0][1]"]),
        ({"name": "p", "database": 5}, ["database"]),
        ({"name": "p", "database": {"schemas": [{"schema": "1"}]}}, ["database.schemas[0].schema"]),
        ({"name": "p", "schema": {"tables": [{}]}}, ["schema.tables[0].name"]),
        ({"name": "p", "flow": {"sink": {"sinkType": "RMDB"}}}, ["flow.source"]),
        ({"name": "", "envs": []}, ["name"]),
        ({"name": "x", "envs": [["", ""]]}, ["name", "envs[0][0]"]),
    ],
)
def test_the_answer_to_an_invalid_project_names_the_field(
    ada: User, body: Any, fields: list[str]
) -> None:
    assert list(ada("POST", "/project", body).fields) == fields
    assert ada("GET", "/project").json["total"] == 0


def test_nulls_and_unknown_keys_are_as_if_they_were_absent(ada: User) -> None:
    body = {"name": "p", "envs": None, "database": None, "flow": None, "shade": {"of": "blue"}}
    assert ada("POST", "/project", body).status == 201
    assert ada("POST", "/project", {"name": "q", "envs": {"env": None}}).status == 201


def test_a_project_is_named_with_its_owners_prefix_or_without(ada: User, bob: User) -> None:
    created = ada.project("NftMinter")
    account_id = ada.account.account_id
    applet = ada.applet("NftMinter")
    address = "0x" + "aB" * 20
    for name in (f"aid_{account_id}_NftMinter", f"eth_{address}_NftMinter"):
        assert ada("GET", f"/project/{name}").json["projectID"] == created["projectID"]
        assert ada("GET", f"/project/x/{name}/data").status == 200
        assert ada("GET", f"/applet/{name}/{applet['appletID']}").status == 200
        assert ada("GET", f"/applet_log/{name}").status == 200
        assert ada("GET", f"/project/datalist?name={name}").json["total"] == 1
        assert ada("GET", f"/project?names={name}").json["total"] == 1
        assert ada("GET", f"/project?name={name}").json["total"] == 1
        assert bob("GET", f"/project/{name}").key == "ProjectNotFound"
    for name in ("aid_NftMinter", "aid_x_NftMinter", "eth_0x5_NftMinter", "aid_5_"):
        assert ada("GET", f"/project/{name}").key == "ProjectNotFound"
    named = f"/project/x/aid_{account_id}_NftMinter"
    assert ada("DELETE", named).status == 204
    assert ada("DELETE", named).key == "ProjectNotFound"


def test_lists_have_the_latest_change_first(ada: User) -> None:
    for name in ("one", "two", "three"):
        ada.project(name)
    assert [p["name"] for p in ada("GET", "/project/datalist").json["data"]] == [
        "three",
        "two",
        "one",
    ]
    ada("POST", "/publisher/x/one/anonymous")  # changes the project
    for path, key in (
        ("/project/datalist", "name"),
        ("/project", "projectName"),
        ("/project/detail_list", "projectName"),
    ):
        rows = ada("GET", path).json
        assert ([row[key] for row in rows["data"]], rows["total"]) == (["one", "three", "two"], 3)
        paged = ada("GET", f"{path}?size=1&offset=1").json
        assert ([row[key] for row in paged["data"]], paged["total"]) == (["three"], 3)
        assert len(ada("GET", f"{path}?size=-1").json["data"]) == 3
        assert len(ada("GET", f"{path}?size={10**15}").json["data"]) == 3
        assert list(ada("GET", f"{path}?size=-2").fields) == ["size"]
        assert list(ada("GET", f"{path}?offset=x").fields) == ["offset"]


def test_the_later_lists_are_filtered(ada: User) -> None:
    ids = [
        ada("POST", "/project", {"name": name, "version": version}).json["projectID"]
        for name, version in (("a", "1"), ("b", "2"), ("ab", "2"))
    ]

    def names(query: str) -> set[str]:
        return {row["name"] for row in ada("GET", f"/project/datalist?{query}").json["data"]}

    assert names(f"projectID={ids[0]}&projectID={ids[1]}") == {"a", "b"}
    assert names("name=a") == {"a"}
    assert names("version=2") == {"b", "ab"}
    assert names(f"version=2&projectID={ids[0]}") == set()
    assert list(ada("GET", "/project/datalist?projectID=x").fields) == ["projectID[0]"]
    several = f"projectID={ids[0]}&projectID=x&projectID=y"
    refused = ada("GET", f"/project/datalist?{several}").fields
    assert list(refused) == ["projectID[1]", "projectID[2]"]
    details = ada("GET", "/project/detail_list?name=b").json
    assert details["data"][0]["applets"] == []


@pytest.mark.parametrize("path", ["/project/detail_list", "/project"])
def test_the_applets_of_a_listed_project_have_the_names_of_both_generations(
    ada: User, path: str
) -> None:
    ada.project("p")
    made = ada.applet("p")
    instance = made["instance"]
    (project,) = ada("GET", path).json["data"]
    (row,) = project["applets"]
    early = {
        "appletID": made["appletID"],
        "appletName": made["name"],
        "instanceID": instance["instanceID"],
        "instanceState": "STARTED",
        "instanceStateVM": "STARTED",
    }
    later = {
        **{key: made[key] for key in ("projectID", "appletID", "resourceID", "name", "wasmName")},
        **{key: made[key] for key in ("createdAt", "updatedAt")},
        "path": made["resource"]["path"],
        "md5": made["resource"]["md5"],
        "instanceID": instance["instanceID"],
        "state": "STARTED",
    }
    assert {key: row.get(key) for key in early} == early
    assert {key: row.get(key) for key in later} == later
    ada("DELETE", f"/deploy/data/{instance['instanceID']}")
    (project,) = ada("GET", path).json["data"]
    (row,) = project["applets"]
    assert not {"instanceID", "instanceState", "state"} & set(row)
    assert row["name"] == made["name"]


def test_a_project_that_is_not_public_says_so(ada: User) -> None:
    made = ada("POST", "/project", {"name": "p"}).json
    assert made["public"] is False
    assert ada("GET", "/project/p").json["public"] is False
    assert ada("GET", "/project/datalist").json["data"][0]["public"] is False
    ada("POST", "/publisher/x/p/anonymous")
    assert ada("GET", "/project/x/p/data").json["public"] is True


def test_the_description_of_a_project_is_changed_by_its_owner(ada: User, bob: User) -> None:
    ada("POST", "/project", {"name": "p", "description": "old", "envs": [["A", "1"]]})
    before = ada("GET", "/project/x/p/data").json
    changed = ada("PUT", "/project/x/p", {"description": "new"})
    assert (changed.status, changed.headers["X-Meta"]) == (
        200,
        "srv-applet-mgr@0.0.9/UpdateProject",
    )
    assert changed.json == ada("GET", "/project/x/p/data").json
    same = {**changed.json, "description": "old", "updatedAt": before["updatedAt"]}
    assert same == before
    assert "description" not in ada("PUT", "/project/x/p", {}).json
    assert list(ada("PUT", "/project/x/p", {"description": "x" * 4097}).fields) == ["description"]
    assert bob("PUT", "/project/x/p", {"description": "mine"}).key == "ProjectNotFound"


def test_lists_are_the_callers_own_and_an_administrators_has_everybodys(
    ada: User, bob: User, root: User
) -> None:
    ada.project("hers")
    bob.project("his")
    root.project("roots")
    assert [p["name"] for p in ada("GET", "/project/datalist").json["data"]] == ["hers"]
    assert ada("GET", "/project/detail_list").json["total"] == 1
    assert ada("GET", "/project/datalist?name=his").json == {"data": [], "total": 0}
    assert root("GET", "/project/datalist").json["total"] == 3
    assert root("GET", "/project/detail_list").json["total"] == 1
    everybodys = root("GET", "/project/detail_list?all=true&deadLetters=true").json["data"]
    assert [(row["projectName"], row["owner"], row["deadLetters"]) for row in everybodys] == [
        *(("roots", "root", 0), ("his", "bob", 0), ("hers", "ada", 0))
    ]
    assert ada("GET", "/project/detail_list?all=true").status == 401
    assert bob("GET", "/project/x/hers/data").key == "ProjectNotFound"
    assert bob("DELETE", "/project/x/hers").key == "ProjectNotFound"
    assert root("GET", "/project/x/hers/data").status == 200


# ---------------------------------------------------------------- configurations


def test_a_projects_variables_are_replaced_as_a_whole(ada: User) -> None:
    ada.project("p")
    path = "/project_config/x/p/PROJECT_ENV"
    assert ada("GET", path).json == {"env": []}
    first = ada("POST", path, {"env": [["A", "1"], ["B", "2"]]})
    assert (first.status, first.json["type"]) == (201, "PROJECT_ENV")
    project = ada("GET", "/project/p").json
    assert first.json["relID"] == project["projectID"]
    assert project["envs"] == {"env": [["A", "1"], ["B", "2"]]}
    second = ada("POST", path, {"ENV": [["C", "3"]], "unknown": 1})
    assert second.json["configID"] == first.json["configID"]
    assert ada("GET", path).json == {"env": [["C", "3"]]}
    assert ada("GET", "/project_config/p/PROJECT_ENV").json == {"env": [["C", "3"]]}
    seed = ada("POST", "/project_config/p/PROJECT_ENV", {"env": [["D", "4"]]})
    assert (seed.status, seed.body) == (204, b"")
    assert ada("GET", path).json == {"env": [["D", "4"]]}


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, ["env"]),
        ({"env": []}, ["env"]),
        ({"env": None}, ["env"]),
        ({"env": {"A": "1"}}, ["env"]),
        ({"env": [["A"]]}, ["env[0]"]),
        ({"env": [["A", 1]]}, ["env[0][1]"]),
        ({"env": [["A", None], [2, "x"]]}, ["env[0][1]", "env[1][0]"]),
        ({"env": [["A", "1"], ["", "2"], ["A", "3"]]}, ["env[1][0]", "env[2][0]"]),
        ({"env": [["A" * 257, "1"], ["B", "x" * 65_537]]}, ["env[0][0]", "env[1][1]"]),
        ({"env": [[f"k{n}", ""] for n in range(ENV_LIMIT + 1)]}, ["env"]),
    ],
)
def test_the_answer_to_invalid_variables_names_the_field(
    ada: User, body: Any, fields: list[str]
) -> None:
    ada.project("p")
    for path in ("/project_config/x/p/PROJECT_ENV", "/project_config/p/PROJECT_ENV"):
        assert list(ada("POST", path, body).fields) == fields
    assert ada("GET", "/project_config/p/PROJECT_ENV").json == {"env": []}


def test_tables_are_stored_in_the_interfaces_own_form(ada: User, server: Server) -> None:
    project = ada.project("p")
    path = "/project_config/x/p/PROJECT_DATABASE"
    assert ada("GET", path).json["schemas"] == [{"schema": "public", "tables": []}]
    assert ada("POST", path, DATABASE).json["type"] == "PROJECT_DATABASE"
    (schema,) = ada("GET", path).json["schemas"]
    (table,) = schema["tables"]
    assert [column["constrains"]["datatype"] for column in table["cols"]] == [
        "INT64",
        "TEXT",
        "FLOAT64",
    ]
    assert table["cols"][2]["constrains"]["default"] == 1.5
    assert table["keys"][0] == {"columnNames": ["f_id"], "name": "primary", "isUnique": True}
    stored = server.writer.reader().config(int(project["projectID"]), "PROJECT_DATABASE")
    assert stored is not None
    assert json.loads(stored.value) == ada("GET", path).json
    seed = ada("POST", "/project_config/p/PROJECT_SCHEMA", {"tables": [TABLE]})
    assert (seed.status, seed.body) == (204, b"")
    assert ada("GET", "/project_config/p/PROJECT_SCHEMA").json == {"tables": [table]}
    timed = {**table, "withTimes": True}
    assert ada("GET", path).json["schemas"] == [{"schema": "public", "tables": [timed]}]
    assert ada("POST", path, ada("GET", path).json).status == 201
    assert ada("GET", path).json["schemas"] == [{"schema": "public", "tables": [timed]}]


def _with(**changes: Any) -> dict[str, Any]:
    return {"schemas": [{"tables": [{**TABLE, **changes}]}]}


def _column(**constrains: Any) -> list[Any]:
    return [{"name": "c", "constrains": constrains}]


@pytest.mark.parametrize(
    ("body", "field", "reason"),
    [
        ({"dialect": "ORACLE"}, "dialect", "POSTGRES"),
        ({"schemas": [{"schema": "a b"}]}, "schemas[0].schema", "letters"),
        (_with(name=""), "schemas[0].tables[0].name", "missing required field"),
        (_with(name="1st"), "schemas[0].tables[0].name", "start with no digit"),
        (_with(name="t" * 64), "schemas[0].tables[0].name", "1 to 63"),
        ({"tables": [TABLE, TABLE]}, "tables[1].name", "twice"),
        (_with(cols=[{"name": "c"}]), "schemas[0].tables[0].cols[0].constrains", "missing"),
        (
            _with(cols=_column(datatype="JSONB")),
            "schemas[0].tables[0].cols[0].constrains.datatype",
            "expected one of INT, INT8",
        ),
        (
            _with(cols=_column(datatype="TEXT", length=-1)),
            "schemas[0].tables[0].cols[0].constrains.length",
            ">= 0",
        ),
        (
            _with(cols=_column(datatype="TEXT", autoincrement=True), keys=[]),
            "schemas[0].tables[0].cols[0].constrains.autoincrement",
            "only an integer",
        ),
        (
            _with(cols=_column(datatype="INT") * 2, keys=[]),
            "schemas[0].tables[0].cols[1].name",
            "twice",
        ),
        (
            _with(keys=[{"columnNames": ["f_other"]}]),
            "schemas[0].tables[0].keys[0].columnNames[0]",
            "no column f_other",
        ),
        (
            _with(keys=[{"name": "k"}]),
            "schemas[0].tables[0].keys[0].columnNames",
            "missing required field",
        ),
        (
            _with(keys=[{"columnNames": ["f_name"], "expr": "lower(f_name)"}]),
            "schemas",
            "expressions are not supported",
        ),
        (
            _with(cols=_column(datatype="INT", default="many"), keys=[]),
            "schemas",
            "is not a default for its datatype",
        ),
        (_with(name="sqlite_stat1"), "schemas", "reserved"),
        (_with(cols="f_id"), "schemas[0].tables[0].cols", "expected an array"),
        ({"schemas": [5]}, "schemas[0]", "expected an object"),
        ([], "body", "expected an object"),
    ],
)
def test_the_answer_to_invalid_tables_names_the_field_and_the_reason(
    ada: User, body: Any, field: str, reason: str
) -> None:
    ada.project("p")
    refused = ada("POST", "/project_config/x/p/PROJECT_DATABASE", body).fields
    assert list(refused) == [field]
    assert reason in refused[field]
    assert ada("GET", "/project_config/x/p/PROJECT_DATABASE").json["schemas"][0]["tables"] == []


def test_more_tables_columns_or_keys_than_a_project_may_have_are_refused() -> None:
    columns = [{"name": f"c{n}", "constrains": {"datatype": "INT"}} for n in range(201)]
    keys = [{"columnNames": ["c0"]}] * 65
    wide = {"name": "t", "cols": columns, "keys": keys}
    bodies: tuple[tuple[dict[str, Any], list[str]], ...] = (
        ({"tables": [wide]}, ["database.tables[0].cols", "database.tables[0].keys"]),
        ({"tables": [wide] * 25}, ["database.schemas"]),
        ({"tables": [{"name": f"t{n}"} for n in range(201)]}, ["database.schemas"]),
        ({"schemas": [{"schema": f"s{n}"} for n in range(201)]}, ["database.schemas"]),
    )
    for body, fields in bodies:
        database = bind_body(json.dumps(body).encode(), Database)
        assert [error.field for error in check_database(database, "database")] == fields


def test_two_columns_cannot_both_count_up() -> None:
    one = {"datatype": "INT", "autoincrement": True}
    cols = [{"name": "a", "constrains": one}, {"name": "b", "constrains": one}]
    database = bind_body(json.dumps({"tables": [{"name": "t", "cols": cols}]}).encode(), Database)
    (error,) = check_database(database)
    assert error.field == "tables[0].cols[1].constrains.autoincrement"


def test_the_stored_tables_can_be_stated_again() -> None:
    stored = database_value(bind_body(json.dumps(DATABASE).encode(), Database))
    assert database_value(bind_body(stored, Database)) == stored


def test_variables_within_their_limits_have_nothing_wrong() -> None:
    assert check_environment([(f"k{n}", "v") for n in range(ENV_LIMIT)], "env") == []
    assert bind_body(b'{"env":[["a","b"]]}', Environment).env == [("a", "b")]


def test_a_new_project_has_an_empty_flow_and_keeps_another(ada: User) -> None:
    ada.project("p")
    path = "/project_config/x/p/PROJECT_FLOW"
    assert ada("GET", path).status == 200
    assert ada("GET", path).json == {
        "source": {"strategies": None},
        "operators": None,
        "sink": {"sinkType": "", "sinkInfo": {"DBInfo": {}, "chainBlock": {}}},
    }
    assert ada("POST", path, FLOW).json["type"] == "PROJECT_FLOW"
    kept = ada("GET", path).json
    assert kept["source"] == FLOW["source"]
    assert kept["operators"] == [
        {"opType": "FILTER", "wasmFunc": "keep"},
        {"opType": "WINDOW", "parallel": 2},
    ]
    assert kept["sink"]["sinkInfo"]["DBInfo"]["columns"] == ["c"]
    assert ada("GET", "/project/p").json["flow"] == kept


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"source": None}, "source"),
        ({"source": {"strategies": []}}, "source.strategies"),
        ({"operators": [{"opType": "JUGGLE"}]}, "operators[0].opType"),
        ({"operators": [{"opType": "MAP", "parallel": -1}]}, "operators[0].parallel"),
        ({"sink": {}}, "sink.sinkType"),
        ({"sink": {"sinkType": "VOID"}}, "sink.sinkType"),
        ({"sink": {"sinkType": "RMDB", "sinkInfo": 5}}, "sink.sinkInfo"),
    ],
)
def test_the_answer_to_an_invalid_flow_names_the_field(change: Any, field: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        bind_body(json.dumps({**FLOW, **change}).encode(), Flow)
    assert [error.field for error in refused.value.fields() or ()] == [field]


def test_configurations_of_somebody_elses_project_or_none_are_not_there(
    ada: User, bob: User, root: User
) -> None:
    ada.project("p")
    bodies = {
        "x/p/PROJECT_ENV": {"env": [["A", "1"]]},
        "p/PROJECT_ENV": {"env": [["A", "1"]]},
        "x/p/PROJECT_DATABASE": DATABASE,
        "p/PROJECT_SCHEMA": {"tables": [TABLE]},
        "x/p/PROJECT_FLOW": FLOW,
    }
    for path, body in bodies.items():
        assert bob("POST", f"/project_config/{path}", body).key == "ProjectNotFound"
        assert bob("GET", f"/project_config/{path}").key == "ConfigNotFound"
        assert root("POST", f"/project_config/{path}", body).status in (201, 204)
        assert ada("GET", f"/project_config/{path}").status == 200
    ada("DELETE", "/project/p")
    for path, body in bodies.items():
        assert ada("POST", f"/project_config/{path}", body).key == "ProjectNotFound"
        assert (ada("GET", f"/project_config/{path}").key) == "ConfigNotFound"
    ada.project("p")
    assert ada("GET", "/project_config/p/PROJECT_ENV").json == {"env": []}
    assert ada("GET", "/project_config/x/p/PROJECT_FLOW").json["operators"] is None


def test_an_unknown_kind_of_configuration_is_an_unknown_path(server: Server, ada: User) -> None:
    ada.project("p")
    headers = {"Authorization": ada.token}
    assert server.send("GET", f"{V0}/project_config/x/p/PROJECT_MOOD", None, headers).status == 404
