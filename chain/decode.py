"""Reading a log by the declaration of its event.

What comes out is JSON: whole numbers as decimal strings (they have up to 256 bits), addresses
and bytes in hexadecimal, tuples as objects by the names of their members, arrays as arrays.
An indexed argument that is longer than a topic is its hash, which is all that the log has.

Source: the Contract ABI Specification of Solidity, "Events".
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import msgspec
from eth_abi.abi import decode
from eth_abi.exceptions import DecodingError

from fieldbrook.chain.logs import Log

DOES_NOT_FIT = "the log does not fit the declaration of its event"


class _Parameter(msgspec.Struct, frozen=True):
    type: str
    name: str = ""
    indexed: bool = False
    components: tuple[_Parameter, ...] = ()

    @property
    def canonical(self) -> str:
        if not self.type.startswith("tuple"):
            return self.type
        inner = ",".join(part.canonical for part in self.components)
        return f"({inner}){self.type.removeprefix('tuple')}"

    @property
    def fits_a_topic(self) -> bool:
        return self.type not in ("string", "bytes", "tuple") and not self.type.endswith("]")


class _Event(msgspec.Struct, frozen=True):
    name: str
    inputs: tuple[_Parameter, ...]


def make_decoder(declaration: str) -> Callable[[Log], dict[str, Any]]:
    """What reads the logs of an event.

    Args:
        declaration: JSON, as `EventAbi` of management writes it.

    Returns:
        A function from a log to `{"event": signature, "args": {name: value}}`; `args` is null
        and `argsError` says why for a log that only begins like one of this event.
    """
    event = msgspec.json.decode(declaration, type=_Event)
    signature = f"{event.name}({','.join(part.canonical for part in event.inputs)})"

    def read(log: Log) -> dict[str, Any]:
        try:
            return {"event": signature, "args": _arguments(event, log)}
        except (DecodingError, ValueError, OverflowError, RecursionError):
            return {"event": signature, "args": None, "argsError": DOES_NOT_FIT}

    return read


def _arguments(event: _Event, log: Log) -> dict[str, Any]:
    topics = iter(log.topics[1:])
    plain = [part for part in event.inputs if not part.indexed]
    if len(log.topics) - 1 != len(event.inputs) - len(plain):
        raise ValueError(DOES_NOT_FIT)
    data = bytes.fromhex(log.data[2:])
    values = iter(decode([part.canonical for part in plain], data))
    arguments = {}
    for number, part in enumerate(event.inputs):
        value = _indexed(part, next(topics)) if part.indexed else _json(part, next(values))
        arguments[_name(part, number)] = value
    return arguments


def _indexed(part: _Parameter, topic: str) -> Any:
    if not part.fits_a_topic:
        return topic
    (value,) = decode([part.canonical], bytes.fromhex(topic[2:]))
    return _json(part, value)


def _json(part: _Parameter, value: Any) -> Any:
    if part.type.endswith("]"):
        inner = _Parameter(part.type[: part.type.rindex("[")], components=part.components)
        return [_json(inner, item) for item in value]
    if part.type == "tuple":
        named = zip(itertools.count(), part.components, value, strict=False)
        return {_name(inner, number): _json(inner, item) for number, inner, item in named}
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, bool):
        return value
    return str(value)


def _name(part: _Parameter, number: int) -> str:
    return part.name or f"arg{number}"
