"""How much a log stands for, before it is read.

Anybody may be able to make a contract write a log, and pointers that all lead to the same place
make a few kilobytes stand for more than a machine has room for: 64 KB of `bytes[][]` keep a
decoder busy for minutes. Nothing that is encoded as compilers do has more words than its data.

Source: the Contract ABI Specification of Solidity, "Formal Specification of the Encoding".
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

_WORD = 32
_SPARE_WORDS = 16


class Parameter(msgspec.Struct, frozen=True):
    """An argument or a member of a tuple, as a JSON ABI has it. Arrays have no length of 0."""

    type: str
    indexed: bool = False
    components: tuple[Parameter, ...] = ()

    @property
    def item(self) -> Parameter:
        """What an array is of."""
        return Parameter(self.type[: self.type.rindex("[")], components=self.components)

    @property
    def length(self) -> int | None:
        """How many an array has; None when its data says that."""
        digits = self.type[self.type.rindex("[") + 1 : -1]
        return int(digits) if digits else None

    @property
    def is_dynamic(self) -> bool:
        """Whether a pointer stands in its place."""
        if self.type.endswith("]"):
            return self.length is None or self.item.is_dynamic
        if self.type == "tuple":
            return any(part.is_dynamic for part in self.components)
        return self.type in ("string", "bytes")

    @property
    def size(self) -> int:
        """How many bytes it takes where it stands."""
        if self.is_dynamic:
            return _WORD
        if self.type.endswith("]"):
            return (self.length or 0) * self.item.size
        if self.type == "tuple":
            return sum(part.size for part in self.components)
        return _WORD


class _TooMuchError(Exception):
    pass


def is_plain(parameters: Sequence[Parameter], data: bytes) -> bool:
    """Whether data of these types can be read in about as many steps as it has words.

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

    def sequence(self, parts: Sequence[Parameter], start: int) -> None:
        """Values that stand one after the other; pointers count from where they begin."""
        at = start
        for part in parts:
            self._value(part, at, start)
            at += part.size

    def _value(self, part: Parameter, at: int, start: int) -> None:
        if part.is_dynamic:
            at = start + self._number(at)
        if part.type.endswith("]"):
            self._array(part, at)
        elif part.type == "tuple":
            self.sequence(part.components, at)
        elif part.type in ("string", "bytes"):
            self._pass(at + _WORD, self._number(at))
        else:
            self._pass(at, _WORD)

    def _array(self, part: Parameter, at: int) -> None:
        length = part.length
        if length is None:
            length, at = self._number(at), at + _WORD
        if length > self._left:
            raise _TooMuchError
        self.sequence([part.item] * length, at)

    def _number(self, at: int) -> int:
        self._pass(at, _WORD)
        return int.from_bytes(self._data[at : at + _WORD])

    def _pass(self, at: int, size: int) -> None:
        self._left -= max(1, -(-size // _WORD))
        if self._left < 0 or at + size > len(self._data):
            raise _TooMuchError
