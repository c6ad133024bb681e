"""Selection of contract events by an ABI or by a signature.

A signature is the Solidity declaration without `event`: `Transfer(address,address,uint256)`, or
`Transfer(address indexed from, address indexed to, uint256 value)`. The second form says which
arguments are indexed, so logs can be decoded with it; the first form only selects logs.

Source: the Contract ABI Specification of Solidity, "Events" and "JSON".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fieldbrook.chain.blocks.abi_size import ARRAYS_LIMIT
from fieldbrook.security.keccak import keccak256

FRAGMENT_LIMIT_BYTES = 16_384
_DEPTH_LIMIT = 8
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]{0,127}\Z", re.ASCII)
_TYPE = re.compile(
    r"(?:address|bool|string|bytes(?:[1-9]|[12][0-9]|3[0-2])?|u?int(?P<bits>[0-9]{1,3})?|tuple)"
    r"(?P<arrays>(?:\[(?:[1-9][0-9]{0,3})?\])*)\Z",
    re.ASCII,
)
_TOKEN = re.compile(r"\s*([A-Za-z0-9_$]+|\[[0-9]*\]|[(),])", re.ASCII)


class EventError(ValueError):
    """A declaration cannot be used; the message gives the reason."""


class Parameter(msgspec.Struct, frozen=True, omit_defaults=True):
    """One argument of an event, or a member of a tuple."""

    type: str
    name: str = ""
    indexed: bool = False
    components: tuple[Parameter, ...] = ()

    @property
    def canonical(self) -> str:
        """The canonical type for signatures, with tuples written out."""
        if not self.type.startswith("tuple"):
            return self.type
        inner = ",".join(part.canonical for part in self.components)
        return f"({inner}){self.type.removeprefix('tuple')}"


class EventAbi(msgspec.Struct, frozen=True):
    """An event's declaration."""

    name: str
    inputs: tuple[Parameter, ...]

    @property
    def signature(self) -> str:
        """The signature, such as `Transfer(address,address,uint256)`."""
        return f"{self.name}({','.join(part.canonical for part in self.inputs)})"

    @property
    def topic(self) -> str:
        """The first topic of the event's logs."""
        return "0x" + keccak256(self.signature.encode()).hex()


class SelectedEvent(msgspec.Struct, frozen=True):
    """A selected event; `decodable` says whether its logs can be decoded."""

    event: EventAbi
    decodable: bool


def select_event(wanted: str, abi: Sequence[Mapping[str, Any]]) -> SelectedEvent:
    """Select an event by its name or its signature.

    Args:
        wanted: a name or a signature; it may be empty if the ABI has a single event.
        abi: the JSON ABI of a contract; empty for none.

    Raises:
        EventError: no event or several events match, or the text or the ABI is malformed.
    """
    if not abi:
        if "(" not in wanted:
            raise EventError("must be a signature if no ABI is given, e.g. Transfer(address,...)")
        event, marked = parse_signature(wanted)
        return SelectedEvent(event, marked or not event.inputs)
    events = [_read(entry) for entry in abi if entry.get("type") == "event"]
    if not events:
        raise EventError("the ABI has no event")
    if "(" in wanted:
        signature = parse_signature(wanted)[0].signature
        found = [event for event in events if event.signature == signature]
    elif wanted:
        found = [event for event in events if event.name == wanted]
    else:
        found = events
    if len(found) == 1:
        return SelectedEvent(found[0], decodable=True)
    names = ", ".join(sorted({event.signature for event in events}))[:500]
    how = "no event" if not found else "more than one event"
    raise EventError(f"{how} of the ABI matches; the ABI has {names}")


def signatures(abi: Sequence[Mapping[str, Any]]) -> list[str]:
    """The signatures of the events in an ABI, in its order.

    Raises:
        EventError: the declaration of an event is malformed.
    """
    events = [_read(entry) for entry in abi if entry.get("type") == "event"]
    return list(dict.fromkeys(e.signature for e in events if _NAME.match(e.name)))


def parse_signature(text: str) -> tuple[EventAbi, bool]:
    """Parse a signature; return the event, and whether the indexed arguments are known.

    Raises:
        EventError: the signature is malformed.
    """
    if len(text) > FRAGMENT_LIMIT_BYTES:
        raise EventError(f"a signature has at most {FRAGMENT_LIMIT_BYTES} characters")
    tokens = _Tokens(text.strip().removeprefix("event ").rstrip(";"))
    name = tokens.advance()
    if not _NAME.match(name) or not tokens.accept("(") or not tokens.peek:
        raise EventError("not a signature: NAME(TYPE,...)")
    inputs = _parameters(tokens, 0)
    if tokens.peek:
        raise EventError(f"unexpected {tokens.peek[:40]!r} after the signature")
    event = EventAbi(name, inputs)
    _check(event)
    return event, any(part.indexed for part in inputs)


