"""Speculation: the result of a shard's run, and its validation. Pure functions over values.

A shard runs a handler on the state that it can see: the store as of some commit, and the writes
of its own runs since. A `SpeculativeRun` records every answer that the host functions gave the
guest. The project validates it when it reaches that run in the order of events. If the
project would give the same answers, the run counts as if the project had made it. If not, the
result is dropped without effect.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgpack

from fieldbrook.wasm.run import (
    ApiCall,
    Capabilities,
    Effect,
    EffectRefusedError,
    Message,
    Metric,
    Run,
)

_INLINE_BYTES = 64  # values up to this size are compared themselves, longer ones by their hash
_WHOLE, _HASHED = b"=", b"#"
_PUBLISH, _CALL, _MEASURE = 0, 1, 2
TOPIC, API = "topic", "api"

# Texts of applets may hold lone surrogates, which must not prevent sending a run.
pack: Callable[[Any], bytes] = msgpack.Packer(
    use_bin_type=True, autoreset=True, unicode_errors="surrogatepass"
).pack


def unpack(data: bytes) -> Any:
    """Unpack a value; sequences become tuples."""
    return msgpack.unpackb(
        data, raw=False, use_list=False, strict_map_key=False, unicode_errors="surrogatepass"
    )


class SpeculativeRun(NamedTuple):
    """The result of a run in a shard.

    `reads` holds (stored key, `fingerprint` of its value) for each key that the run read.
    `queries` holds (question, arguments, answer) for each query to the capabilities. `seconds` is
    the CPU time of the run.
    """

    code: int
    error: str
    logs: Sequence[tuple[int, str, str]]
    writes: dict[bytes, bytes]
    effects: Sequence[Sequence[Any]]
    reads: Sequence[tuple[bytes, bytes | None]]
    queries: Sequence[tuple[str, Sequence[str], Any]]
    seconds: float


def fingerprint(value: bytes | None) -> bytes | None:
    """Return a short fingerprint of a value: itself or its BLAKE2b hash; None for no value."""
    if value is None:
        return None
    if len(value) <= _INLINE_BYTES:
        return _WHOLE + value
    return _HASHED + hashlib.blake2b(value, digest_size=32).digest()


def encode_effects(effects: Sequence[Effect]) -> list[tuple[int, Any, Any]]:
    """Return effects as rows for packing."""
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


def _decode_effect(row: Sequence[Any]) -> Effect:
    kind, first, second = row
    if kind == _PUBLISH:
        return Message(first, second)
    return ApiCall(first, second) if kind == _CALL else Metric(first)


def is_valid(
    speculative: SpeculativeRun, read: Callable[[bytes], bytes | None], capabilities: Capabilities
) -> bool:
    """Validate a shard's run: whether the project would now give the guest the same answers.

    Args:
        speculative: the result of the shard's run.
        read: returns the value of a stored key, as the next run would see it.
        capabilities: the capabilities of the next run.

    Raises:
        NodeError: `read` failed.
    """
    return all(fingerprint(read(key)) == sign for key, sign in speculative.reads) and all(
        answer_query(capabilities, question, arguments) == answer
        for question, arguments, answer in speculative.queries
    )


def answer_query(
    capabilities: Capabilities, question: str, arguments: Sequence[str]
) -> tuple[int, str] | str | None:
    """Ask capabilities about a topic or an API call; return the refusal, or None."""
    if question == API:
        refusal = capabilities.api_refusal(arguments[0], arguments[1])
        return None if refusal is None else (int(refusal[0]), refusal[1])
    try:
        capabilities.check_topic(arguments[0])
    except EffectRefusedError as error:
        return str(error)
    return None


def adopt(speculative: SpeculativeRun, run: Run) -> tuple[int, str]:
    """Copy a shard's logs, writes and effects into `run`; return its code and error."""
    run.logs.extend(speculative.logs)
    run.writes.update(speculative.writes)
    run.effects.extend(_decode_effect(row) for row in speculative.effects)
    return speculative.code, speculative.error
