"""Functions that replace SQLite's own in applets' statements.

Functions of time and random numbers become repeatable: a write that is replayed has the same
result. Functions that could run for seconds over long values, in one instruction that the time
limit cannot interrupt, become bounded.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from fieldbrook.storage.sql.requests import Value
from fieldbrook.storage.sql.sqlite.guard import VALUE_LIMIT

_CLOCKS = ("date", "time", "datetime", "julianday", "unixepoch", "strftime")
_TRIMMED_LIMIT = 256  # characters
# The largest product of the lengths of two documents to merge. Each key of one document is searched
# among all keys of the other. Within this limit, that takes less than half a second; with documents
# of two megabytes it takes a minute.
_MERGED_LIMIT = 1 << 32


class AppletFunctions:
    """The replaced functions of one connection.

    `now` is their present time, in its stored form. For each statement, `seed` is set and
    `generator` is set to None; the first random function of the statement makes the generator from
    the seed.
    """

    def __init__(self) -> None:
        self.now = ""
        self.seed = 0
        self.generator: random.Random | None = None
        self._builtin: sqlite3.Connection | None = None

    def install(self, connection: sqlite3.Connection) -> None:
        """Define the functions on a connection."""
        define = connection.create_function
        define("random", 0, self._random_integer)
        define("randomblob", 1, self._random_bytes)
        define("now", 0, lambda: self.now, deterministic=True)
        define("current_timestamp", 0, lambda: self.now, deterministic=True)
        define("current_date", 0, lambda: self.now[:10], deterministic=True)
        define("current_time", 0, lambda: self.now[11:19], deterministic=True)
        # The built-in functions can take seconds over the longest values, in one instruction that
        # the time limit cannot interrupt.
        define("instr", 2, _instr, deterministic=True)
        define("replace", 3, _replace, deterministic=True)
        for name, strip in (("trim", str.strip), ("ltrim", str.lstrip), ("rtrim", str.rstrip)):
            define(name, -1, _trimming(strip), deterministic=True)
        for name in ("printf", "format"):
            define(name, -1, self._printing(name), deterministic=True)
        for name in ("json_patch", "jsonb_patch"):
            define(name, 2, self._merging(name), deterministic=True)
        for name in _CLOCKS:
            define(name, -1, self._timed(name), deterministic=True)

    def close(self) -> None:
        """Close the connection on which the built-in functions run."""
        builtin, self._builtin = self._builtin, None
        if builtin is not None:
            builtin.close()

    def _generator(self) -> random.Random:
        if self.generator is None:
            self.generator = random.Random(self.seed)  # noqa: S311 - it must repeat itself
        return self.generator

    def _random_integer(self) -> int:
        return self._generator().getrandbits(64) - (1 << 63)

    def _random_bytes(self, size: Any) -> bytes:
        wanted = size if isinstance(size, int) else 1
        if wanted > VALUE_LIMIT:
            raise ValueError(wanted)
        return self._generator().randbytes(max(wanted, 1))

    def _timed(self, function: str) -> Callable[..., Value]:
        """Wrap a date function so that `now` is the batch's time, as in PostgreSQL transactions."""
        place = 1 if function == "strftime" else 0

        def call(*given: Value) -> Value:
            arguments = list(given)
            if len(arguments) == place:
                arguments.append(self.now)
            elif len(arguments) > place:
                moment = arguments[place]
                if isinstance(moment, str) and moment.strip().lower() == "now":
                    arguments[place] = self.now
            return self._call_builtin(function, arguments)

        return call

    def _printing(self, function: str) -> Callable[..., Value]:
        """Wrap a formatting function to refuse `%.Nc`, for which SQLite needs N steps.

        The limit on the size of a value does not bound these steps.
        """

        def call(*given: Value) -> Value:
            if given and given[0] is not None and _repeats_a_character(_as_text(given[0])):
                raise ValueError("%c takes no precision")
            return self._call_builtin(function, given)

        return call

    def _merging(self, function: str) -> Callable[..., Value]:
        """Wrap a function that merges documents to refuse long ones.

        Other functions do not treat the result as JSON, but a statement cannot combine them with
        this one.
        """

        def call(*given: Value) -> Value:
            first, second = (len(v) if isinstance(v, str | bytes) else 1 for v in given)
            if first * second > _MERGED_LIMIT:
                raise ValueError("the documents are too long to be merged")
            return self._call_builtin(function, given)

        return call

    def _call_builtin(self, function: str, arguments: Sequence[Value]) -> Value:
        """Call SQLite's built-in function, on a connection where it is not replaced."""
        if self._builtin is None:
            self._builtin = sqlite3.connect(":memory:", check_same_thread=False)
            self._builtin.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_LIMIT)
        marks = ",".join("?" * len(arguments))
        row = self._builtin.execute(f"SELECT {function}({marks})", arguments).fetchone()
        value: Value = row[0]
        return value


def _as_text(value: Value) -> str:
    return decode_text(value) if isinstance(value, bytes) else str(value)


def _instr(whole: Value, part: Value) -> int | None:
    if whole is None or part is None:
        return None
    if isinstance(whole, bytes) and isinstance(part, bytes):
        return whole.find(part) + 1
    return _as_text(whole).find(_as_text(part)) + 1


def _repeats_a_character(form: str) -> bool:
    """Return whether a format has `%c` with a precision, which repeats the character that often."""
    for part in form.split("%")[1:]:
        options, letter, _ = part.partition("c")
        ends_before = any(sign.isalpha() and sign != "l" for sign in options)
        if letter and "." in options and not ends_before:
            return True
    return False


def _replace(whole: Value, old: Value, new: Value) -> str | None:
    if whole is None or old is None or new is None:
        return None
    text, before, after = _as_text(whole), _as_text(old), _as_text(new)
    if not before:
        return text
    if len(text) + text.count(before) * (len(after) - len(before)) > VALUE_LIMIT:
        raise ValueError("string or blob too big")
    return text.replace(before, after)


def _trimming(strip: Callable[[str, str], str]) -> Callable[..., str | None]:
    def call(whole: Value, characters: Value = " ") -> str | None:
        if whole is None or characters is None:
            return None
        given = _as_text(characters)
        if len(given) > _TRIMMED_LIMIT:
            raise ValueError("too many characters to trim")
        return strip(_as_text(whole), given) if given else _as_text(whole)

    return call


def decode_text(raw: bytes) -> str:
    """Decode UTF-8; invalid bytes become U+FFFD."""
    return raw.decode("utf-8", "replace")


def compare_decimals(first: str, second: str) -> int:
    """Compare two decimals for the collation `migration.DECIMAL_COLLATION`: -1, 0 or 1."""
    try:
        a, b = Decimal(first), Decimal(second)
        return (a > b) - (a < b)
    except InvalidOperation:
        return (first > second) - (first < second)
