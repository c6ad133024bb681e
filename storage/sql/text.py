"""SQL requests of applets, their translation for SQLite, and the JSON of results.

Applets were written for PostgreSQL behind a Go host. So placeholders are `?` or `$1`, tables are
in the schema `public`, and results have the form of Go's JSON encoder. This module only has
pure functions.

Source: ABI document, 3.1 (SQL request, SQL result).
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from json.encoder import encode_basestring
from typing import Annotated, Any, NamedTuple

import msgspec

from fieldbrook.core.errors import StatementError
from fieldbrook.storage.sql.schema import PUBLIC, quoted

Value = None | int | float | str | bytes

_COMMANDS = frozenset({"SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH", "VALUES"})
_BEFORE_COMMAND = frozenset({"(", "EXPLAIN", "QUERY", "PLAN"})

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
        return _stored_time(param.time, number)
    raise StatementError(f"parameter {number} has no type known here")


def _from_base64(text: str, number: int) -> str | bytes:
    """Decode base64; bytes that are valid UTF-8 become text, so that they equal that string."""
    bare = text.rstrip("=")
    try:
        raw = base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise StatementError(f"parameter {number} is no base64") from error
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _stored_time(text: str, number: int) -> str:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise StatementError(f"parameter {number} is no RFC 3339 time: {text[:40]!r}") from error
    if moment.tzinfo is None or len(text) < len("2006-01-02T15:04:05Z"):
        raise StatementError(f"parameter {number} is no RFC 3339 time: {text[:40]!r}")
    try:
        return stored_time(moment)
    except OverflowError as error:
        raise StatementError(f"parameter {number} is out of range: {text[:40]!r}") from error


def stored_time(moment: datetime) -> str:
    """Return a time as stored text: UTC in microseconds, so that texts sort like the times."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")


# ---------------------------------------------------------------- statements

