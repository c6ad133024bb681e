"""What a shard tells of a run, and whether that is still so: pure functions over values.

A shard runs a handler on what it can see: the store as of some commit and what it has run
itself since. Whatever its host functions told the guest is noted here. If the project, when
it comes to that run in the order of events, would have told it the same, the run counts as
if the project had made it; if not, it has never been.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgpack

from fieldbrook.wasm.run import (
    ApiCall,
    Effect,
    EffectRefusedError,
    Message,
    Metric,
    Run,
    Surroundings,
)

_INLINE_BYTES = 64  # a value of up to so much stands for itself, a longer one is hashed
_WHOLE, _HASHED = b"=", b"#"
_PUBLISH, _CALL, _MEASURE = 0, 1, 2
TOPIC, API = "topic", "api"

# Texts of applets and of the engine; nothing in them may keep a run from being told.
pack: Callable[[Any], bytes] = msgpack.Packer(
    use_bin_type=True, autoreset=True, unicode_errors="surrogatepass"
).pack


def unpack(data: bytes) -> Any:
    """A packed value; sequences come as tuples."""
    return msgpack.unpackb(
        data, raw=False, use_list=False, strict_map_key=False, unicode_errors="surrogatepass"
    )


class Finding(NamedTuple):
    """A run as a shard made it. `reads` holds (stored key, `sign_of` what was there) for each
    key that was looked up, `asked` (question, arguments, answer) for each question to the
    surroundings, `seconds` is how long it took."""

    code: int
    error: str
    logs: Sequence[tuple[int, str, str]]
    writes: dict[bytes, bytes]
    effects: Sequence[Sequence[Any]]
    reads: Sequence[tuple[bytes, bytes | None]]
    asked: Sequence[tuple[str, Sequence[str], Any]]
    seconds: float


def sign_of(value: bytes | None) -> bytes | None:
    """What two values have in common only if they are the same; None for no value."""
    if value is None:
        return None
    if len(value) <= _INLINE_BYTES:
        return _WHOLE + value
    return _HASHED + hashlib.blake2b(value, digest_size=32).digest()


def told(effects: Sequence[Effect]) -> list[tuple[int, Any, Any]]:
    """Effects as they travel."""
    rows: list[tuple[int, Any, Any]] = []
    for effect in effects:
        match effect:
            case Message(topic=topic, payload=payload):
                rows.append((_PUBLISH, topic, payload))
            case ApiCall(event_type=event_type, request=request):
                rows.append((_CALL, event_type, request))
            case Metric(value=value):
                rows.append((_MEASURE, value, None))
    return rows


def _effect(row: Sequence[Any]) -> Effect:
    kind, first, second = row
    if kind == _PUBLISH:
        return Message(first, second)
    return ApiCall(first, second) if kind == _CALL else Metric(first)


def still_so(
    finding: Finding, read: Callable[[bytes], bytes | None], surroundings: Surroundings
) -> bool:
    """Whether the project would tell the guest now what the shard has told it.

    Args:
        finding: the run.
        read: the value of a stored key, as the next run would see it.
        surroundings: what the next run could reach.

    Raises:
        NodeError: what `read` raises.
    """
    return all(sign_of(read(key)) == sign for key, sign in finding.reads) and all(
        answer_of(surroundings, question, arguments) == answer
        for question, arguments, answer in finding.asked
    )


def answer_of(
    surroundings: Surroundings, question: str, arguments: Sequence[str]
) -> tuple[int, str] | str | None:
    """What surroundings say about a topic (the refusal, or None) or a request."""
    if question == API:
        refusal = surroundings.api_refusal(arguments[0], arguments[1])
        return None if refusal is None else (int(refusal[0]), refusal[1])
    try:
        surroundings.check_topic(arguments[0])
    except EffectRefusedError as error:
        return str(error)
    return None


def take_over(finding: Finding, run: Run) -> tuple[int, str]:
    """Make `run` one that has run so, and give its code and error."""
    run.logs.extend(finding.logs)
    run.writes.update(finding.writes)
    run.effects.extend(_effect(row) for row in finding.effects)
    return finding.code, finding.error
