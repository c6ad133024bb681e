"""Results of SQL statements, as the JSON of Go's encoder, for which applets were written.

Source: ABI document, 3.1 (SQL result).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from json.encoder import encode_basestring
from typing import Any

from fieldbrook.core.errors import StatementError


class TimeText(str):
    """A stored time from a time column; its JSON is that of Go's struct `{"Time", "Valid"}`."""

    __slots__ = ()


class Rows:
    """Collects the rows of one result as JSON, within its limits."""

    def __init__(self, limit_rows: int, limit_bytes: int) -> None:
        self._limit_rows, self._limit_bytes = limit_rows, limit_bytes
        self._rows: list[str] = []
        self._size = 0

    def add(self, rows: Iterable[str]) -> None:
        """Add rows from `row_encoder`.

        Raises:
            StatementError: the result exceeds a limit.
        """
        added, size = self._rows, self._size
        for row in rows:
            added.append(row)
            size += len(row)
            if size > self._limit_bytes:
                raise StatementError(f"the result has more than {self._limit_bytes} bytes")
            if len(added) > self._limit_rows:
                raise StatementError(f"the result has more than {self._limit_rows} rows")
        self._size = size

    def encode(self) -> bytes:
        """Return no bytes for no row, one row as an object, several as an array of objects."""
        if len(self._rows) < 2:
            return "".join(self._rows).encode()
        return f"[{','.join(self._rows)}]".encode()


_ESCAPES = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


def check_row(values: Iterable[object], limit_bytes: int) -> None:
    """Check the size of a row before it is copied, because a row may have hundreds of megabytes.

    Raises:
        StatementError: the row exceeds the limit of a result.
    """
    if sum(len(value) for value in values if isinstance(value, str | bytes)) > limit_bytes:
        raise StatementError(f"the result has more than {limit_bytes} bytes")


def row_encoder(names: Sequence[str]) -> Callable[[Sequence[Any]], str]:
    """Return the function that encodes a row with columns of these names as a JSON object.

    Its keys are sorted; of columns with the same name the last one counts.
    """
    places = {name: place for place, name in enumerate(names)}
    keys = [(places[name], _string(name) + ":") for name in sorted(places)]
    return lambda row: "{" + ",".join([key + _json(row[place]) for place, key in keys]) + "}"


def _json(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return number_text(value)
    if isinstance(value, TimeText):
        return f'{{"Time":{_string(shown_time(value))},"Valid":true}}'
    if isinstance(value, bytes):
        return _string("\\x" + value.hex())  # PostgreSQL's form of bytes that are not text
    return _string(value)


def shown_time(text: str) -> str:
    """Return a stored time as Go writes it: without trailing zeros in the fraction."""
    return text[:-1].rstrip("0").rstrip(".") + "Z"


def _string(text: str) -> str:
    return str(encode_basestring(text)).translate(_ESCAPES)


def number_text(value: float) -> str:
    """Format a number like Go: shortest digits, an exponent below 1e-6 and from 1e21 on.

    Raises:
        StatementError: the number is not finite.
    """
    if not math.isfinite(value):
        raise StatementError(f"JSON cannot represent the number {value}")
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    digits = repr(value)
    if 1e-6 <= abs(value) < 1e21:
        if "e" in digits:
            return _without_exponent(digits)
        return digits.removesuffix(".0")
    mantissa, _, exponent = digits.partition("e")
    sign = "-" if exponent.startswith("-") else "+"
    power = exponent.lstrip("+-").lstrip("0")
    if sign == "+":
        return f"{mantissa}e+{power}"
    return f"{mantissa}e-{power}"


def _without_exponent(digits: str) -> str:
    mantissa, _, exponent = digits.partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    power = int(exponent)
    if power < 0:
        return f"{sign}0.{'0' * (-power - 1)}{whole}{fraction}"
    return f"{sign}{whole}{fraction.ljust(power, '0')}"
