"""Inspection: decides whether a module can run as an applet, and reports what it offers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec
import wasmtime

from fieldbrook.core.errors import ModuleRefusedError
from fieldbrook.wasm.engine.engine import Engine, make_compiler
from fieldbrook.wasm.limits import PAGE_BYTES, Limits
from fieldbrook.wasm.module import abi
from fieldbrook.wasm.module.names import with_harmless_names
from fieldbrook.wasm.module.sections import MAGIC, not_wasm, read_sections

_CORE_VERSION = b"\x01\0\0\0"
_LETTERS = {"i32": "i", "i64": "l", "f32": "f", "f64": "d"}
_TYPES = {letter: name for name, letter in _LETTERS.items()}
_LISTED_LIMIT = 20
_NAME_CHARACTERS = 128  # length of a name within a reason
_REASON_CHARACTERS = 600  # length of wasmtime's message, which can contain the whole WAT text
# Limits on what the registry, listings and each process that loads the module must hold.
# Modules whose toolchain exports everything have thousands of exports.
EXPORTS_LIMIT = IMPORTS_LIMIT = 10_000
HANDLER_NAME_BYTES = 256
HANDLER_NAMES_BYTES = 64 << 10

_NOT_HANDLERS = frozenset({abi.ALLOC, abi.INITIALIZE, abi.START, "malloc"})
_RESERVED_PREFIX = "__"  # prefix of runtime functions that toolchains export, e.g. `__pin`

_Type = tuple[str, str]


class ModuleReport(msgspec.Struct, frozen=True):
    """The properties of a usable module.

    Attributes:
        handlers: names of its exports `(i32) -> i32` in the module's order, without `alloc`,
            `malloc`, runtime functions and names that no strategy could use.
        wasi: whether it imports WASI preview1.
        memory_pages: pages of memory (64 KiB each) that it starts with.
    """

    handlers: tuple[str, ...]
    wasi: bool
    memory_pages: int


def to_binary(data: bytes) -> bytes:
    """Return the binary form of a module given in binary or as text (WAT, UTF-8).

    Raises:
        ModuleRefusedError: the data is neither, or the text does not parse.
    """
    if data.startswith(MAGIC):
        return data
    if reason := not_wasm(data):
        raise ModuleRefusedError(reason=reason)
    try:
        return bytes(wasmtime.wat2wasm(data.decode()))
    except wasmtime.WasmtimeError as error:
        raise ModuleRefusedError(reason=f"not a WebAssembly text: {_brief(error)}") from error


def check(wasm: bytes, limits: Limits) -> ModuleReport:
    """Compile and link a module, and report what it offers.

    Memory and time for compiling grow with the module (a second for 2.5 MB). A node therefore
    compiles in a child (`compile.compile_in_child`), not in a process that serves requests.

    Raises:
        ModuleRefusedError: the module cannot be an applet; `reason` says why and lists all
            unsuitable imports and exports.
    """
    binary = to_binary(wasm)
    _, report = compile_module(make_compiler(), binary, limits)
    check_extent(binary, report)
    return report


def check_extent(wasm: bytes, report: ModuleReport) -> None:
    """Check the limits on exports, imports and handler names of a valid module.

    Only uploads are checked; modules that an earlier version accepted still run.

    Raises:
        ModuleRefusedError: the module exceeds a limit.
    """
    sections = read_sections(wasm)
    named = sum(len(name.encode()) for name in report.handlers)
    for what, count, limit in (
        ("exports", sections.exports, EXPORTS_LIMIT),
        ("imports", sections.imports, IMPORTS_LIMIT),
        ("bytes in the names of its handlers", named, HANDLER_NAMES_BYTES),
    ):
        if count > limit:
            raise ModuleRefusedError(reason=f"it has {count} {what}; the limit is {limit}")


def compile_module(
    engine: Engine, wasm: bytes, limits: Limits
) -> tuple[wasmtime.Module, ModuleReport]:
    """Compile a module in binary form and report on it.

    Raises:
        ModuleRefusedError: the module cannot be an applet, see `check`.
    """
    if wasm[4:8] != _CORE_VERSION:
        raise ModuleRefusedError(reason="a WebAssembly component, not a core module")
    try:
        module = wasmtime.Module(engine, with_harmless_names(wasm))
    except wasmtime.WasmtimeError as error:
        raise ModuleRefusedError(reason=f"not a valid module: {_brief(error)}") from error
    sections = read_sections(wasm)
    if sections.memories > 1:
        raise ModuleRefusedError(reason="it has more than one memory")
    if sections.vector_functions:
        named = ", ".join(map(_cut, sections.vector_functions[:_LISTED_LIMIT]))
        raise ModuleRefusedError(reason=f"functions with a vector (v128) in their type: {named}")
    report = examine(module, engine, limits)
    _link(module, engine)
    return module, report


def load_compiled(engine: Engine, cwasm: Path) -> wasmtime.Module:
    """Load a compiled module by mapping its file.

    Raises:
        ModuleRefusedError: another version of wasmtime made it, or it is for another processor.
        OSError: the file cannot be read.
    """
    with cwasm.open("rb"):  # raises OSError with the reason, which wasmtime would not give
        pass
    try:
        return wasmtime.Module.deserialize_file(engine, str(cwasm))
    except wasmtime.WasmtimeError as error:
        raise ModuleRefusedError(reason=f"{cwasm.name}: {_brief(error)}") from error


def examine(module: wasmtime.Module, engine: Engine, limits: Limits) -> ModuleReport:
    """Report on a compiled module.

    Raises:
        ModuleRefusedError: its imports or exports do not fit; `reason` lists all problems.
    """
    exports = {export.name: export.type for export in module.exports}
    handlers = tuple(_handlers(exports))
    problems = [*_export_problems(exports, handlers, limits), *_import_problems(module, engine)]
    if problems:
        raise ModuleRefusedError(reason="; ".join(problems))
    memory = exports[abi.MEMORY]
    assert isinstance(memory, wasmtime.MemoryType)
    return ModuleReport(handlers, _imports_wasi(module), _pages(memory))


def _imports_wasi(module: wasmtime.Module) -> bool:
    """Return whether a store for this module needs a WASI configuration.

    wasmtime aborts the process when such a module runs without one.
    """
    return any(item.module == abi.WASI_MODULE for item in module.imports)


def uses_sql(module: wasmtime.Module) -> bool:
    """Return whether a module imports functions of the project's SQL database."""
    names = {(item.module, item.name) for item in module.imports}
    wanted = (abi.WS_SET_SQL_DB, abi.WS_GET_SQL_DB)
    return any((signature.module, signature.name) in names for signature in wanted)


