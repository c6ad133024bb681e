"""Configurations of a project: its variables, its tables, its flow.

Each configuration is checked here and stored as JSON in the interface's own form. A running
project reads new variables with the next batch of events.

Source: interface document, 5.6. The seed era's PROJECT_SCHEMA is the schema `public` of
PROJECT_DATABASE. Its tables always have the columns for the times of a row; other tables have
them with `withTimes`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from fieldbrook.core.errors import (
    BadRequestError,
    ConfigNotFoundError,
    DatabaseConfigError,
    FieldError,
    ProjectNotFoundError,
)
from fieldbrook.core.model import (
    CHAIN_CODE,
    PROJECT_CHAINS,
    PROJECT_DATABASE,
    PROJECT_ENV,
    PROJECT_FLOW,
    PROJECT_SPENDING,
    Config,
)
from fieldbrook.gateway.management.framework.answers import Timed, as_stored, times
from fieldbrook.gateway.management.framework.binding import Text, json_key
from fieldbrook.gateway.management.framework.ownership import own_project
from fieldbrook.gateway.management.framework.route import Call, Route
from fieldbrook.storage.sql.schema import TIMES, parse_schema

ENV_LIMIT = 1_000
_KEY_LIMIT, _VALUE_LIMIT = 256, 64 << 10
_TABLES_LIMIT, _COLUMNS_LIMIT, _KEYS_LIMIT = 200, 200, 64
_PUBLIC = "public"
_TIMES = "withTimes"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}\Z")
_INTEGERS = frozenset({"INT", "INT8", "INT16", "INT32", "INT64"}) | frozenset(
    {"UINT", "UINT8", "UINT16", "UINT32", "UINT64"}
)

Pairs = list[tuple[str, str]]
Datatype = Literal[
    "INT",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "UINT",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "FLOAT32",
    "FLOAT64",
    "TEXT",
    "BOOL",
    "TIMESTAMP",
    "DECIMAL",
    "NUMERIC",
]
Count = Annotated[int, msgspec.Meta(ge=0)]

# ---------------------------------------------------------------- variables


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """Variables of the project's applets, as pairs of key and value; they replace all old ones."""

    env: Pairs


def check_environment(pairs: Sequence[tuple[str, str]], at: str) -> list[FieldError]:
    """Check variables and return the errors; `at` is their place in the request."""
    if len(pairs) > ENV_LIMIT:
        return [FieldError(at, f"more than {ENV_LIMIT} variables", "body")]
    errors = []
    seen: set[str] = set()
    for n, (key, value) in enumerate(pairs):
        if not key:
            errors.append(FieldError(f"{at}[{n}][0]", "the key is empty", "body"))
        elif len(key) > _KEY_LIMIT:
            errors.append(FieldError(f"{at}[{n}][0]", f"longer than {_KEY_LIMIT}", "body"))
        elif key in seen:
            errors.append(FieldError(f"{at}[{n}][0]", f"{key} occurs twice", "body"))
        if len(value) > _VALUE_LIMIT:
            errors.append(FieldError(f"{at}[{n}][1]", f"longer than {_VALUE_LIMIT}", "body"))
        seen.add(key)
    return errors


# ---------------------------------------------------------------- tables


