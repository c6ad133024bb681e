"""Inspection: decides whether a module can run as an applet, and reports what it offers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import msgspec
import wasmtime

from fieldbrook.core.errors import ModuleRefusedError
from fieldbrook.wasm.engine.engine import Engine, make_compiler
from fieldbrook.wasm.limits import Limits
from fieldbrook.wasm.module import abi
from fieldbrook.wasm.module.interface import (
    LETTERS_LIMIT,
    Interface,
    Type,
    function_type,
    read_interface,
)
from fieldbrook.wasm.module.names import with_harmless_names
from fieldbrook.wasm.module.sections import MAGIC, not_wasm, read_sections

_CORE_VERSION = b"\x01\0\0\0"
_TYPES = {"i": "i32", "l": "i64", "f": "f32", "d": "f64"}
_LISTED_LIMIT = 20
_NAME_CHARACTERS = 128  # length of a name within a reason
_REASON_CHARACTERS = 600  # length of wasmtime's message, which can contain the whole WAT text
# These limits bound the memory of the registry, of listings and of each process that loads the
# module. Modules whose toolchain exports everything have thousands of exports. The host has fewer
# than a hundred functions, so a module with more imports imports some of them several times.
EXPORTS_LIMIT, IMPORTS_LIMIT = 10_000, 1_000
HANDLER_NAMES_BYTES = 64 << 10


class ModuleReport(msgspec.Struct, frozen=True):
    """The properties of a usable module.

    Attributes:
        handlers, wasi: see `Interface`.
        memory_pages: the initial size of the memory, in pages of 64 KiB.
    """

    handlers: tuple[str, ...]
    wasi: bool
    memory_pages: int


def to_binary(data: bytes) -> bytes:
    """Return the binary form of a module given in binary or as text (WAT, UTF-8).

    Raises:
        ModuleRefusedError: the data is in neither form, or the text does not parse.
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
    interface = read_interface(module)
    report = examine(interface, engine, limits)
    _link(module, interface, engine)
    return module, report


def load_compiled(engine: Engine, cwasm: Path) -> wasmtime.Module:
    """Load a compiled module by mapping its file.

    Raises:
        ModuleRefusedError: the file was made by another version of wasmtime, or for another
            processor.
        OSError: the file cannot be read.
    """
    with cwasm.open("rb"):  # raises OSError with the reason; wasmtime would not give it
        pass
    try:
        return wasmtime.Module.deserialize_file(engine, str(cwasm))
    except wasmtime.WasmtimeError as error:
        raise ModuleRefusedError(reason=f"{cwasm.name}: {_brief(error)}") from error


def examine(interface: Interface, engine: Engine, limits: Limits) -> ModuleReport:
    """Report on a module by its imports and exports.

    Raises:
        ModuleRefusedError: imports or exports do not fit the host interface; `reason` lists the
            problems.
    """
    problems = list(
        islice(
            (*_export_problems(interface, limits), *_import_problems(interface, engine)),
            _LISTED_LIMIT,
        )
    )
    if problems:
        raise ModuleRefusedError(reason="; ".join(problems))
    assert interface.memory is not None
    return ModuleReport(interface.handlers, interface.wasi, interface.memory.pages)


def imported(interface: Interface, *, seeded: bool = False) -> list[abi.Signature]:
    """Return the host functions that a module imports, in the imported variants.

    `seeded` adds the WASI functions that take time and random numbers from a run's seed.
    """
    wanted = set(interface.imports)
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


def _type_of(signature: abi.Signature) -> Type:
    return signature.params, signature.result


def _shown(kind: Type) -> str:
    params, results = map(_shown_values, kind)
    return f"({params}) -> ({results})"


def _shown_values(letters: str) -> str:
    shown = [_TYPES.get(letter, "reference") for letter in letters]
    return ", ".join([*shown[:-1], "..."] if len(shown) == LETTERS_LIMIT else shown)


def _brief(error: Exception) -> str:
    text = " ".join(" ".join(str(error).split()).removeprefix("WebAssembly ").split())
    return _cut(text, _REASON_CHARACTERS)


def _cut(text: str, limit: int = _NAME_CHARACTERS) -> str:
    return text if len(text) <= limit else f"{text[:limit]}..."


def _export_problems(interface: Interface, limits: Limits) -> Iterator[str]:
    memory = interface.memory
    if memory is None:
        yield "it exports no memory named 'memory'"
    else:
        if not memory.usual:
            yield "its memory is shared, 64-bit or of another page size"
        if memory.pages > limits.memory_pages:
            yield (
                f"it starts with {memory.pages} pages of memory; the limit is {limits.memory_pages}"
            )
    for name, wanted in ((abi.ALLOC, ("i", "i")), (abi.INITIALIZE, ("", ""))):
        if name in interface.runtime and (kind := interface.runtime[name]) != wanted:
            found = "no function" if kind is None else _shown(kind)
            yield f"its export {name!r} is {found}; it must be {_shown(wanted)}"
    if not interface.handlers:
        yield "it exports no handler, that is a function (i32) -> (i32)"


def _import_problems(interface: Interface, engine: Engine) -> Iterator[str]:
    known: dict[tuple[str, str], list[Type]] = {}
    for signature in abi.SIGNATURES:
        known.setdefault((signature.module, signature.name), []).append(_type_of(signature))
    library_types = _library_types(engine) if interface.wasi else None
    unknown: list[str] = []
    for item in dict.fromkeys(interface.imports):
        label = _cut(f"{item.module}.{item.name}")
        types = known.get((item.module, item.name))
        if not types and item.module == abi.WASI_MODULE and library_types:
            types = library_types(item.name)
        if not types:
            unknown.append(label)
        elif item.type is None:
            yield f"import {label} is not a function"
        elif item.type not in types:
            wanted = " or ".join(_shown(kind) for kind in types)
            yield f"import {label} is {_shown(item.type)}; the host has {wanted}"
    if unknown:
        more = len(unknown) - _LISTED_LIMIT
        listed = [*unknown[:_LISTED_LIMIT], *([f"and {more} more"] if more > 0 else [])]
        yield f"unknown imports: {', '.join(listed)}"


def _library_types(engine: Engine) -> Callable[[str], list[Type]]:
    """Return a lookup of WASI function types by name. Linking WASI costs a process 2 MiB."""
    linker = wasmtime.Linker(engine)
    linker.define_wasi()
    store = wasmtime.Store(engine)

    def types(name: str) -> list[Type]:
        try:
            found = linker.get(store, abi.WASI_MODULE, name)
        except wasmtime.WasmtimeError:
            return []
        return [function_type(found.type(store))] if isinstance(found, wasmtime.Func) else []

    return types


def _link(module: wasmtime.Module, interface: Interface, engine: Engine) -> None:
    """Check that the module links, with placeholders of the right types as host functions.

    Raises:
        ModuleRefusedError: it does not link.
    """

    def never_called(*_arguments: object) -> None:
        raise AssertionError("a module under examination was run")

    linker = wasmtime.Linker(engine)
    linker.allow_shadowing = True
    linker.define_wasi()
    for signature in imported(interface):
        linker.define_func(signature.module, signature.name, func_type(signature), never_called)
    try:
        linker.instantiate_pre(module)
    except wasmtime.WasmtimeError as error:
        raise ModuleRefusedError(reason=f"it does not link: {_brief(error)}") from error
