"""Conversion of values to and from PostgreSQL's text format."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from fieldbrook.core.errors import StatementError
from fieldbrook.storage.sql.requests import Value, stored_time
from fieldbrook.storage.sql.results import TimeText, number_text


def encode_parameter(value: Value, number: int) -> bytes | None:
    """Encode a parameter as text; the server infers its type from its place.

    Bytes are sent in PostgreSQL's hexadecimal form.

    Raises:
        StatementError: the text contains a NUL character, which PostgreSQL cannot store, or cannot
            be encoded in UTF-8.
    """
    if value is None:
        return None
    if isinstance(value, bytes):
        return b"\\x" + value.hex().encode()
    if isinstance(value, float):
        return number_text(value).encode()
    text = str(value)
    if "\0" in text:
        raise StatementError(f"parameter {number} contains a NUL character")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise StatementError(f"parameter {number} is not text: {error.reason}") from error


# SQLSTATEs: the server could not infer a parameter's type from its place, or inferred a wrong one.
UNTYPED = frozenset({"42P18", "42725", "42883", "42804"})

_BOOL, _TEXT, _INT8, _FLOAT8 = 16, 25, 20, 701
_INTEGERS = (20, 21, 23, 26)
_FLOATS = (700, _FLOAT8)
_TIMES = (1114, 1184)


def type_of(value: Value) -> int:
    """Return the type oid of a parameter whose type the server cannot infer from its place."""
    if isinstance(value, int):
        return _INT8
    return _FLOAT8 if isinstance(value, float) else _TEXT


def reader_of(oid: int) -> Callable[[bytes], Any]:
    """Return the function that converts the text of a column of this type into a value."""
    if oid in _INTEGERS:
        return int
    if oid in _FLOATS:
        return float
    if oid == _BOOL:
        return b"t".__eq__
    return _parse_time if oid in _TIMES else bytes.decode


def _parse_time(text: bytes) -> str:
    try:
        moment = datetime.fromisoformat(text.decode())
    except ValueError:
        return text.decode()  # infinity, or a year that does not have four digits
    return TimeText(stored_time(moment.replace(tzinfo=moment.tzinfo or UTC)))
