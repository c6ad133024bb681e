"""Results of runs: as JSON, and compared with expected ones."""

from __future__ import annotations

from collections.abc import Sequence

from fieldbrook.wasm.module import abi
from fieldbrook.wasm.run import Effect
from fieldbrook.workbench.files import Json, store_to_json, to_json, to_text
from fieldbrook.workbench.runs import Outcome


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


def _log(level: int, source: str, text: str) -> list[str]:
    own = [] if source == abi.SOURCE_GUEST else [source]
    return [abi.level_name(level), text, *own]


def _effect(effect: Effect) -> Json:
    fields = {
        name: to_text(value) if isinstance(value, bytes) else value
        for name, value in effect._asdict().items()
    }
    return {"kind": type(effect).__name__, **fields}