def encode(event: EventAbi) -> str:
    """Encode a declaration in the form that a monitor stores."""
    text = msgspec.json.encode(event).decode()
    if len(text) > FRAGMENT_LIMIT_BYTES:
        raise EventError(f"its declaration has more than {FRAGMENT_LIMIT_BYTES} bytes")
    return text


def _read(entry: Mapping[str, Any]) -> EventAbi:
    try:
        event = msgspec.convert(entry, EventAbi)
    except (msgspec.ValidationError, RecursionError) as error:
        raise EventError(f"an event of the ABI is malformed: {error}") from None
    if entry.get("anonymous"):
        # An anonymous event has no topic that selects its logs. The changed name makes sure that
        # no wanted name or signature matches it.
        return EventAbi(f"{event.name} (anonymous)", event.inputs)
    _check(event)
    return event


def _check(event: EventAbi) -> None:
    if not _NAME.match(event.name):
        raise EventError(f"{event.name[:40]!r} is not a valid name")
    if sum(part.indexed for part in event.inputs) > 3:
        raise EventError(f"{event.name} has more than three indexed arguments")
    for part in event.inputs:
        _check_parameter(part, 0)


def _check_parameter(part: Parameter, depth: int) -> None:
    found = _TYPE.match(part.type)
    bits = found["bits"] if found else None
    if found is None or (bits and (int(bits) % 8 or not 8 <= int(bits) <= 256)):
        raise EventError(f"{part.type[:40]!r} is not a valid type (write uint256, not uint)")
    if part.type.rstrip("[]0123456789") in ("uint", "int") and not bits:
        raise EventError(f"{part.type[:40]!r} is not a valid type (write uint256, not uint)")
    if part.type.count("[") > ARRAYS_LIMIT:
        raise EventError(f"{part.type[:40]!r} has more than {ARRAYS_LIMIT} nested arrays")
    if part.type.startswith("tuple") != bool(part.components) or depth > _DEPTH_LIMIT:
        raise EventError(f"{part.type[:40]!r} does not match its components")
    for inner in part.components:
        _check_parameter(inner, depth + 1)


class _Tokens:
    """The tokens of a signature, read one after the other without copying the rest."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        self._at = 0
        text, at = text.rstrip(), 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise EventError(f"unexpected {text[at : at + 20]!r} in the signature")
            self._tokens.append(found[1])
            at = found.end()

    @property
    def peek(self) -> str:
        """The next token, without consuming it; "" at the end."""
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def advance(self) -> str:
        """Consume and return the next token; "" at the end."""
        token = self.peek
        self._at += 1
        return token

    def accept(self, token: str) -> bool:
        """Consume the next token if it is `token`; return whether it was."""
        if self.peek != token:
            return False
        self._at += 1
        return True


def _parameters(tokens: _Tokens, depth: int) -> tuple[Parameter, ...]:
    """Parse parameters up to the closing parenthesis."""
    parts: list[Parameter] = []
    if tokens.accept(")"):
        return ()
    while True:
        parts.append(_parameter(tokens, depth))
        separator = tokens.advance()
        if separator == ")":
            return tuple(parts)
        if separator != ",":
            raise EventError("a parenthesis is not closed")


def _parameter(tokens: _Tokens, depth: int) -> Parameter:
    components: tuple[Parameter, ...] = ()
    tokens.accept("tuple")
    if tokens.accept("("):
        if depth > _DEPTH_LIMIT:
            raise EventError("tuples are nested too deeply")
        components = _parameters(tokens, depth + 1)
        kind = "tuple"
    elif tokens.peek not in ("", ")", ","):
        kind = tokens.advance()
        kind = {"uint": "uint256", "int": "int256"}.get(kind, kind)
    else:
        raise EventError("a type is missing")
    arrays = []
    while tokens.peek.startswith("["):
        arrays.append(tokens.advance())
    indexed = tokens.accept("indexed")
    name = tokens.advance() if tokens.peek not in ("", ")", ",") else ""
    return Parameter(kind + "".join(arrays), name, indexed, components)