def imported(module: wasmtime.Module, *, seeded: bool = False) -> list[abi.Signature]:
    """Return the host functions that a module imports, in the imported variants.

    `seeded` adds the WASI functions that take time and random numbers from a run's seed.
    """
    wanted = {
        (item.module, item.name or "", _letters(item.type))
        for item in module.imports
        if isinstance(item.type, wasmtime.FuncType)
    }
    return [
        signature
        for signature in (*abi.SIGNATURES, *(abi.SEEDED_SIGNATURES if seeded else ()))
        if (signature.module, signature.name, _type_of(signature)) in wanted
    ]


def func_type(signature: abi.Signature) -> wasmtime.FuncType:
    """Return wasmtime's type of a host function."""
    kinds = {"i": wasmtime.ValType.i32, "l": wasmtime.ValType.i64, "d": wasmtime.ValType.f64}
    return wasmtime.FuncType(
        [kinds[letter]() for letter in signature.params],
        [kinds[letter]() for letter in signature.result],
    )


def _type_of(signature: abi.Signature) -> _Type:
    return signature.params, signature.result


def _letters(kind: wasmtime.FuncType) -> _Type:
    params, results = (
        "".join(_LETTERS.get(str(value), "?") for value in values)
        for values in (kind.params, kind.results)
    )
    return params, results


def _shown(kind: _Type) -> str:
    params, results = (
        ", ".join(_TYPES.get(letter, "reference") for letter in letters) for letters in kind
    )
    return f"({params}) -> ({results})"


def _brief(error: Exception) -> str:
    text = " ".join(" ".join(str(error).split()).removeprefix("WebAssembly ").split())
    return _cut(text, _REASON_CHARACTERS)


def _cut(text: str, limit: int = _NAME_CHARACTERS) -> str:
    return text if len(text) <= limit else f"{text[:limit]}..."


