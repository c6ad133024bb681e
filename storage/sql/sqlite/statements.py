"""Translation of applets' PostgreSQL statements for SQLite; pure functions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from fieldbrook.storage.sql.requests import Value
from fieldbrook.storage.sql.statements import (
    check_command,
    join_schemas,
    parameter_count_error,
    replace_placeholders,
)

_CACHED = 256  # translated statements

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
            raise parameter_count_error(self.params, len(values))
        return [values[index] for index in self.order]


@lru_cache(_CACHED)
def translate(statement: str, schemas: frozenset[str]) -> Statement:
    """Translate the placeholders and schema names of a PostgreSQL statement for SQLite.

    `public.t` becomes `t`; `s.t` of another configured schema becomes the table `"s.t"`. Literals
    and comments stay unchanged.

    Raises:
        StatementError: neither a query nor a change of rows, or placeholders of both kinds.
    """
    tokens = [(str(m.lastgroup), m.group()) for m in _TOKEN.finditer(statement)]
    check_command(tokens)
    text, order = replace_placeholders(join_schemas(tokens, schemas), lambda _: "?")
    return Statement(text, order, max(order, default=-1) + 1)
