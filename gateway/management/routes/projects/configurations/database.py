"""The tables of a project.

PROJECT_SCHEMA of the early interface is the schema `public` of PROJECT_DATABASE. Its tables always
have the columns for the times of a row; other tables have them with `withTimes`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

from fieldbrook.core.errors import DatabaseConfigError, FieldError
from fieldbrook.core.model import PROJECT_DATABASE
from fieldbrook.gateway.management.framework.answers import as_stored
from fieldbrook.gateway.management.framework.route import Call, Route
from fieldbrook.gateway.management.routes.projects.configurations.stored import (
    LATER,
    SEED,
    ConfigReply,
    put,
    refuse,
    stored_value,
)
from fieldbrook.storage.sql.room import COLUMNS_LIMIT, require_room
from fieldbrook.storage.sql.schema import TIMES, check_new, parse_schema

_TABLES_LIMIT, _COLUMNS_LIMIT, _KEYS_LIMIT = 200, 200, 64
_PUBLIC = "public"
_TIMES = "withTimes"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}\Z")
_INTEGERS = frozenset({"INT", "INT8", "INT16", "INT32", "INT64"}) | frozenset(
    {"UINT", "UINT8", "UINT16", "UINT32", "UINT64"}
)

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
    """Return the stored form, in which every table is in a schema."""
    early = [msgspec.structs.replace(table, times=True) for table in database.tables]
    more = [Schema(tables=early)] if early else []
    schemas = [*database.schemas, *more]
    stored = {"dialect": database.dialect, "schemas": schemas or [Schema()]}
    return msgspec.json.encode(stored)


def check_database(database: Database, at: str = "") -> list[FieldError]:
    """Check tables and return the errors; `at` is their place in the request."""
    prefix = f"{at}." if at else ""
    errors = _too_many(database, prefix)
    if errors:
        return errors
    seen: set[str] = set()
    for n, schema in enumerate(database.schemas):
        where = f"{prefix}schemas[{n}]"
        errors += _check_name(schema.schema, f"{where}.schema")
        errors += _check_tables(schema, f"{where}.tables", seen)
    errors += _check_tables(Schema(tables=database.tables), f"{prefix}tables", seen)
    return errors or _check_as_sql(database, f"{prefix}schemas")


def _too_many(database: Database, prefix: str) -> list[FieldError]:
    """Return the error of too many schemas, tables or columns to be checked one by one in the event
    loop."""
    where = f"{prefix}schemas"
    if len(database.schemas) > _TABLES_LIMIT:
        return [FieldError(where, f"more than {_TABLES_LIMIT} schemas", "body")]
    tables = [*database.tables, *(table for each in database.schemas for table in each.tables)]
    if len(tables) > _TABLES_LIMIT:
        return [FieldError(where, f"more than {_TABLES_LIMIT} tables", "body")]
    if sum(len(table.cols) for table in tables) > COLUMNS_LIMIT:
        return [FieldError(where, f"more than {COLUMNS_LIMIT:,} columns", "body")]
    return []


def _check_as_sql(database: Database, at: str) -> list[FieldError]:
    """Return the errors of tables that the interface allows but the project's database does not
    allow."""
    try:
        schema = parse_schema(msgspec.json.decode(database_value(database)))
        check_new(schema)
        require_room(schema, {}, ())
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


class DatabaseReply(msgspec.Struct, frozen=True, kw_only=True):
    """The tables of a project by schema; a project without any has no `dialect`."""

    dialect: str | UnsetType = UNSET
    schemas: list[Schema]


class TablesReply(msgspec.Struct, frozen=True, kw_only=True):
    """The tables of a project's schema `public`."""

    tables: list[Table]


async def set_database(call: Call[Database, None]) -> ConfigReply:
    """Define the tables of a project; existing tables that are not named stay."""
    refuse(check_database(call.body))
    return await put(call, PROJECT_DATABASE, database_value(call.body))


async def set_schema(call: Call[Database, None]) -> None:
    """Define the tables of a project; answered as for early clients, without a body."""
    await set_database(call)


async def get_database(call: Call[None, None]) -> DatabaseReply:
    """The tables of a project by schema."""
    return as_stored(stored_value(call, PROJECT_DATABASE), DatabaseReply)


async def get_schema(call: Call[None, None]) -> TablesReply:
    """The tables of a project's schema `public`, in the early form."""
    stored = msgspec.json.decode(stored_value(call, PROJECT_DATABASE))
    schemas = [schema for schema in stored["schemas"] if schema["schema"] == _PUBLIC]
    tables = [table for schema in schemas for table in schema["tables"]]
    early = {"tables": [{k: v for k, v in t.items() if k != _TIMES} for t in tables]}
    return as_stored(msgspec.json.encode(early), TablesReply)


_SEED_KIND = "PROJECT_SCHEMA"
ROUTES: tuple[Route, ...] = (
    Route("POST", f"{SEED}/{_SEED_KIND}", "CreateProjectSchema", set_schema),
    Route("GET", f"{SEED}/{_SEED_KIND}", "GetProjectSchema", get_schema),
    Route("POST", f"{LATER}/{PROJECT_DATABASE}", "CreateProjectSchema", set_database),
    Route("GET", f"{LATER}/{PROJECT_DATABASE}", "GetProjectSchema", get_database),
)