class Constrains(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Type and constraints of a column. `default` is the plain value, without SQL quotes."""

    datatype: Datatype
    length: Count = 0
    decimal: Count = 0
    default: str | int | float | bool | None = None
    null: bool = False
    autoincrement: bool = False
    desc: str = ""


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """A column."""

    name: str
    constrains: Constrains


class Key(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An index; it is the primary key if it is unique and named `primary` or `...pkey`."""

    columns: list[str] = msgspec.field(name="columnNames")
    name: str = ""
    method: str = ""
    unique: bool = msgspec.field(default=False, name="isUnique")
    expr: str = ""


class Table(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A table. With `withTimes` it has `f_created_at` and `f_updated_at` besides its columns."""

    name: str
    desc: str = ""
    cols: list[Column] = msgspec.field(default_factory=list)
    keys: list[Key] = msgspec.field(default_factory=list)
    soft_deletion: bool = msgspec.field(default=False, name="withSoftDeletion")
    primary_key: bool = msgspec.field(default=False, name="withPrimaryKey")
    times: bool = msgspec.field(default=False, name=_TIMES)


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """A named group of tables."""

    schema: str = _PUBLIC
    tables: list[Table] = msgspec.field(default_factory=list)


class Database(msgspec.Struct, frozen=True, kw_only=True):
    """A project's tables. `tables` is the early form: tables of the schema `public`, each with
    the columns for the times of a row."""

    dialect: Literal["POSTGRES"] = "POSTGRES"
    schemas: list[Schema] = msgspec.field(default_factory=list)
    tables: list[Table] = msgspec.field(default_factory=list)


def database_value(database: Database) -> bytes:
    """The stored form: every table in a schema."""
    early = [msgspec.structs.replace(table, times=True) for table in database.tables]
    more = [Schema(tables=early)] if early else []
    schemas = [*database.schemas, *more]
    stored = {"dialect": database.dialect, "schemas": schemas or [Schema()]}
    return msgspec.json.encode(stored)


def check_database(database: Database, at: str = "") -> list[FieldError]:
    """Check tables and return the errors; `at` is their place in the request."""
    prefix = f"{at}." if at else ""
    errors: list[FieldError] = []
    seen: set[str] = set()
    for n, schema in enumerate(database.schemas):
        where = f"{prefix}schemas[{n}]"
        errors += _check_name(schema.schema, f"{where}.schema")
        errors += _check_tables(schema, f"{where}.tables", seen)
    errors += _check_tables(Schema(tables=database.tables), f"{prefix}tables", seen)
    if len(seen) > _TABLES_LIMIT:
        errors.append(FieldError(f"{prefix}schemas", f"more than {_TABLES_LIMIT} tables", "body"))
    return errors or _check_as_sql(database, f"{prefix}schemas")


def _check_as_sql(database: Database, at: str) -> list[FieldError]:
    """The errors of tables that the interface allows but the project's database does not."""
    try:
        parse_schema(msgspec.json.decode(database_value(database)))
    except DatabaseConfigError as error:
        return [FieldError(at, str(error.details["reason"]), "body")]
    return []


def _check_tables(schema: Schema, at: str, seen: set[str]) -> Iterator[FieldError]:
    for n, table in enumerate(schema.tables):
        where = f"{at}[{n}]"
        yield from _check_name(table.name, f"{where}.name")
        full = f"{schema.schema}.{table.name}".lower()
        if full in seen:
            yield FieldError(f"{where}.name", f"table {table.name} occurs twice", "body")
        seen.add(full)
        yield from _check_columns(table, f"{where}.cols")
        yield from _check_keys(table, f"{where}.keys")


def _check_columns(table: Table, at: str) -> Iterator[FieldError]:
    if len(table.cols) > _COLUMNS_LIMIT:
        yield FieldError(at, f"more than {_COLUMNS_LIMIT} columns", "body")
    yield from _twice((column.name for column in table.cols), at, "column")
    counting = []
    for n, column in enumerate(table.cols):
        yield from _check_name(column.name, f"{at}[{n}].name")
        if column.constrains.autoincrement:
            counting.append(n)
            if column.constrains.datatype not in _INTEGERS:
                where = f"{at}[{n}].constrains.autoincrement"
                yield FieldError(where, "only an integer column can have autoincrement", "body")
    for n in counting[1:]:
        where = f"{at}[{n}].constrains.autoincrement"
        yield FieldError(where, "another column has autoincrement already", "body")


def _check_keys(table: Table, at: str) -> Iterator[FieldError]:
    if len(table.keys) > _KEYS_LIMIT:
        yield FieldError(at, f"more than {_KEYS_LIMIT} keys", "body")
    known = {column.name for column in table.cols} | set(TIMES)
    known |= {"f_id"} if table.primary_key else set()
    known |= {"f_deleted_at"} if table.soft_deletion else set()
    for n, key in enumerate(table.keys):
        for i, name in enumerate(key.columns):
            if name not in known:
                where = f"{at}[{n}].columnNames[{i}]"
                yield FieldError(where, f"table {table.name} has no column {name}", "body")


def _check_name(name: str, at: str) -> list[FieldError]:
    if _NAME.match(name):
        return []
    reason = "must be 1 to 63 letters, digits or underscores and start with no digit"
    return [FieldError(at, reason, "body")]


def _twice(names: Iterable[str], at: str, what: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for n, name in enumerate(names):
        if name.lower() in seen:
            yield FieldError(f"{at}[{n}].name", f"{what} {name} occurs twice", "body")
        seen.add(name.lower())


# ---------------------------------------------------------------- flow


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The source of a flow: events of these types."""

    strategies: list[Text]


class Operator(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step of a flow."""

    op_type: Literal["FILTER", "MAP", "FLATMAP", "WINDOW", "GROUP", "REDUCE"] = msgspec.field(
        name="opType"
    )
    wasm_func: Text = msgspec.field(default="", name="wasmFunc")
    parallel: Count = 0


class TableSink(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A table as the end of a flow."""

    endpoint: str = ""
    db_type: str = msgspec.field(default="", name="DBType")
    table: str = ""
    columns: list[str] = msgspec.field(default_factory=list)


class ChainSink(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A chain as the end of a flow."""

    chain_id: int = msgspec.field(default=0, name="chainID")


class SinkInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The table or the chain of a sink."""

    table: TableSink = msgspec.field(default_factory=TableSink, name="DBInfo")
    chain: ChainSink = msgspec.field(default_factory=ChainSink, name="chainBlock")


class Sink(msgspec.Struct, frozen=True, kw_only=True):
    """The sink of a flow."""

    kind: Literal["RMDB", "BLOCKCHAIN"] = msgspec.field(name="sinkType")
    info: SinkInfo = msgspec.field(default_factory=SinkInfo, name="sinkInfo")


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """Events that pass through operators into a sink. The node stores flows but runs none."""

    source: Source
    operators: list[Operator] = msgspec.field(default_factory=list)
    sink: Sink


_EMPTY_FLOW = msgspec.json.encode(
    {
        "source": {"strategies": None},
        "operators": None,
        "sink": {"sinkType": "", "sinkInfo": {"DBInfo": {}, "chainBlock": {}}},
    }
)
"""The defaults of projects without a configuration of that kind (interface document, 13)."""


# ---------------------------------------------------------------- routes


class ConfigReply(Timed, frozen=True):
    """A configuration of the project `relID`, without its value."""

    config_id: str
    rel_id: str
    type: str


class EnvironmentReply(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """The variables of a project: names with their values."""

    env: list[list[str]]


class SpendingReply(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """The daily spending limit of a project, in wei as decimal text."""

    wei_per_day: str


class ChainsReply(msgspec.Struct, frozen=True, kw_only=True):
    """What events of a project are answered while a chain is unavailable: `CODE` or `RETRY`."""

    unavailable: str


class DatabaseReply(msgspec.Struct, frozen=True, kw_only=True):
    """The tables of a project by schema; a project without any has no `dialect`."""

    dialect: str | UnsetType = UNSET
    schemas: list[Schema]


class TablesReply(msgspec.Struct, frozen=True, kw_only=True):
    """The tables of a project's schema `public`."""

    tables: list[Table]


class StoredSource(msgspec.Struct, frozen=True, kw_only=True):
    """The source of a flow: events of these types, or null in an empty flow."""

    strategies: list[str] | None


class StoredSink(msgspec.Struct, frozen=True, kw_only=True):
    """The sink of a flow; `sinkType` is empty in an empty flow."""

    kind: str = msgspec.field(name="sinkType")
    info: SinkInfo = msgspec.field(name="sinkInfo")


class StoredFlow(msgspec.Struct, frozen=True, kw_only=True):
    """The flow of a project."""

    source: StoredSource
    operators: list[Operator] | None
    sink: StoredSink


async def set_environment(call: Call[Environment, None]) -> ConfigReply:
    """Replace a project's variables; events that arrive after the answer see the new ones."""
    _refuse(check_environment(call.body.env, "env"))
    return await _put(call, PROJECT_ENV, msgspec.json.encode(call.body))


async def set_environment_silently(call: Call[Environment, None]) -> None:
    """Replace a project's variables; answered as in the seed era, without a body."""
    await set_environment(call)


async def set_database(call: Call[Database, None]) -> ConfigReply:
    """Define the tables of a project; existing tables that are not named stay."""
    _refuse(check_database(call.body))
    return await _put(call, PROJECT_DATABASE, database_value(call.body))


async def set_schema(call: Call[Database, None]) -> None:
    """Define the tables of a project; answered as in the seed era, without a body."""
    await set_database(call)


async def set_flow(call: Call[Flow, None]) -> ConfigReply:
    """Store a flow."""
    return await _put(call, PROJECT_FLOW, msgspec.json.encode(call.body))


class SpendingLimit(msgspec.Struct, frozen=True, kw_only=True):
    """The limit of what a project's transactions may cost per day (UTC), fees included, in wei
    as decimal text."""

    wei_per_day: Annotated[str, msgspec.Meta(pattern="^[0-9]{1,78}$")] = msgspec.field(
        name="weiPerDay"
    )


async def set_spending(call: Call[SpendingLimit, None]) -> ConfigReply:
    """Set the daily spending limit of a project's transactions."""
    return await _put(call, PROJECT_SPENDING, msgspec.json.encode(call.body))


async def get_spending(call: Call[None, None]) -> SpendingReply:
    """The daily spending limit of a project's transactions."""
    return as_stored(_value(call, PROJECT_SPENDING), SpendingReply)


class ChainConduct(msgspec.Struct, frozen=True, kw_only=True):
    """What an event is answered while a chain is unavailable that its handler needs: `CODE`, the
    handler's code, because `ws_send_tx` returned -1; or `RETRY`, 503, and nothing of the event
    stays."""

    unavailable: Literal["CODE", "RETRY"]


async def set_chains(call: Call[ChainConduct, None]) -> ConfigReply:
    """Set what events of a project are answered while a chain is unavailable."""
    return await _put(call, PROJECT_CHAINS, msgspec.json.encode(call.body))


async def get_chains(call: Call[None, None]) -> ChainsReply:
    """What events of a project are answered while a chain is unavailable."""
    default = msgspec.json.encode({"unavailable": CHAIN_CODE})
    return as_stored(_value(call, PROJECT_CHAINS, default), ChainsReply)


async def get_environment(call: Call[None, None]) -> EnvironmentReply:
    """The variables of a project."""
    return as_stored(_value(call, PROJECT_ENV), EnvironmentReply)


async def get_database(call: Call[None, None]) -> DatabaseReply:
    """The tables of a project by schema."""
    return as_stored(_value(call, PROJECT_DATABASE), DatabaseReply)


async def get_schema(call: Call[None, None]) -> TablesReply:
    """The tables of a project's schema `public`, in the early form."""
    stored = msgspec.json.decode(_value(call, PROJECT_DATABASE))
    schemas = [schema for schema in stored["schemas"] if schema["schema"] == _PUBLIC]
    tables = [table for schema in schemas for table in schema["tables"]]
    early = {"tables": [{k: v for k, v in t.items() if k != _TIMES} for t in tables]}
    return as_stored(msgspec.json.encode(early), TablesReply)


async def get_flow(call: Call[None, None]) -> StoredFlow:
    """The flow of a project; an empty one if none was stored."""
    return as_stored(_value(call, PROJECT_FLOW, _EMPTY_FLOW), StoredFlow)


async def _put(call: Call[Any, None], kind: str, value: bytes) -> ConfigReply:
    config: Config = await call.context.registry.call(
        "put_config", project_id=own_project(call).project_id, kind=kind, value=value
    )
    return ConfigReply(
        config_id=str(config.config_id),
        rel_id=str(config.project_id),
        type=config.kind,
        **times(config),
    )


def _value(call: Call[None, None], kind: str, default: bytes | None = None) -> msgspec.Raw:
    """A stored configuration, or else the default of its kind.

    Raises:
        ConfigNotFoundError: there is neither, or the project does not exist. Clients expect this
            error for a removed project (interface document, 12.2, scenario 6).
    """
    name = call.path["projectName"]
    try:
        project = own_project(call)
    except ProjectNotFoundError:
        raise ConfigNotFoundError(kind=kind, project=name) from None
    config = call.context.reader.config(project.project_id, kind)
    value = default if config is None else config.value
    if value is None:
        raise ConfigNotFoundError(kind=kind, project=name)
    return msgspec.Raw(value)


def _refuse(errors: list[FieldError]) -> None:
    if errors:
        raise BadRequestError(*errors)


_SEED, _LATER = "/project_config/{projectName}", "/project_config/x/{projectName}"
_ENV, _DATABASE, _FLOW, _SCHEMA = PROJECT_ENV, PROJECT_DATABASE, PROJECT_FLOW, "PROJECT_SCHEMA"
_SET_ENV = "CreateOrUpdateProjectEnv"
ROUTES: tuple[Route, ...] = (
    Route("POST", f"{_SEED}/{_SCHEMA}", "CreateProjectSchema", set_schema),
    Route("GET", f"{_SEED}/{_SCHEMA}", "GetProjectSchema", get_schema),
    Route("POST", f"{_SEED}/{_ENV}", _SET_ENV, set_environment_silently),
    Route("GET", f"{_SEED}/{_ENV}", "GetProjectEnv", get_environment),
    Route("POST", f"{_LATER}/{_ENV}", _SET_ENV, set_environment),
    Route("GET", f"{_LATER}/{_ENV}", "GetProjectEnv", get_environment),
    Route("POST", f"{_LATER}/{_DATABASE}", "CreateProjectSchema", set_database),
    Route("GET", f"{_LATER}/{_DATABASE}", "GetProjectSchema", get_database),
    Route("POST", f"{_LATER}/{_FLOW}", "CreateOrUpdateProjectFlow", set_flow),
    Route("GET", f"{_LATER}/{_FLOW}", "GetProjectFlow", get_flow),
    Route("POST", f"{_LATER}/{PROJECT_SPENDING}", "CreateOrUpdateProjectSpending", set_spending),
    Route("GET", f"{_LATER}/{PROJECT_SPENDING}", "GetProjectSpending", get_spending),
    Route("POST", f"{_LATER}/{PROJECT_CHAINS}", "CreateOrUpdateProjectChains", set_chains),
    Route("GET", f"{_LATER}/{PROJECT_CHAINS}", "GetProjectChains", get_chains),
)
