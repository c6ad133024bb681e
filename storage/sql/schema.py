"""The tables of a project's database configuration.

Each database has a `migration` module that plans the statements for these tables. A migration
only adds tables, columns and indexes. A configuration that would need to drop or change one is
refused by name.

A table has its configured columns, `f_id` with `withPrimaryKey`, and `f_deleted_at` (part of
every unique key) with `withSoftDeletion`. Tables in the form of PROJECT_SCHEMA also have
`f_created_at` and `f_updated_at`, as in the early generation. Other tables have these two with
`withTimes`, which is our addition.

Source: interface document, 5.6 (PROJECT_DATABASE, PROJECT_SCHEMA).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from fieldbrook.core.errors import DatabaseConfigError

PRIVATE_PREFIX = "fieldbrook_"  # prefix of the node's own tables, which applets cannot access
PUBLIC = "public"
TIMES = ("f_created_at", "f_updated_at")
"""Columns for the times of a row's creation and last change. Every table that an earlier version
of the node created has both."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_SQLITE = "sqlite_"
RESERVED = (_SQLITE, "pragma_", PRIVATE_PREFIX)
_SYSTEM_COLUMNS = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})  # of PostgreSQL
_METHODS = ("", "BTREE", "HASH")  # accepted but ignored: SQLite has one kind of index

_TABLES_LIMIT, _COLUMNS_LIMIT, _KEYS_LIMIT = 200, 200, 64
INDEXES_LIMIT = 2_000  # for all tables together; for each new index, SQLite reads the names of all

# The declared types also choose how a value is converted (`storage.sql.sqlite`). Those with TEXT in
# their name have SQLite's text affinity, which keeps the text of a value unchanged.
INTEGER, REAL, TEXT = "INTEGER", "REAL", "TEXT"
BOOLEAN, TIMESTAMP, DECIMAL = "BOOLEAN", "TIMESTAMPTZ", "DECIMAL TEXT"

_KINDS: dict[str, str] = (
    dict.fromkeys(("INT", "INT8", "INT16", "INT32", "INT64"), INTEGER)
    | dict.fromkeys(("UINT", "UINT8", "UINT16", "UINT32", "UINT64"), INTEGER)
    | dict.fromkeys(("FLOAT32", "FLOAT64"), REAL)
    | {"TEXT": TEXT, "BOOL": BOOLEAN, "TIMESTAMP": TIMESTAMP}
    | {"DECIMAL": DECIMAL, "NUMERIC": DECIMAL}
)

_DEFAULTS = {
    INTEGER: re.compile(r"[+-]?\d{1,19}", re.ASCII),
    REAL: re.compile(r"[+-]?\d{1,19}(\.\d{1,19})?([eE][+-]?\d{1,3})?", re.ASCII),
    DECIMAL: re.compile(r"[+-]?\d{1,400}(\.\d{1,400})?", re.ASCII),
    BOOLEAN: re.compile(r"true|false|0|1", re.ASCII | re.IGNORECASE),
    TIMESTAMP: re.compile(r"[+-]?\d{1,19}", re.ASCII),
}


# ---------------------------------------------------------------- as it is sent


class _Constrains(msgspec.Struct):
    datatype: str
    length: int = 0
    decimal: int = 0
    default: str | int | float | bool | None = None
    null: bool = False
    autoincrement: bool = False


class _Column(msgspec.Struct):
    name: str
    constrains: _Constrains


class _Key(msgspec.Struct, rename={"unique": "isUnique", "columns": "columnNames"}):
    columns: list[str] = msgspec.field(default_factory=list)
    name: str = ""
    method: str = ""
    unique: bool = False
    expr: str = ""


class _Table(
    msgspec.Struct,
    rename={
        "soft_deletion": "withSoftDeletion",
        "primary_key": "withPrimaryKey",
        "times": "withTimes",
    },
):
    name: str
    cols: list[_Column] = msgspec.field(default_factory=list)
    keys: list[_Key] | None = None
    soft_deletion: bool = False
    primary_key: bool = False
    times: bool = False


class _Schema(msgspec.Struct):
    schema: str = PUBLIC
    tables: list[_Table] | None = None


class _Config(msgspec.Struct):
    dialect: str = ""
    schemas: list[_Schema] | None = None
    tables: list[_Table] | None = None  # the form of the early generation, without schemas


# ---------------------------------------------------------------- as it is wanted


class Column(msgspec.Struct, frozen=True):
    """A column: `kind` is a declared type, `default` an SQL literal, empty for none."""

    name: str
    kind: str
    null: bool
    default: str
    autoincrement: bool


