"""Text for users: escapes control characters, counts objects, lists names."""

from __future__ import annotations

import json
from collections.abc import Sequence

_NAMES_SHOWN = 20


def printable(text: str) -> str:
    """Return the text with control characters as escapes, line breaks included; tabs stay."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode() for c in text
    )


def as_json(value: object, indent: int | None = None) -> str:
    """Return a value as JSON whose texts cannot control a terminal.

    JSON escapes only the control characters below U+0020; terminals obey others, too.
    """
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return "".join(c if c.isprintable() or c == "\n" else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1]


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, e.g. `1 monitor` or `3 strategies`."""
    return f"{number} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """Return the plural of a noun."""
    return f"{noun[:-1]}ies" if noun.endswith("gy") else f"{noun}s"


def available(noun: str, names: Sequence[str]) -> str:
    """Return a text that lists the existing names of a kind of object, at most 20."""
    if not names:
        return f"there are no {plural(noun)} yet"
    more = ", ..." if len(names) > _NAMES_SHOWN else ""
    return f"{plural(noun)}: {', '.join(printable(name) for name in names[:_NAMES_SHOWN])}{more}"
