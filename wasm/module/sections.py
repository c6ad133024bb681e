"""Recognition of files by their first bytes, and a reader of sections: properties of a module that
wasmtime's interface hides, or on which it crashes.

Pass only modules that wasmtime has validated to `read_sections`, because it checks no bounds.

Source: WebAssembly core specification 2.0, 5.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

MAGIC = b"\0asm"
"""The first bytes of a module in binary form."""

_SHOWN_BYTES = 16  # the most bytes of another file that an error shows
_HEADER_BYTES = 8
_TYPE, _IMPORT, _FUNCTION, _MEMORY, _EXPORT = 1, 2, 3, 5, 7
_FUNC, _TABLE, _MEM, _GLOBAL = range(4)
_V128 = 0x7B
_NUMBER_BITS = 70  # the longest encoding of a 64-bit number


class Sections(NamedTuple):
    """Counts and names in a module.

    Attributes:
        memories: how many memories the module defines.
        imports: how many imports it has.
        exports: how many exports it has.
        vector_functions: names of imported and exported functions with a vector (v128) in
            their type. wasmtime's C interface ends the process when it reads such a type.
    """

    memories: int
    imports: int
    exports: int
    vector_functions: tuple[str, ...]


def not_wasm(data: bytes) -> str:
    """Return why data cannot be a module, judged by its first bytes; "" if it may be one."""
    if data.startswith(MAGIC):
        return ""
    if not data:
        return "not a WebAssembly module: it is empty"
    kind, start = "binary data", repr(data[:_SHOWN_BYTES]).removeprefix("b")
    with suppress(UnicodeDecodeError):
        text = data.decode()
        if text.lstrip().startswith(("(", ";")):
            return ""
        kind, start = "a text", repr(text[:_SHOWN_BYTES])
    begins = f"it is {kind} that begins with {start}"
    return f"not a WebAssembly module: {begins}, and not with '\\0asm' or '('"


def read_sections(wasm: bytes) -> Sections:
    """Read the sections of a valid module in binary form."""
    vectors: list[bool] = []  # per type: whether it has a vector
    functions: list[int] = []  # the type of each function, imported ones first
    found: list[str] = []
    memories = imports = exports = 0
    for section, body, _ in sections(wasm):
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


def imported_names(wasm: bytes) -> list[tuple[str, str]]:
    """Return module and name of each import of a valid module.

    Only the beginning of the module has to be given, up to the end of its imports.

    Raises:
        IndexError: the imports are not complete.
    """
    found = []
    for section, body, _ in sections(wasm):
        if section == _IMPORT:
            for _ in range(body.number()):
                found.append((body.name(), body.name()))
                body.import_kind()
        if section >= _IMPORT:
            break
    return found


class Reader:
    """Reads the parts of a section; `at` is the offset of the next byte."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self.at = at

    def peek(self) -> int:
        """Return the next byte without moving past it."""
        return self._data[self.at]

    def byte(self) -> int:
        """Read a byte."""
        self.at += 1
        return self._data[self.at - 1]

    def number(self) -> int:
        """Read an unsigned LEB128 number. A number that is too long is treated like truncated
        data."""
        number = shift = 0
        while shift < _NUMBER_BITS:
            byte = self.byte()
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number
        raise IndexError(self.at)

    def name(self) -> str:
        """Read a name."""
        size = self.number()
        self.at += size
        return self._data[self.at - size : self.at].decode("utf-8", "replace")

    def has_vector(self) -> bool:
        """Read a function type; return whether it has a vector.

        With this engine's features, every value type is one byte.
        """
        self.byte()
        kinds = [self.byte() for _ in range(self.number())]
        kinds += [self.byte() for _ in range(self.number())]
        return _V128 in kinds

    def import_kind(self) -> int | None:
        """Read the description of an import; return the type index of a function, None for other
        imports."""
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


def sections(wasm: bytes) -> Iterator[tuple[int, Reader, int]]:
    """Iterate over the sections of a module: the id, a reader of the content, and its end."""
    at = _HEADER_BYTES
    while at < len(wasm):
        reader = Reader(wasm, at)
        section, size = reader.byte(), reader.number()
        at = reader.at + size
        yield section, reader, at
