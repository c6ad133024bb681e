"""Warnings of answers: the request succeeded but may not do what the client expects.

A JSON answer contains them as `warnings`, an answer without a body as header fields `Warning`. The
original interface has neither; its clients ignore both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import UNSET, UnsetType

from fieldbrook.core.model import DEFAULT_HANDLER, Resource, Strategy

_SHOWN = 20  # warnings of one answer; the others are only counted
# Some proxies limit the head of an answer to 4 KiB.
_HEADERS_SHOWN, _HEADER_CHARACTERS = 3, 200
_HANDLERS_SHOWN, _NAMES_CHARACTERS = 20, 400
SHARED_WORKER = (
    "the project had a worker of its own and shares one here, because the quota `dedicated` of "
    "your account is used up"
)
_AGENT = "299 fieldbrook"  # RFC 7234, 5.5: "Miscellaneous Persistent Warning"


def dead_strategy(strategy: Strategy, resource: Resource | None) -> list[str]:
    """Return the warning that a strategy is dead; empty for a strategy that works.

    Args:
        resource: the module of the strategy's applet; None if it was removed meanwhile.
    """
    if resource is None or resource.exports(strategy.handler):
        return []
    text = (
        f"strategy {strategy.event_type} is dead: the module exports no handler "
        f"{strategy.handler}, so its events become dead letters; {_exported(resource)}"
    )
    return [text]


def dead_strategies(
    strategies: Iterable[Strategy], resources: Mapping[int, Resource]
) -> Iterator[str]:
    """Return the warnings of all dead strategies; `resources` are the modules by applet id."""
    for strategy in strategies:
        yield from dead_strategy(strategy, resources.get(strategy.applet_id))


def renamed_applet(wanted: str, given: str) -> list[str]:
    """Return the warning that an applet did not get the requested name."""
    if wanted == given:
        return []
    return [f"the project has an applet named {wanted}; this one is named {given}"]


def no_strategy(resource: Resource) -> list[str]:
    """Return the warning that an applet has no strategy, because its module lacks the default
    handler."""
    text = (
        "the applet has no strategy and handles no event: the module exports no handler "
        f"{DEFAULT_HANDLER}; {_exported(resource)}"
    )
    return [text]


def listed(warnings: Iterable[str]) -> list[str] | UnsetType:
    """Return the field `warnings` of a JSON answer; it is absent without warnings."""
    return _bounded(list(warnings)) or UNSET


def header_values(warnings: Sequence[str]) -> list[str]:
    """Return the values of `Warning` header fields: quoted ASCII without control characters.

    Only the first 3 warnings are given, and each is cut to 200 characters.
    """
    short = [_cut(text, _HEADER_CHARACTERS) for text in _bounded(list(warnings), _HEADERS_SHOWN)]
    return [f"{_AGENT} {_quoted(text)}" for text in short]


def _bounded(warnings: list[str], limit: int = _SHOWN) -> list[str]:
    more = len(warnings) - limit
    return warnings if more <= 0 else [*warnings[:limit], f"and {more} more warnings"]


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}..."


def _exported(resource: Resource) -> str:
    names = resource.handlers
    more = ", ..." if len(names) > _HANDLERS_SHOWN else ""
    return f"it exports {_cut(', '.join(names[:_HANDLERS_SHOWN]), _NAMES_CHARACTERS)}{more}"


def _quoted(text: str) -> str:
    return json.dumps(text).replace("\x7f", "\\u007f")
