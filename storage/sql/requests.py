"""SQL requests of applets: a statement and its parameters as JSON.

Source: ABI document, 3.1 (SQL request).
"""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime
from typing import Annotated

import msgspec

from fieldbrook.core.errors import StatementError

Value = None | int | float | str | bytes

_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]


class _Param(msgspec.Struct, rename={"boolean": "bool", "binary": "bytes"}):
    """A parameter of a request; the first field in this order that is not null is its value."""

    int32: _Int32 | None = None
    int64: int | None = None
    float32: float | None = None
    float64: float | None = None
    string: str | None = None
    boolean: bool | None = None
    binary: str | None = None
    time: str | None = None


class _Request(msgspec.Struct):
    statement: str
    params: list[_Param]


_decode_request = msgspec.json.Decoder(_Request).decode


def parse_request(request: bytes) -> tuple[str, list[Value]]:
    """Parse a request into its statement and its parameters.

    Shape: `{"statement": str, "params": [{"int32"|"int64"|"float32"|"float64"|"string"|
    "bool"|"bytes"|"time": value}]}`; `bytes` is base64, padded or not, `time` RFC 3339.

    Raises:
        StatementError: another shape, a number out of range, or invalid base64 or time.
    """
    try:
        sent = _decode_request(request)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise StatementError(f"the request cannot be read: {error}") from error
    return sent.statement, [_value(param, n) for n, param in enumerate(sent.params, 1)]


def _value(param: _Param, number: int) -> Value:
    for plain in (param.int32, param.int64, param.float32, param.float64, param.string):
        if plain is not None:
            return plain
    if param.boolean is not None:
        return int(param.boolean)
    if param.binary is not None:
        return _from_base64(param.binary, number)
    if param.time is not None:
        return parse_time(param.time, number)
    raise StatementError(f"parameter {number} has no known type")


def _from_base64(text: str, number: int) -> str | bytes:
    """Decode base64; bytes that are valid UTF-8 become text, so that they equal that string."""
    bare = text.rstrip("=")
    try:
        raw = base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise StatementError(f"parameter {number} is not base64") from error
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def parse_time(text: str, number: int) -> str:
    """Return an RFC 3339 time as it is stored.

    Raises:
        StatementError: the text is not a time; the error names the parameter `number`.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise StatementError(
            f"parameter {number} is not an RFC 3339 time: {text[:40]!r}"
        ) from error
    if moment.tzinfo is None or len(text) < len("2006-01-02T15:04:05Z"):
        raise StatementError(f"parameter {number} is not an RFC 3339 time: {text[:40]!r}")
    try:
        return stored_time(moment)
    except OverflowError as error:
        raise StatementError(f"parameter {number} is out of range: {text[:40]!r}") from error


def stored_time(moment: datetime) -> str:
    """Return a time as stored text: UTC in microseconds, so that texts sort like the times."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")
