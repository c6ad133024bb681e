"""A connection to PostgreSQL on which every call has a deadline.

It uses libpq directly. Parameters and rows are text, and each call ends at its deadline,
whatever the server does. The data thread of a project uses it, which must never block for long.

Source: PostgreSQL 15 manual, 34.4 (asynchronous command processing); psycopg 3, `pq`.
"""

from __future__ import annotations

import fcntl
import select
import struct
import termios
import time
from collections.abc import Iterator, Sequence

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

CONNECT_S = 2
_FAILED = (pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.BAD_RESPONSE, pq.ExecStatus.NONFATAL_ERROR)
_COPYING = (pq.ExecStatus.COPY_IN, pq.ExecStatus.COPY_OUT, pq.ExecStatus.COPY_BOTH)
_ENDING = ("08", "57P0")  # the server ends the connection, or has ended it


class ConnectionLostError(Exception):
    """The connection was lost or could not be made; the text says why."""


class AnswerTooLongError(ConnectionLostError):
    """The connection was closed because an answer was too long."""


class ServerError(Exception):
    """The server refused a statement. `state` is the SQLSTATE, five characters."""

    def __init__(self, state: str, text: str) -> None:
        super().__init__(text)
        self.state = state


class Connection:
    """One connection. After a `ConnectionLostError` it is closed."""

    def __init__(self, dsn: str, role: str | None = None, password: str | None = None) -> None:
        """Connect, with a timeout of 2 s per address.

        Args:
            dsn: `postgresql://...`, with any parameters of libpq.
            role: the role to use with `password`, instead of those in the DSN.
            password: the password of `role`.

        Raises:
            ConnectionLostError: the server cannot be reached or refuses the role, or the DSN is
                malformed.
        """
        try:
            named = {} if role is None else {"user": role, "password": password}
            whole = make_conninfo(
                dsn, connect_timeout=CONNECT_S, application_name="fieldbrook", **named
            )
            self._connection = psycopg.connect(whole, autocommit=True)
        except psycopg.OperationalError as error:
            raise ConnectionLostError(_one_line(str(error))) from None
        except psycopg.Error:  # the text of the error may contain parts of the DSN
            raise ConnectionLostError("the DSN cannot be read") from None
        self._pg = self._connection.pgconn
        self._pg.nonblocking = 1
        self._poll = select.poll()

    @property
    def closed(self) -> bool:
        """Whether either side has closed the connection."""
        return self._connection.closed or self._pg.status != pq.ConnStatus.OK

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._pg.transaction_status not in (
            pq.TransactionStatus.IDLE,
            pq.TransactionStatus.UNKNOWN,
        )

    def scram_verifier(self, password: str, role: str) -> str:
        """Return the SCRAM verifier of a password, so that it is not sent or logged in clear."""
        return self._pg.encrypt_password(
            password.encode(), role.encode(), b"scram-sha-256"
        ).decode()

    def run(self, statements: str, ends_at: float) -> pq.abc.PGresult:
        """Execute statements of the node itself, and return the result of the last one.

        Raises:
            ServerError: a statement was refused; those after it were not executed.
            ConnectionLostError: no answer by `ends_at` (monotonic, seconds), or no connection.
        """
        try:
            self._pg.send_query(statements.encode())
        except psycopg.Error as error:
            raise self._close_lost(str(error)) from None
        last: pq.abc.PGresult | None = None
        failure: ServerError | None = None
        for result in self._results(ends_at, 1 << 62):
            last = result
            failure = failure or _failure(result)
        return self._checked(last, failure)

    def rows(self, statements: str, ends_at: float) -> list[list[str | None]]:
        """Execute statements of the node itself; return the rows of the last one as text. See
        `run`."""
        result = self.run(statements, ends_at)
        return [
            [None if cell is None else cell.decode() for cell in row_of(result, place)]
            for place in range(result.ntuples)
        ]

    def execute(
        self,
        statement: str,
        values: Sequence[bytes | None],
        types: Sequence[int],
        ends_at: float,
        most_bytes: int,
    ) -> Iterator[pq.abc.PGresult]:
        """Execute one statement and yield its results. The caller must read to the end.

        Each row comes as a result of its own, as soon as it arrives. The last result has no row.

        Args:
            statement: the statement, with placeholders `$1`...
            values: the values of the parameters, as text.
            types: their type oids; 0 lets the server infer the type.
            ends_at: see `run`.
            most_bytes: the largest answer; a longer one closes the connection.

        Raises:
            ServerError: the statement was refused, perhaps after some rows.
            ConnectionLostError: no answer in time, or no connection.
            AnswerTooLongError: the answer is longer than `most_bytes`.
        """
        try:
            self._pg.send_query_params(statement.encode(), values, types)
            self._pg.set_single_row_mode()
        except psycopg.Error as error:
            raise self._close_lost(str(error)) from None
        last: pq.abc.PGresult | None = None
        failure: ServerError | None = None
        for result in self._results(ends_at, most_bytes):
            failure = failure or _failure(result)
            if result.status == pq.ExecStatus.SINGLE_TUPLE:
                yield result
            else:
                last = result
        yield self._checked(last, failure)

    def close(self) -> None:
        """Close the connection; the server rolls back an open transaction."""
        self._connection.close()

    def _checked(
        self, last: pq.abc.PGresult | None, failure: ServerError | None
    ) -> pq.abc.PGresult:
        if self._pg.status != pq.ConnStatus.OK:
            raise self._close_lost(str(failure) if failure else "the server closed the connection")
        if failure is not None:
            if failure.state.startswith(_ENDING):
                raise self._close_lost(str(failure))
            raise failure
        if last is None:
            raise self._close_lost("the server gave no answer")
        return last

    def _results(self, ends_at: float, most_bytes: int) -> Iterator[pq.abc.PGresult]:
        """Yield all results of the statements that were sent."""
        try:
            while self._pg.flush():
                self._wait(select.POLLIN | select.POLLOUT, ends_at)
                self._pg.consume_input()
            left = most_bytes
            while True:
                while self._pg.is_busy():
                    self._wait(select.POLLIN, ends_at)
                    left -= self._waiting_bytes()
                    if left < 0:
                        self._connection.close()
                        raise AnswerTooLongError(f"the result has more than {most_bytes} bytes")
                    self._pg.consume_input()
                result = self._pg.get_result()
                if result is None:
                    return
                if result.status in _COPYING:
                    raise self._close_lost("the server wants to copy")
                yield result
        except psycopg.Error as error:
            raise self._close_lost(str(error)) from None

    def _wait(self, events: int, ends_at: float) -> None:
        left = ends_at - time.monotonic()
        socket = self._pg.socket
        self._poll.register(socket, events)
        if left <= 0 or not self._poll.poll(left * 1000):
            raise self._close_lost("the server does not answer")

    def _waiting_bytes(self) -> int:
        answer = fcntl.ioctl(self._pg.socket, termios.FIONREAD, b"\0\0\0\0")
        size: int = struct.unpack("i", answer)[0]
        return size

    def _close_lost(self, reason: str) -> ConnectionLostError:
        self._connection.close()
        return ConnectionLostError(_one_line(reason))


def row_of(result: pq.abc.PGresult, place: int = 0) -> list[bytes | None]:
    """Return the values of a row."""
    return [result.get_value(place, column) for column in range(result.nfields)]


def _failure(result: pq.abc.PGresult) -> ServerError | None:
    if result.status not in _FAILED:
        return None
    state = result.error_field(pq.DiagnosticField.SQLSTATE) or b"08006"
    text = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or result.error_message
    return ServerError(state.decode(), _one_line(text.decode("utf-8", "replace")))


def _one_line(text: str) -> str:
    return " ".join(text.split())