class Index(msgspec.Struct, frozen=True):
    """An index; `columns` are in the order of the index."""

    name: str
    columns: tuple[str, ...]
    unique: bool


class Table(msgspec.Struct, frozen=True):
    """A table. `name` is its name in SQLite: `schema.table` outside the schema `public`."""

    name: str
    columns: tuple[Column, ...]
    primary: tuple[str, ...]
    indexes: tuple[Index, ...]

    @property
    def label(self) -> str:
        """The name of the table in error messages."""
        return f"table {self.name}"


class Schema(msgspec.Struct, frozen=True):
    """All tables of a project, and the schema names that its statements may use."""

    tables: tuple[Table, ...]
    names: frozenset[str]


class Step(NamedTuple):
    """A statement of a migration, and the name of what it creates, for error messages."""

    what: str
    statement: str


def parse_schema(config: Mapping[str, Any]) -> Schema:
    """Read a database configuration.

    Shape: `{"schemas": [{"schema"?, "tables": [...]}]}`, or `{"tables": [...]}` as in the
    early generation, which implies `withTimes` for all tables. A table: `{"name",
    "cols": [{"name", "constrains": {"datatype", "length"?, "decimal"?, "default"?, "null"?,
    "autoincrement"?}}], "keys"?: [{"name"?, "method"?, "isUnique"?, "columnNames"}],
    "withSoftDeletion"?, "withPrimaryKey"?, "withTimes"?}`. `length` and `decimal` are not
    enforced. `default` is the value itself, without quotes.

    Raises:
        DatabaseConfigError: another shape, an unknown type, a name that cannot be used,
            or a feature that SQLite lacks; the reason names it.
    """
    try:
        sent = msgspec.convert(config, _Config)
    except msgspec.ValidationError as error:
        raise DatabaseConfigError(reason=str(error)) from error
    early = [msgspec.structs.replace(table, times=True) for table in sent.tables or ()]
    schemas = [*(sent.schemas or ()), *([_Schema(tables=early)] if early else ())]
    tables: list[Table] = []
    for schema in schemas:
        _check_name(schema.schema, "schema")
        for table in schema.tables or ():
            tables.append(_table(table, schema.schema.lower()))
    refuse_if(len(tables) > _TABLES_LIMIT, f"more than {_TABLES_LIMIT} tables")
    _check_unique((table.name for table in tables), "table")
    indexes = [index.name for table in tables for index in table.indexes]
    refuse_if(len(indexes) > INDEXES_LIMIT, f"more than {INDEXES_LIMIT} keys that are not primary")
    _check_unique(indexes, "index")
    return Schema(tuple(tables), frozenset({PUBLIC, *(s.schema.lower() for s in schemas)}))


def check_new(schema: Schema) -> None:
    """Check what SQLite or PostgreSQL would refuse when it creates the tables.

    Stored configurations are not checked: one of an earlier version may be in use, because its
    database is of the kind that accepts it.

    Raises:
        DatabaseConfigError: a name or a default that one of the two refuses; the reason names it.
    """
    tables = {table.name.lower() for table in schema.tables}
    for table in schema.tables:
        for column in table.columns:
            where = f"{table.label}, column {column.name}"
            refuse_if(column.name.lower() in _SYSTEM_COLUMNS, f"{where}: the name is reserved")
            refuse_if(not _is_in_range(column), f"{where}: its default is out of range")
        for index in table.indexes:
            name = index.name.lower()
            refuse_if(
                name in tables or name.startswith(_SQLITE),
                f"{table.label}: the name {index.name} of one of its keys is taken or reserved",
            )


def _is_in_range(column: Column) -> bool:
    if not column.default:
        return True
    if column.kind in (INTEGER, TIMESTAMP):
        return -(1 << 63) <= int(column.default) < 1 << 63
    if column.kind == REAL:
        number = float(column.default)
        is_zero = not column.default.lower().partition("e")[0].strip("+-0.")
        return math.isfinite(number) and (number != 0 or is_zero)
    return True


def refuse_if(fault: bool, reason: str) -> None:
    """Raise `DatabaseConfigError` with this reason if there is a fault."""
    if fault:
        raise DatabaseConfigError(reason=reason)


def _check_name(name: str, what: str) -> None:
    refuse_if(
        _NAME.fullmatch(name) is None,
        f"{what} {name!r}: a name has letters, digits and underscores, at most 63",
    )
    refuse_if(name.lower().startswith(RESERVED), f"{what} {name!r}: the name is reserved")


