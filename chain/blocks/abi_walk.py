"""How much a log stands for, before it is read.

Anybody may be able to make a contract write a log, and pointers that all lead to the same place
make a few kilobytes stand for more than a machine has room for: 64 KB of `bytes[][]` keep a
decoder busy for minutes. Nothing that is encoded as compilers do has more words than its data.

Source: the Contract ABI Specification of Solidity, "Formal Specification of the Encoding".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

_WORD = 32
_SPARE_WORDS = 16
ARRAYS_LIMIT = 8
"""Arrays within arrays. Decoders go through them by recursion, some of them for each value."""


class Parameter(msgspec.Struct, frozen=True):
    """An argument or a member of a tuple, as a JSON ABI has it. Arrays have no length of 0."""

    type: str
    indexed: bool = False
    components: tuple[Parameter, ...] = ()


class Shape(NamedTuple):
    """What a type means for the walk, worked out once: `size` is how many bytes it takes where
    it stands, `is_dynamic` that a pointer stands there instead."""

    kind: Literal["array", "tuple", "bytes", "word"]
    size: int
    is_dynamic: bool
    parts: tuple[Shape, ...] = ()
    """Members of a tuple; of an array the one shape that its items have."""
    length: int | None = None
    """How many an array has; None when its data says that."""


def shapes(parameters: Sequence[Parameter]) -> tuple[Shape, ...]:
    """The shapes of parameters.

    Raises:
        ValueError: more arrays lie within each other than a monitor may have.
    """
    return tuple(_shape(part) for part in parameters)


def _shape(part: Parameter) -> Shape:
    base, *arrays = part.type.split("[")
    if len(arrays) > ARRAYS_LIMIT:
        raise ValueError(f"more than {ARRAYS_LIMIT} arrays within each other")
    if base == "tuple":
        members = shapes(part.components)
        is_dynamic = any(member.is_dynamic for member in members)
        size = _WORD if is_dynamic else sum(member.size for member in members)
        found = Shape("tuple", size, is_dynamic, members)
    elif base in ("string", "bytes"):
        found = Shape("bytes", _WORD, True)
    else:
        found = Shape("word", _WORD, False)
    for text in arrays:
        length = int(text[:-1]) if text[:-1] else None
        is_dynamic = length is None or found.is_dynamic
        size = _WORD if is_dynamic else (length or 0) * found.size
        found = Shape("array", size, is_dynamic, (found,), length)
    return found


class _TooMuchError(Exception):
    pass


def is_plain(parameters: Sequence[Shape], data: bytes) -> bool:
    """Whether data of these shapes can be read in about as many steps as it has words.

    Data that ends too early is not plain either.
    """
    try:
        _Walk(data).sequence(parameters, 0)
    except _TooMuchError:
        return False
    return True


class _Walk:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._left = len(data) // _WORD + _SPARE_WORDS

    def sequence(self, parts: Sequence[Shape], start: int) -> None:
        """Values that stand one after the other; pointers count from where they begin."""
        at = start
        for part in parts:
            self._value(part, at, start)
            at += part.size

    def _value(self, part: Shape, at: int, start: int) -> None:
        if part.is_dynamic:
            at = start + self._number(at)
        if part.kind == "array":
            self._array(part, at)
        elif part.kind == "tuple":
            self.sequence(part.parts, at)
        elif part.kind == "bytes":
            self._pass(at + _WORD, self._number(at))
        else:
            self._pass(at, _WORD)

    def _array(self, part: Shape, at: int) -> None:
        length = part.length
        if length is None:
            length, at = self._number(at), at + _WORD
        if length > self._left:
            raise _TooMuchError
        self.sequence(part.parts * length, at)

    def _number(self, at: int) -> int:
        self._pass(at, _WORD)
        return int.from_bytes(self._data[at : at + _WORD])

    def _pass(self, at: int, size: int) -> None:
        self._left -= max(1, -(-size // _WORD))
        if self._left < 0 or at + size > len(self._data):
            raise _TooMuchError
