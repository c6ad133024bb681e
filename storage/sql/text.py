"""The text of SQL as applets send it, and of results as they get them.

Applets were written for PostgreSQL behind a Go host: `?` or `$1` placeholders, tables in
the schema `public`, results as Go's JSON encoder writes them. Everything here is a
decision over values.

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
    """The first one that is there counts, in this order."""

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
    """The statement and its parameters.

    Shape: `{"statement": str, "params": [{"int32"|"int64"|"float32"|"float64"|"string"|
    "bool"|"bytes"|"time": value}]}`; `bytes` is base64, padded or not, `time` RFC 3339.

    Raises:
        StatementError: another shape, a number out of range, no base64, no time.
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
    """Bytes that are text are stored as text, so that they equal the same string."""
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
    """How a time lies in a column: UTC to the microsecond, so that text order is its order."""
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
    """`text` has a `?` for each number in `order`, which is the parameter's index."""

    text: str
    order: tuple[int, ...]
    params: int

    def arrange(self, values: Sequence[Value]) -> list[Value]:
        """The parameters in the order of the placeholders."""
        if len(values) != self.params:
            raise StatementError(
                f"the statement has {self.params} placeholders, the request {len(values)} params"
            )
        return [values[index] for index in self.order]


def translate(statement: str, schemas: frozenset[str]) -> Statement:
    """A statement of PostgreSQL as SQLite takes it: placeholders and schema names.

    `public.t` becomes `t`, `s.t` of another configured schema the table `"s.t"`; what is
    inside literals, quoted names and comments stays.

    Raises:
        StatementError: not a query or a change of rows, or placeholders of both kinds.
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
    """The index of a placeholder's parameter; `before` is how many placeholders come first."""
    if kind == "mark":
        if text != "?":
            raise StatementError(f"placeholders are ? or $1, not {text}")
        return before
    number = int(text[1:]) if len(text) < 6 else 0
    if number < 1:
        raise StatementError(f"there is no placeholder {text[:20]}")
    return number - 1


def check_command(tokens: list[tuple[str, str]]) -> None:
    """Refuse what neither asks for rows nor changes them."""
    for kind, text in tokens:
        if kind == "space" or text.upper() in _BEFORE_COMMAND:
            continue
        if text.upper() not in _COMMANDS:
            raise StatementError(f"{text[:20].upper()} statements are not for applets")
        return
    raise StatementError("the statement is empty")


def join_schemas(tokens: list[tuple[str, str]], schemas: frozenset[str]) -> list[tuple[str, str]]:
    """The tokens with `public.t` as `t` and `s.t` as the table `"s.t"`."""
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
    """Whether a name, a dot and another name stand here, with no dot before them."""
    if at > 0 and tokens[at - 1][1] == ".":
        return False
    return at + 2 < len(tokens) and tokens[at + 1][1] == "." and bool(bare_name(tokens[at + 2]))


def bare_name(token: tuple[str, str]) -> str:
    """The name that a token is, without quotes; empty for everything else."""
    kind, text = token
    if kind == "quoted":
        return text[1:-1].replace('""', '"')
    return text if kind == "name" else ""


# ---------------------------------------------------------------- results


class Moment(str):
    """A time of a time column, shown as the Go struct."""

    __slots__ = ()


_ESCAPES = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


def shown_time(text: str) -> str:
    """A stored time as Go writes it: without zeros at the end of the fraction."""
    return text[:-1].rstrip("0").rstrip(".") + "Z"


def encode_rows(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """The JSON object of each row, keys in order; of two columns of a name the last counts."""
    places = {name: place for place, name in enumerate(names)}
    keys = [(places[name], _string(name) + ":") for name in sorted(places)]
    for row in rows:
        yield "{" + ",".join([key + _json(row[place]) for place, key in keys]) + "}"


def join_rows(rows: Sequence[str]) -> bytes:
    """No row is no bytes, one row an object, several an array of objects."""
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
        return _string("\\x" + value.hex())  # as PostgreSQL writes bytes that are no text
    return _string(value)


def _string(text: str) -> str:
    return str(encode_basestring(text)).translate(_ESCAPES)


def number_text(value: float) -> str:
    """A number as Go does: the shortest digits, an exponent below 1e-6 and from 1e21 on."""
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
