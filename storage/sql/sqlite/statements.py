"""Translation of applets' PostgreSQL statements for SQLite; pure functions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from fieldbrook.storage.sql.requests import Value
from fieldbrook.storage.sql.sqlite.preparation import effort
from fieldbrook.storage.sql.statements import (
    check_command,
    join_schemas,
    parameter_count_error,
    replace_placeholders,
)

_CACHED, _CACHED_LENGTH = 256, 4_096  # translated statements, and the characters of one

# The first character of a name is a letter, "_", or not ASCII. Python needs 9 ms to compile a class
# of these characters, and 0.2 ms for the negated class of the others.
_TOKEN = re.compile(
    r"""
      (?P<literal>'(?:[^']|'')*+')
    | (?P<quoted>"(?:[^"]|"")*+"|`(?:[^`]|``)*+`|\[[^\]]*+(?:\]|\Z))
    | (?P<space>[ \t\n\f\r\ufeff]+|--[^\n]*+|/\*.*?(?:\*/|\Z))
    | (?P<number>\$\d+)
    | (?P<mark>\?\d*)
    | (?P<name>[^\x00-@\[-^`{-\x7f][\w$]*+)
    | (?P<named>[:@$#][A-Za-z_]\w*+)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)


class Statement(NamedTuple):
    """A statement for SQLite: `order` has the parameter's index for each `?` in `text`.

    `effort` is an upper bound for the preparation of the statement (`preparation.effort`).
    """

    text: str
    order: tuple[int, ...]
    params: int
    effort: int

    def arrange(self, values: Sequence[Value]) -> list[Value]:
        """Return the parameters in the order of the placeholders.

        Raises:
            StatementError: the number of parameters is wrong.
        """
        if len(values) != self.params:
            raise parameter_count_error(self.params, len(values))
        return [values[index] for index in self.order]


def translate(statement: str, schemas: frozenset[str]) -> Statement:
    """Translate the placeholders and schema names of a PostgreSQL statement for SQLite.

    `public.t` becomes `t`; `s.t` of another configured schema becomes the table `"s.t"`. Literals
    and comments stay unchanged.

    Raises:
        StatementError: the statement neither queries nor changes rows, or has placeholders of both
            kinds.
    """
    if len(statement) > _CACHED_LENGTH:
        return _translate(statement, schemas)
    return _translate_cached(statement, schemas)


def _translate(statement: str, schemas: frozenset[str]) -> Statement:
    tokens = [(str(m.lastgroup), m.group()) for m in _TOKEN.finditer(statement)]
    check_command(tokens)
    text, order = replace_placeholders(join_schemas(tokens, schemas), lambda _: "?")
    return Statement(text, order, max(order, default=-1) + 1, effort(tokens))


_translate_cached = lru_cache(_CACHED)(_translate)
