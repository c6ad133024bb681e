"""Checks of applets' statements that both databases share.

Applets were written for PostgreSQL behind a Go host: placeholders are `?` or `$1`, and tables
may carry the name of their schema. A tokenizer of its own for each database splits a statement;
the functions here work on its tokens, pairs of a kind and the text.

Source: ABI document, 3.1 (SQL request).
"""

from __future__ import annotations

from collections.abc import Callable

from fieldbrook.core.errors import StatementError
from fieldbrook.storage.sql.schema import PUBLIC, quoted

Token = tuple[str, str]

_COMMANDS = frozenset({"SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH", "VALUES"})
_BEFORE_COMMAND = frozenset({"(", "EXPLAIN", "QUERY", "PLAN"})


def check_command(tokens: list[Token]) -> None:
    """Refuse statements that neither query nor change rows.

    Raises:
        StatementError: it is another kind of statement, or empty.
    """
    for kind, text in tokens:
        if kind == "space" or text.upper() in _BEFORE_COMMAND:
            continue
        if text.upper() not in _COMMANDS:
            raise StatementError(f"applets may not run {text[:20].upper()} statements")
        return
    raise StatementError("the statement is empty")


def replace_placeholders(
    tokens: list[Token], render: Callable[[int], str]
) -> tuple[str, tuple[int, ...]]:
    """Replace the placeholders `?` and `$1`, and join the tokens to a text.

    Args:
        tokens: placeholders have the kinds `mark` (`?`), `number` (`$1`) and `named`.
        render: returns the text for a placeholder, given the index of its parameter.

    Returns:
        The text, and the index of each placeholder's parameter.

    Raises:
        StatementError: a placeholder of another form, or of both forms in one statement.
    """
    parts: list[str] = []
    order: list[int] = []
    kinds: set[str] = set()
    for kind, text in tokens:
        if kind in ("mark", "number"):
            kinds.add(kind)
            order.append(_parameter_index(kind, text, len(order)))
            parts.append(render(order[-1]))
        elif kind == "named":
            raise StatementError(f"placeholders are ? or $1, not {text}")
        else:
            parts.append(text)
    if len(kinds) > 1:
        raise StatementError("placeholders are ? or $1, not both in one statement")
    return "".join(parts), tuple(order)


def parameter_count_error(expected: int, given: int) -> StatementError:
    """Return the error for a request with another number of parameters than placeholders."""
    return StatementError(f"the statement has {expected} placeholders, the request {given} params")


def _parameter_index(kind: str, text: str, before: int) -> int:
    """Return the index of a placeholder's parameter; `before` is the number of earlier
    placeholders."""
    if kind == "mark":
        if text != "?":
            raise StatementError(f"placeholders are ? or $1, not {text}")
        return before
    number = int(text[1:]) if len(text) < 6 else 0
    if number < 1:
        raise StatementError(f"there is no placeholder {text[:20]}")
    return number - 1


def join_schemas(tokens: list[Token], schemas: frozenset[str]) -> list[Token]:
    """Replace `public.t` by `t`, and `s.t` by the table `"s.t"`, in a list of tokens."""
    joined: list[Token] = []
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


def _is_dotted(tokens: list[Token], at: int) -> bool:
    """Return whether a name, a dot and another name follow here, without a dot before them."""
    if at > 0 and tokens[at - 1][1] == ".":
        return False
    return at + 2 < len(tokens) and tokens[at + 1][1] == "." and bool(bare_name(tokens[at + 2]))


def bare_name(token: Token) -> str:
    """Return the name in a token, without quotes; empty for other tokens."""
    kind, text = token
    if kind == "quoted":
        return text[1:-1].replace('""', '"')
    return text if kind == "name" else ""