def _handlers(exports: Mapping[str, object]) -> Iterator[str]:
    wanted = (abi.HANDLER_PARAMS, abi.HANDLER_RESULT)
    for name, kind in exports.items():
        if name in _NOT_HANDLERS or name.startswith(_RESERVED_PREFIX):
            continue
        if len(name.encode()) > HANDLER_NAME_BYTES or not name.isprintable():
            continue  # a strategy cannot contain such a name
        if isinstance(kind, wasmtime.FuncType) and _letters(kind) == wanted:
            yield name


def _pages(memory: wasmtime.MemoryType) -> int:
    return -(-memory.limits.min * memory.page_size // PAGE_BYTES)


def _export_problems(
    exports: Mapping[str, object], handlers: tuple[str, ...], limits: Limits
) -> Iterator[str]:
    memory = exports.get(abi.MEMORY)
    if not isinstance(memory, wasmtime.MemoryType):
        yield "it exports no memory named 'memory'"
    else:
        if memory.is_64 or memory.is_shared or memory.page_size != PAGE_BYTES:
            yield "its memory is shared, 64-bit or of another page size"
        if _pages(memory) > limits.memory_pages:
            yield (
                f"it starts with {_pages(memory)} pages of memory; "
                f"the limit is {limits.memory_pages}"
            )
    for name, wanted in ((abi.ALLOC, ("i", "i")), (abi.INITIALIZE, ("", ""))):
        kind = exports.get(name)
        if kind is None:
            continue
        if not isinstance(kind, wasmtime.FuncType) or _letters(kind) != wanted:
            found = _shown(_letters(kind)) if isinstance(kind, wasmtime.FuncType) else "no function"
            yield f"its export {name!r} is {found}; it must be {_shown(wanted)}"
    if not handlers:
        yield "it exports no handler, that is a function (i32) -> (i32)"


def _import_problems(module: wasmtime.Module, engine: Engine) -> Iterator[str]:
    known: dict[tuple[str, str], list[_Type]] = {}
    for signature in abi.SIGNATURES:
        known.setdefault((signature.module, signature.name), []).append(_type_of(signature))
    library_types = _library_types(engine) if _imports_wasi(module) else None
    unknown: list[str] = []
    for item in module.imports:
        name = item.name or ""
        label = _cut(f"{item.module}.{name}")
        types = known.get((item.module, name))
        if not types and item.module == abi.WASI_MODULE and library_types:
            types = library_types(name)
        if not types:
            unknown.append(label)
        elif not isinstance(item.type, wasmtime.FuncType):
            yield f"import {label} is not a function"
        elif _letters(item.type) not in types:
            wanted = " or ".join(_shown(kind) for kind in types)
            yield f"import {label} is {_shown(_letters(item.type))}; the host has {wanted}"
    if unknown:
        more = len(unknown) - _LISTED_LIMIT
        listed = [*unknown[:_LISTED_LIMIT], *([f"and {more} more"] if more > 0 else [])]
        yield f"unknown imports: {', '.join(listed)}"


def _library_types(engine: Engine) -> Callable[[str], list[_Type]]:
    """Return a lookup of WASI function types by name. Linking WASI costs a process 2 MiB."""
    linker = wasmtime.Linker(engine)
    linker.define_wasi()
    store = wasmtime.Store(engine)

    def types(name: str) -> list[_Type]:
        try:
            found = linker.get(store, abi.WASI_MODULE, name)
        except wasmtime.WasmtimeError:
            return []
        return [_letters(found.type(store))] if isinstance(found, wasmtime.Func) else []

    return types


def _link(module: wasmtime.Module, engine: Engine) -> None:
    """Check that the module links, with placeholders of the right types as host functions.

    Raises:
        ModuleRefusedError: it does not link.
    """

    def never_called(*_arguments: object) -> None:
        raise AssertionError("a module under examination was run")

    linker = wasmtime.Linker(engine)
    linker.allow_shadowing = True
    linker.define_wasi()
    for signature in imported(module):
        linker.define_func(signature.module, signature.name, func_type(signature), never_called)
    try:
        linker.instantiate_pre(module)
    except wasmtime.WasmtimeError as error:
        raise ModuleRefusedError(reason=f"it does not link: {_brief(error)}") from error
