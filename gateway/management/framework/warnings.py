"""Warnings: what an answer says about a request that was carried out and may not do what its
sender expects.

They stand under `warnings` in a JSON answer and in header fields `Warning` of an answer that
has no body. The interface has neither; its clients skip both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from fieldbrook.core.model import DEFAULT_HANDLER, Resource, Strategy

_SHOWN = 20  # warnings of one answer; the rest is a number
# Proxies have as little as 4 KiB for the head of an answer.
_HEADERS_SHOWN, _HEADER_CHARACTERS = 3, 200
_HANDLERS_SHOWN, _NAMES_CHARACTERS = 20, 400
_AGENT = "299 fieldbrook"  # RFC 7234, 5.5: a lasting warning of any kind


def of_strategy(strategy: Strategy, resource: Resource | None) -> list[str]:
    """Why a strategy is dead; nothing for one that works.

    Args:
        resource: the module of its applet; None when it was removed meanwhile.
    """
    if resource is None or resource.exports(strategy.handler):
        return []
    text = (
        f"strategy {strategy.event_type} is dead: the module exports no handler "
        f"{strategy.handler}, so its events become dead letters; {_exported(resource)}"
    )
    return [text]


def of_strategies(
    strategies: Iterable[Strategy], resources: Mapping[int, Resource]
) -> Iterator[str]:
    """Why some of the strategies are dead; `resources` are the modules by applet id."""
    for strategy in strategies:
        yield from of_strategy(strategy, resources.get(strategy.applet_id))


def of_name(wanted: str, given: str) -> list[str]:
    """That an applet is not called what its uploader wanted."""
    if wanted == given:
        return []
    return [f"the project has an applet named {wanted}; this one is named {given}"]


def of_no_strategy(resource: Resource) -> list[str]:
    """That a new applet has no strategy, because its module lacks the default handler."""
    text = (
        "the applet has no strategy and handles no event: the module exports no handler "
        f"{DEFAULT_HANDLER}; {_exported(resource)}"
    )
    return [text]


def shown(warnings: Iterable[str]) -> dict[str, list[str]]:
    """What to add to a JSON answer: `{"warnings": [...]}`, or nothing without any."""
    listed = _bounded(list(warnings))
    return {"warnings": listed} if listed else {}


def header_values(warnings: Sequence[str]) -> list[str]:
    """The values of `Warning` header fields: quoted ASCII, without control characters. Only the
    first few are given, and long ones are cut."""
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
