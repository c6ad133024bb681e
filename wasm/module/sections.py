"""What a module's binary says that wasmtime's interface hides, or dies on.

Only for modules that wasmtime has found valid: nothing here checks that there is more to
read. Source: WebAssembly core specification 2.0, 5.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

_HEADER_BYTES = 8
_TYPE, _IMPORT, _FUNCTION, _MEMORY, _EXPORT = 1, 2, 3, 5, 7
_FUNC, _TABLE, _MEM, _GLOBAL = range(4)
_V128 = 0x7B


class Sections(NamedTuple):
    """`memories` that the module defines, how many imports and exports it has, and the imported
    and exported functions that take or give a vector: the C interface ends the process when it
    is asked for their types."""

    memories: int
    imports: int
    exports: int
    vector_functions: tuple[str, ...]


def read_sections(wasm: bytes) -> Sections:
    """Look through a valid module in binary form."""
    vectors: list[bool] = []  # whether a type has one
    functions: list[int] = []  # the type of each function, imported ones first
    found: list[str] = []
    memories = imports = exports = 0
    for section, body in _sections(wasm):
        if section == _TYPE:
            vectors = [body.has_vector() for _ in range(body.number())]
        elif section == _IMPORT:
            imports = body.number()
            for _ in range(imports):
                label = f"{body.name()}.{body.name()}"
                kind = body.import_kind()
                if kind is not None:
                    functions.append(kind)
                    found += [label] if vectors[kind] else []
        elif section == _FUNCTION:
            functions += [body.number() for _ in range(body.number())]
        elif section == _MEMORY:
            memories = body.number()
        elif section == _EXPORT:
            exports = body.number()
            for _ in range(exports):
                name, kind, index = body.name(), body.byte(), body.number()
                found += [name] if kind == _FUNC and vectors[functions[index]] else []
    return Sections(memories, imports, exports, tuple(found))


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self.at = at

    def byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def number(self) -> int:
        """An unsigned LEB128."""
        number = shift = 0
        while True:
            byte = self.byte()
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    def name(self) -> str:
        size = self.number()
        self.at += size
        return self._data[self.at - size : self.at].decode("utf-8", "replace")

    def has_vector(self) -> bool:
        """Read a function type; every value type of this engine's features is one byte."""
        self.byte()
        kinds = [self.byte() for _ in range(self.number())]
        kinds += [self.byte() for _ in range(self.number())]
        return _V128 in kinds

    def import_kind(self) -> int | None:
        """Read what is imported; the type of a function, None for all else."""
        kind = self.byte()
        if kind == _FUNC:
            return self.number()
        if kind == _GLOBAL:
            self.at += 2
            return None
        if kind == _TABLE:
            self.byte()
        if kind in (_TABLE, _MEM):
            flags = self.byte()
            self.number()
            if flags & 1:
                self.number()
        else:  # a tag
            self.byte()
            self.number()
        return None


def _sections(wasm: bytes) -> Iterator[tuple[int, _Reader]]:
    at = _HEADER_BYTES
    while at < len(wasm):
        reader = _Reader(wasm, at)
        section, size = reader.byte(), reader.number()
        at = reader.at + size
        yield section, reader
