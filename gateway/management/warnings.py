"""Warnings: what an answer says about a request that was carried out and may not do what its
sender expects.

They stand under `warnings` in a JSON answer and in header fields `Warning` of an answer that
has no body. The interface has neither; its clients skip both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from fieldbrook.model import DEFAULT_HANDLER, Resource, Strategy

_SHOWN = 20  # warnings of one answer; the rest is a number
_HANDLERS_SHOWN = 20
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
    """The values of `Warning` header fields: quoted ASCII, without control characters."""
    return [f"{_AGENT} {_quoted(text)}" for text in _bounded(list(warnings))]


def _bounded(warnings: list[str]) -> list[str]:
    more = len(warnings) - _SHOWN
    return warnings if more <= 0 else [*warnings[:_SHOWN], f"and {more} more warnings"]


def _exported(resource: Resource) -> str:
    names = resource.handlers
    more = ", ..." if len(names) > _HANDLERS_SHOWN else ""
    return f"it exports {', '.join(names[:_HANDLERS_SHOWN])}{more}"


def _quoted(text: str) -> str:
    return json.dumps(text).replace("\x7f", "\\u007f")
