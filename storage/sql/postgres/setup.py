"""Prepares a project's namespace on a PostgreSQL server: role, schema, tables, privileges.

The role of the DSN creates all this and owns the tables. The project's own role may only read and
write them.
"""

from __future__ import annotations

import secrets
import time

from fieldbrook.core.errors import DatabaseConfigError, StoreError
from fieldbrook.storage.sql.postgres.connection import Connection, ServerError
from fieldbrook.storage.sql.postgres.migration import FoundColumn, plan
from fieldbrook.storage.sql.postgres.namespace import (
    BEGIN,
    END_SESSIONS,
    OWN_S,
    SERVER_FAULTS,
    STATE,
    refuse_while_running,
)
from fieldbrook.storage.sql.postgres.statements import FUNCTIONS, Forbidden, forbidden_functions
from fieldbrook.storage.sql.schema import Schema

_PRIVILEGES = """SELECT rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication OR rolbypassrls
    OR EXISTS (SELECT FROM pg_auth_members WHERE member = r.oid)
    FROM pg_roles r WHERE rolname = session_user"""
SETTINGS = """SET TIME ZONE 'UTC'; SET datestyle = 'ISO, YMD'; SET intervalstyle = 'postgres';
    SET standard_conforming_strings = on; SET bytea_output = 'hex'; SET extra_float_digits = 1;
    SET idle_in_transaction_session_timeout = 0; SET lock_timeout = 0;
    SET client_min_messages = error; SET default_transaction_deferrable = off;
    SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') = 'off'"""
_STATE_COLUMNS = "(id integer PRIMARY KEY CHECK (id = 0), number bigint NOT NULL)"
_SIZE = """SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = '{0}' AND c.relkind = 'r'"""
TABLE_COLUMNS = """SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
    coalesce(col_description(c.oid, a.attnum), ''), coalesce(array_position(k.conkey, a.attnum), 0)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_constraint k ON k.conrelid = c.oid AND k.contype = 'p'
    WHERE n.nspname = '{0}' AND c.relkind = 'r' ORDER BY c.relname, a.attnum"""
_INDEXES = """SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = '{0}' AND c.relkind = 'i'"""


def prepare_namespace(dsn: str, namespace: str, schema: Schema, statement_ms: int) -> str:
    """Create role, schema and tables as the DSN's role; return the project role's password.

    `statement_ms` is the time limit of the project's statements.

    Raises:
        DatabaseUnreachableError: an earlier statement of the project is still running.
        DatabaseConfigError: the tables need a change other than additions; the reason names it.
        ConnectionLostError, ServerError: the server cannot be reached, or refuses.
    """
    connection = Connection(dsn)
    password = secrets.token_urlsafe(24)
    try:
        _create_role(connection, namespace, password)
        refuse_while_running(connection, namespace, statement_ms)
        limit = time.monotonic() + 5 * OWN_S
        connection.run(f"{BEGIN}; SET LOCAL lock_timeout = {int(OWN_S * 1000)}", limit)
        _migrate(connection, namespace, schema, limit)
        connection.run("COMMIT", limit)
    finally:
        connection.close()
    return password


def open_session(dsn: str, namespace: str, password: str) -> tuple[Connection, Forbidden]:
    """Open a session of a project's role.

    Returns:
        The session, and the server's functions that applets may not call.

    Raises:
        StoreError: the role has rights it must not have.
        ConnectionLostError, ServerError: the server cannot be reached, or refuses.
    """
    connection = Connection(dsn, namespace, password)
    limit = time.monotonic() + OWN_S
    try:
        connection.run(f'SET search_path = pg_catalog, "{namespace}", pg_temp', limit)
        connection.run(SETTINGS, limit)
        if connection.rows(_PRIVILEGES, limit) != [["f"]]:
            reason = f"PostgreSQL: the role {namespace} has rights it must not have"
            raise StoreError(reason=reason)
        functions = connection.rows(FUNCTIONS, limit)
    except BaseException:
        connection.close()
        raise
    return connection, forbidden_functions(functions)


def _create_role(connection: Connection, name: str, password: str) -> None:
    limit = time.monotonic() + 2 * OWN_S
    verifier = connection.scram_verifier(password, name)
    exists = connection.rows(f"SELECT 1 FROM pg_roles WHERE rolname = '{name}'", limit)  # noqa: S608
    options = f"LOGIN CONNECTION LIMIT 8 PASSWORD '{verifier}'"
    connection.run(f'{"ALTER" if exists else "CREATE"} ROLE "{name}" {options}', limit)
    member = f"SELECT pg_has_role(current_user, '{name}', 'USAGE')"
    if connection.rows(member, limit) == [["f"]]:
        connection.run(f'GRANT "{name}" TO CURRENT_USER', limit)
    # Sessions of an earlier process would hold locks until the server notices its death.
    connection.run(END_SESSIONS.format(name), limit)


def _migrate(connection: Connection, namespace: str, schema: Schema, limit: float) -> None:
    role = f'"{namespace}"'
    state = f"{role}.{STATE}"
    for statement in (
        f"CREATE SCHEMA IF NOT EXISTS {role}",
        f"CREATE TABLE IF NOT EXISTS {state} {_STATE_COLUMNS}",
        f"INSERT INTO {state} VALUES (0, 0) ON CONFLICT DO NOTHING",  # noqa: S608
        f"GRANT USAGE ON SCHEMA {role} TO {role}",
        f"GRANT SELECT, UPDATE (number) ON {state} TO {role}",
        # Wait for sessions that were still committing: after this the number is final.
        f"SELECT number FROM {state} FOR UPDATE",  # noqa: S608
    ):
        connection.run(statement, limit)
    found: dict[str, list[FoundColumn]] = {}
    for row in connection.rows(TABLE_COLUMNS.format(namespace), limit):
        owner, name, kind, comment, place = (cell or "" for cell in row)
        found.setdefault(owner, []).append(FoundColumn(name, kind, comment, int(place)))
    indexes = [row[0] or "" for row in connection.rows(_INDEXES.format(namespace), limit)]
    for what, statement in plan(schema, namespace, found, indexes):
        try:
            connection.run(statement, limit)
        except ServerError as error:
            if error.state.startswith(SERVER_FAULTS):
                raise
            raise DatabaseConfigError(reason=f"{what}: {error}") from error
    for table in schema.tables:
        target = f'{role}."{table.name.lower()}"'
        connection.run(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {target} TO {role}", limit)