_TOKEN = re.compile(
    r"""
      (?P<literal>'(?:[^']|'')*+')
    | (?P<quoted>"(?:[^"]|"")*+")
    | (?P<space>\s+|--[^\n]*+|/\*.*?(?:\*/|\Z))
    | (?P<number>\$\d+)
    | (?P<mark>\?\d*)
    | (?P<name>[A-Za-z_\x80-\U0010ffff][\w$]*+)
    | (?P<named>[:@$#][A-Za-z_]\w*+)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)


class Statement(NamedTuple):
    """A statement for SQLite: `order` has the parameter's index for each `?` in `text`."""

    text: str
    order: tuple[int, ...]
    params: int

    def arrange(self, values: Sequence[Value]) -> list[Value]:
        """Return the parameters in the order of the placeholders.

        Raises:
            StatementError: the number of parameters is wrong.
        """
        if len(values) != self.params:
            raise StatementError(
                f"the statement has {self.params} placeholders, the request {len(values)} params"
            )
        return [values[index] for index in self.order]


def translate(statement: str, schemas: frozenset[str]) -> Statement:
    """Translate the placeholders and schema names of a PostgreSQL statement for SQLite.

    `public.t` becomes `t`; `s.t` of another configured schema becomes the table `"s.t"`. Literals
    and comments stay unchanged.

    Raises:
        StatementError: neither a query nor a change of rows, or placeholders of both kinds.
    """
    tokens = [(str(m.lastgroup), m.group()) for m in _TOKEN.finditer(statement)]
    check_command(tokens)
    parts: list[str] = []
    order: list[int] = []
    kinds: set[str] = set()
    tokens = join_schemas(tokens, schemas)
    for kind, text in tokens:
        if kind in ("mark", "number"):
            kinds.add(kind)
            order.append(place_of(kind, text, len(order)))
            text = "?"  # noqa: PLW2901 - what is written for it
        elif kind == "named":
            raise StatementError(f"placeholders are ? or $1, not {text}")
        parts.append(text)
    if len(kinds) > 1:
        raise StatementError("placeholders are ? or $1, not both in one statement")
    return Statement("".join(parts), tuple(order), max(order, default=-1) + 1)


def place_of(kind: str, text: str, before: int) -> int:
    """Return the index of a placeholder's parameter; `before` counts the placeholders before."""
    if kind == "mark":
        if text != "?":
            raise StatementError(f"placeholders are ? or $1, not {text}")
        return before
    number = int(text[1:]) if len(text) < 6 else 0
    if number < 1:
        raise StatementError(f"there is no placeholder {text[:20]}")
    return number - 1


def check_command(tokens: list[tuple[str, str]]) -> None:
    """Refuse statements that neither query rows nor change them."""
    for kind, text in tokens:
        if kind == "space" or text.upper() in _BEFORE_COMMAND:
            continue
        if text.upper() not in _COMMANDS:
            raise StatementError(f"{text[:20].upper()} statements are not for applets")
        return
    raise StatementError("the statement is empty")


def join_schemas(tokens: list[tuple[str, str]], schemas: frozenset[str]) -> list[tuple[str, str]]:
    """Replace `public.t` by `t`, and `s.t` by the table `"s.t"`, in a list of tokens."""
    joined: list[tuple[str, str]] = []
    at = 0
    while at < len(tokens):
        schema = bare_name(tokens[at])
        if schema.lower() in schemas and _is_dotted(tokens, at):
            table = tokens[at + 2]
            if schema.lower() != PUBLIC:
                table = "quoted", quoted(f"{schema.lower()}.{bare_name(table)}")
            joined.append(table)
            at += 3
        else:
            joined.append(tokens[at])
            at += 1
    return joined


def _is_dotted(tokens: list[tuple[str, str]], at: int) -> bool:
    """Whether a name, a dot and another name follow here, without a dot before them."""
    if at > 0 and tokens[at - 1][1] == ".":
        return False
    return at + 2 < len(tokens) and tokens[at + 1][1] == "." and bool(bare_name(tokens[at + 2]))


def bare_name(token: tuple[str, str]) -> str:
    """Return the name that a token stands for, without quotes; empty for other tokens."""
    kind, text = token
    if kind == "quoted":
        return text[1:-1].replace('""', '"')
    return text if kind == "name" else ""


# ---------------------------------------------------------------- results


class Moment(str):
    """A value of a time column; its JSON is that of Go's struct `{"Time", "Valid"}`."""

    __slots__ = ()


_ESCAPES = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


def shown_time(text: str) -> str:
    """Return a stored time as Go writes it: without trailing zeros in the fraction."""
    return text[:-1].rstrip("0").rstrip(".") + "Z"


def encode_rows(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Yield each row as a JSON object with sorted keys; the last of equal column names counts."""
    places = {name: place for place, name in enumerate(names)}
    keys = [(places[name], _string(name) + ":") for name in sorted(places)]
    for row in rows:
        yield "{" + ",".join([key + _json(row[place]) for place, key in keys]) + "}"


def join_rows(rows: Sequence[str]) -> bytes:
    """Join rows: no row gives no bytes, one row an object, several an array of objects."""
    if len(rows) < 2:
        return "".join(rows).encode()
    return f"[{','.join(rows)}]".encode()


def _json(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return number_text(value)
    if isinstance(value, Moment):
        return f'{{"Time":{_string(shown_time(value))},"Valid":true}}'
    if isinstance(value, bytes):
        return _string("\\x" + value.hex())  # PostgreSQL's form of bytes that are not text
    return _string(value)


def _string(text: str) -> str:
    return str(encode_basestring(text)).translate(_ESCAPES)


def number_text(value: float) -> str:
    """Format a number like Go: shortest digits, an exponent below 1e-6 and from 1e21 on.

    Raises:
        StatementError: the number is not finite.
    """
    if not math.isfinite(value):
        raise StatementError(f"the result has a number that JSON cannot say: {value}")
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
