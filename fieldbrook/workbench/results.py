"""Results of runs: as JSON, and compared with expected ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from fieldbrook.wasm.module import abi
from fieldbrook.wasm.run import Effect
from fieldbrook.workbench.files import Json, store_to_json, to_json, to_text
from fieldbrook.workbench.runs import Outcome

_SHOWN_VALUE = 200  # characters of a value or payload that are shown to users
_COMPARED_IN_ORDER = 200  # lines


def describe(outcome: Outcome) -> Json:
    """Return an outcome without its duration, in the form of `--json` and of expectations."""
    return {
        "event_type": outcome.trial.event_type,
        "handler": outcome.trial.handler,
        "code": outcome.code,
        "error": outcome.error,
        "logs": [_log(*record) for record in outcome.logs],
        "writes": store_to_json(outcome.writes),
        "effects": [_effect(effect) for effect in outcome.effects],
    }


def describe_events(events: Sequence[tuple[str, bytes]]) -> list[Json]:
    """Return events in the form that `--json` prints."""
    return [{"event_type": kind, "payload": to_text(payload)} for kind, payload in events]


def differences(expected: Json, found: Json) -> list[str]:
    """Describe each difference in one text; only fields that the expectation has are compared."""
    return [
        f"{name}: expected {to_json(value)}, found {to_json(found.get(name))}"
        for name, value in expected.items()
        if found.get(name) != value
    ]


def lines(result: Json) -> list[str]:
    """Return a result of `describe` as lines for users, without the event and the handler."""
    error = result["error"]
    shown = [f"trap     {error}" if error else f"code     {result['code']}"]
    for level, text, *source in result["logs"]:
        origin = f" [{source[0]}]" if source else ""
        shown.append(f"log      {level}{origin}: {text}")
    shown += [f"write    {key} = {cut(value)}" for key, value in result["writes"].items()]
    for effect in result["effects"]:
        values = ", ".join(f"{k}={cut(str(v))}" for k, v in effect.items() if k != "kind")
        shown.append(f"effect   {effect['kind']}: {values}")
    return shown


def cut(text: str) -> str:
    """Return the start of a long text, with the number of missing characters."""
    more = len(text) - _SHOWN_VALUE
    return text if more <= 0 else f"{text[:_SHOWN_VALUE]}... and {more} characters"


def changes(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """Return the lines that are only in one of two lists: those of `before` with `- `, those of
    `after` with `+ `.

    Lists with more than 200 lines are compared without order, because the time of a comparison in
    order grows with the square of their length.
    """
    if max(len(before), len(after)) > _COMPARED_IN_ORDER:
        return list(_changes_of_sets(before, after))
    shown: list[str] = []
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for kind, a, a_end, b, b_end in matcher.get_opcodes():
        if kind != "equal":
            shown += [f"- {line}" for line in before[a:a_end]]
            shown += [f"+ {line}" for line in after[b:b_end]]
    return shown


def _changes_of_sets(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    had, has = set(before), set(after)
    yield from (f"- {line}" for line in before if line not in has)
    yield from (f"+ {line}" for line in after if line not in had)


def _log(level: int, source: str, text: str) -> list[str]:
    own = [] if source == abi.SOURCE_GUEST else [source]
    return [abi.level_name(level), text, *own]


def _effect(effect: Effect) -> Json:
    fields = {
        name: to_text(value) if isinstance(value, bytes) else value
        for name, value in effect._asdict().items()
    }
    return {"kind": type(effect).__name__, **fields}
