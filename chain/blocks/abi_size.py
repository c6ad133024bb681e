"""Size check of a log's data before it is decoded (a defence against decompression bombs).

Anybody may be able to make a contract write a log. In ABI encoding, many pointers may refer to the
same place, so a few kilobytes can expand to more than a machine's memory: 64 KB of `bytes[][]` keep
a decoder busy for minutes. Data from a compiler's encoder never expands to more words than it
contains. The check walks over the data and refuses it if it expands further.

Source: the Contract ABI Specification of Solidity, "Formal Specification of the Encoding".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

_WORD = 32
_SPARE_WORDS = 16
ARRAYS_LIMIT = 8
"""The most arrays that a type may nest, because decoders recurse into them."""


class Parameter(msgspec.Struct, frozen=True):
    """An argument or a tuple member of a JSON ABI. No array may have a fixed length of 0."""

    type: str
    indexed: bool = False
    components: tuple[Parameter, ...] = ()


class Shape(NamedTuple):
    """The layout of a type, computed once per decoder.

    `size` is the number of bytes that the value takes in its place (its "head"). If `is_dynamic`
    is set, the head is a pointer to the value.
    """

    kind: Literal["array", "tuple", "bytes", "word"]
    size: int
    is_dynamic: bool
    parts: tuple[Shape, ...] = ()
    """The members of a tuple, or the one shape of an array's items."""
    length: int | None = None
    """The number of an array's items; None if the data itself contains the number."""


def shapes(parameters: Sequence[Parameter]) -> tuple[Shape, ...]:
    """Compute the shapes of parameters.

    Raises:
        ValueError: a type nests more than `ARRAYS_LIMIT` arrays.
    """
    return tuple(_shape(part) for part in parameters)


def _shape(part: Parameter) -> Shape:
    base, *arrays = part.type.split("[")
    if len(arrays) > ARRAYS_LIMIT:
        raise ValueError(f"the type nests more than {ARRAYS_LIMIT} arrays")
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


def is_safe_to_decode(parameters: Sequence[Shape], data: bytes) -> bool:
    """Return whether data of these shapes can be decoded in about as many steps as it has words.

    Also return False for truncated data.
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
        """Walk over consecutive values; their pointers are relative to `start`."""
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
            self._consume(at + _WORD, self._number(at))
        else:
            self._consume(at, _WORD)

    def _array(self, part: Shape, at: int) -> None:
        length = part.length
        if length is None:
            length, at = self._number(at), at + _WORD
        if length > self._left:
            raise _TooMuchError
        self.sequence(part.parts * length, at)

    def _number(self, at: int) -> int:
        self._consume(at, _WORD)
        return int.from_bytes(self._data[at : at + _WORD])

    def _consume(self, at: int, size: int) -> None:
        self._left -= max(1, -(-size // _WORD))
        if self._left < 0 or at + size > len(self._data):
            raise _TooMuchError
