"""The interface of a compiled module: the properties of its imports and exports that an applet
needs.

The engine's Python package makes several objects for each import and export, and two for each value
in their types. Therefore a module is read once, and only the beginning of a long type is read:
the exports of a module of 5 KB can have a million values in their types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import msgspec
import wasmtime
from wasmtime import _ffi

from fieldbrook.wasm.limits import PAGE_BYTES
from fieldbrook.wasm.module import abi

Type = tuple[str, str]
"""The letters of a function's parameters and results (`abi.Signature`), with `?` for other types.
Of a long type, it has only the first `LETTERS_LIMIT` parameters and results."""

LETTERS_LIMIT = 32
"""The limit is higher than the number of parameters or results of any function between an applet
and its host."""
HANDLER_NAME_BYTES = 256

HANDLER: Type = (abi.HANDLER_PARAMS, abi.HANDLER_RESULT)
_LETTERS = {
    _ffi.WASM_I32.value: "i",
    _ffi.WASM_I64.value: "l",
    _ffi.WASM_F32.value: "f",
    _ffi.WASM_F64.value: "d",
}
_NOT_HANDLERS = frozenset({abi.ALLOC, abi.INITIALIZE, abi.START, "malloc"})
_RESERVED_PREFIX = "__"  # prefix of runtime functions that toolchains export, e.g. `__pin`


class Import(NamedTuple):
    """An import; `type` is None if it is no function."""

    module: str
    name: str
    type: Type | None


class Memory(msgspec.Struct, frozen=True):
    """An exported memory.

    Attributes:
        pages: the initial size, in pages of 64 KiB.
        usual: whether the memory is neither shared nor 64-bit, and has the usual page size.
    """

    pages: int
    usual: bool


class Interface(msgspec.Struct, frozen=True):
    """The imports and exports of a module.

    Attributes:
        handlers: names of its exports `(i32) -> i32` in the module's order, without `alloc`,
            `malloc`, runtime functions and names that no strategy could use.
        memory: the memory that it exports as `memory`.
        runtime: the types of its exports `alloc` and `_initialize`; None for an export that is no
            function.
        imports: its imports in the module's order.
    """

    handlers: tuple[str, ...]
    memory: Memory | None
    runtime: Mapping[str, Type | None]
    imports: tuple[Import, ...]

    @property
    def wasi(self) -> bool:
        """Whether it imports WASI preview1.

        wasmtime aborts the process when such a module runs without a WASI configuration.
        """
        return any(item.module == abi.WASI_MODULE for item in self.imports)

    @property
    def uses_sql(self) -> bool:
        """Whether it imports functions of the project's SQL database."""
        names = {(item.module, item.name) for item in self.imports}
        wanted = (abi.WS_SET_SQL_DB, abi.WS_GET_SQL_DB)
        return any((signature.module, signature.name) in names for signature in wanted)


def read_interface(module: wasmtime.Module) -> Interface:
    """Read the imports and exports of a module; they must have no vectors (v128) in their types."""
    handlers: list[str] = []
    memory: Memory | None = None
    runtime: dict[str, Type | None] = {}
    for export in module.exports:
        name, kind = export.name, export.type
        if name == abi.MEMORY:
            memory = _memory(kind) if isinstance(kind, wasmtime.MemoryType) else None
        elif name in (abi.ALLOC, abi.INITIALIZE):
            runtime[name] = _type(kind)
        elif _may_be_handler(name) and _type(kind) == HANDLER:
            handlers.append(name)
    imports = tuple(
        Import(item.module, item.name or "", _type(item.type)) for item in module.imports
    )
    return Interface(tuple(handlers), memory, runtime, imports)


def _may_be_handler(name: str) -> bool:
    """Return whether a strategy can contain the name."""
    return not (
        name in _NOT_HANDLERS
        or name.startswith(_RESERVED_PREFIX)
        or len(name.encode()) > HANDLER_NAME_BYTES
        or not name.isprintable()
    )


def _memory(kind: wasmtime.MemoryType) -> Memory:
    pages = -(-kind.limits.min * kind.page_size // PAGE_BYTES)
    return Memory(pages, not (kind.is_64 or kind.is_shared or kind.page_size != PAGE_BYTES))


def _type(kind: object) -> Type | None:
    if not isinstance(kind, wasmtime.FuncType):
        return None
    pointer = kind.ptr()
    return (
        _letters(_ffi.wasm_functype_params(pointer).contents),
        _letters(_ffi.wasm_functype_results(pointer).contents),
    )


def function_type(kind: wasmtime.FuncType) -> Type:
    """Return the type of a function; it must have no vectors."""
    found = _type(kind)
    assert found is not None
    return found


def _letters(values: Any) -> str:
    count = min(values.size, LETTERS_LIMIT)
    # The package's annotation says that the function returns a C type, but it returns a number.
    kinds = (cast(int, _ffi.wasm_valtype_kind(values.data[n])) for n in range(count))
    return "".join(_LETTERS.get(kind, "?") for kind in kinds)