def _check_unique(names: Iterable[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        refuse_if(name.lower() in seen, f"{what} {name} exists twice")
        seen.add(name.lower())


def _table(sent: _Table, schema: str) -> Table:
    _check_name(sent.name, "table")
    name = sent.name if schema == PUBLIC else f"{schema}.{sent.name}"
    where = f"table {name}"
    columns = list(_columns(sent, where))
    refuse_if(len(columns) > _COLUMNS_LIMIT, f"{where}: more than {_COLUMNS_LIMIT} columns")
    _check_unique((column.name for column in columns), f"{where}: column")
    counting = [column.name for column in columns if column.autoincrement]
    refuse_if(len(counting) > 1, f"{where}: more than one column is autoincrement")
    primary: tuple[str, ...] = ()
    indexes: dict[str, Index] = {}
    known = {column.name for column in columns}
    refuse_if(len(sent.keys or ()) > _KEYS_LIMIT, f"{where}: more than {_KEYS_LIMIT} keys")
    for key in sent.keys or ():
        names = _key_columns(key, sent, known, where)
        if key.unique and (key.name.lower() == "primary" or key.name.lower().endswith("pkey")):
            refuse_if(bool(primary), f"{where}: more than one primary key")
            primary = tuple(dict.fromkeys(names))  # as in SQLite, a repeated column counts once
        else:
            kind = "ui" if key.unique else "i"
            index = Index("_".join((name, kind, *names)), names, key.unique)
            indexes[index.name] = index
    if counting and primary != tuple(counting):
        # In SQLite an autoincrement column is the row id, and so it must be the primary key.
        if primary:
            indexes[f"{name}_pkey"] = Index(f"{name}_pkey", primary, unique=True)
        primary = tuple(counting)
    columns = [_not_null(column) if column.name in primary else column for column in columns]
    return Table(name, tuple(columns), primary, tuple(indexes.values()))


def _not_null(column: Column) -> Column:
    return Column(column.name, column.kind, False, column.default, column.autoincrement)


def _columns(sent: _Table, where: str) -> Iterator[Column]:
    if sent.primary_key:
        yield Column("f_id", INTEGER, False, "", True)
    for column in sent.cols:
        yield _column(column, where)
    # Earlier versions added the times to every table. So stored configurations may have keys on
    # them, or tables without any other column.
    keyed = {name for key in sent.keys or () for name in key.columns}
    timed = sent.times or not (sent.cols or sent.primary_key or sent.soft_deletion)
    added = [name for name in TIMES if timed or name in keyed]
    for name in (*added, *(["f_deleted_at"] * sent.soft_deletion)):
        if name not in {column.name for column in sent.cols}:
            yield time_column(name)


def time_column(name: str) -> Column:
    """Return one of the columns `TIMES`, or `f_deleted_at`."""
    return Column(name, TIMESTAMP, False, "0", False)


def _column(sent: _Column, where: str) -> Column:
    _check_name(sent.name, f"{where}: column")
    where = f"{where}, column {sent.name}"
    rules = sent.constrains
    kind = _KINDS.get(rules.datatype.upper())
    if kind is None:
        raise DatabaseConfigError(reason=f"{where}: unknown datatype {rules.datatype!r}")
    refuse_if(
        rules.autoincrement and kind != INTEGER, f"{where}: only an integer can be autoincrement"
    )
    default = "" if rules.default is None else _literal(rules.default, kind, where)
    return Column(sent.name, kind, rules.null, default, rules.autoincrement)


def _literal(value: str | int | float | bool, kind: str, where: str) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    form = _DEFAULTS.get(kind)
    refuse_if(
        form is not None and form.fullmatch(text) is None,
        f"{where}: {text!r} is not a default for its datatype",
    )
    if kind == BOOLEAN:
        return "1" if text.lower() in ("true", "1") else "0"
    if kind in (TEXT, DECIMAL):
        refuse_if("\0" in text, f"{where}: a default must not contain zero characters")
        return "'" + text.replace("'", "''") + "'"
    return text


def _key_columns(key: _Key, table: _Table, known: set[str], where: str) -> tuple[str, ...]:
    refuse_if(bool(key.expr), f"{where}, key {key.name!r}: expressions are not supported")
    refuse_if(
        key.method.upper() not in _METHODS,
        f"{where}, key {key.name!r}: the method {key.method!r} is not supported",
    )
    refuse_if(not key.columns, f"{where}, key {key.name!r}: it has no columns")
    columns = list(key.columns)
    if table.soft_deletion and key.unique and "f_deleted_at" not in columns:
        columns.append("f_deleted_at")
    for column in columns:
        refuse_if(column not in known, f"{where}, key {key.name!r}: there is no column {column!r}")
    return tuple(columns)


def quoted(name: str) -> str:
    """Return a name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
