"""SQL statements on the project's database."""

from __future__ import annotations

from fieldbrook.core.errors import StatementError
from fieldbrook.wasm.host.guest import Functions, Guest, GuestError
from fieldbrook.wasm.module import abi
from fieldbrook.wasm.run import SqlSession


def functions(guest: Guest) -> Functions:
    """Return `ws_set_sql_db` and `ws_get_sql_db`."""
    read, copy_to_guest = guest.read, guest.copy_to_guest

    def ws_set_sql_db(request_at: int, size: int) -> int:
        sql = _session(guest)
        request = read(request_at, size)
        try:
            sql.execute(request, guest.ends_at)
        except StatementError as error:
            raise _refused(guest, error) from error
        guest.check_deadline()
        return abi.OK

    def ws_get_sql_db(request_at: int, size: int, pointer_at: int, size_at: int) -> int:
        sql = _session(guest)
        request = read(request_at, size)
        try:
            rows = sql.query(request, guest.ends_at)
        except StatementError as error:
            raise _refused(guest, error) from error
        guest.check_deadline()
        copy_to_guest(rows, pointer_at, size_at)
        return abi.OK

    return {abi.WS_SET_SQL_DB: ws_set_sql_db, abi.WS_GET_SQL_DB: ws_get_sql_db}


def _session(guest: Guest) -> SqlSession:
    sql = guest.run.sql
    if sql is None:
        raise GuestError("the project has no database", abi.NO_DATABASE)
    return sql


def _refused(guest: Guest, error: StatementError) -> GuestError:
    guest.check_deadline()
    return GuestError(str(error), abi.FAILED)
