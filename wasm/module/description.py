"""Description of a module for users: imports, exports, the toolchain that made it.

Only pass modules that wasmtime has validated. Custom sections are not validated, so they are read
with bounds.

Source: WebAssembly core specification 2.0, 5.5; tool conventions, "Producers section".
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import wasmtime

from fieldbrook.core.errors import ModuleRefusedError
from fieldbrook.wasm.engine.engine import make_compiler
from fieldbrook.wasm.module.inspection import to_binary
from fieldbrook.wasm.module.sections import Reader, sections

SHOWN_LIMIT = 1_000
"""The largest number of imports in a description; the same limit holds for exports."""
_NAME_CHARACTERS = 256
_SHOWN_VALUES = 31  # the most parameters of a function in a text; the same for results
_PRODUCERS_BYTES, _PRODUCERS = 16 << 10, 16
_CUSTOM, _TYPE, _IMPORT, _FUNCTION, _EXPORT = 0, 1, 2, 3, 7
_FUNC = 0
_KINDS = ("function", "table", "memory", "global", "tag")
_VALUES = {
    0x7F: "i32",
    0x7E: "i64",
    0x7D: "f32",
    0x7C: "f64",
    0x7B: "v128",
    0x70: "funcref",
    0x6F: "externref",
}


class Item(msgspec.Struct, frozen=True):
    """An import or an export. `module` is empty for exports; only functions have a `type`, such as
    `(i32) -> (i32)`."""

    module: str
    name: str
    kind: str
    type: str


class ModuleDescription(msgspec.Struct, frozen=True):
    """The content of a module.

    `producers` maps the fields `language`, `processed-by` and `sdk` to names with versions.
    `runtime` is the language or runtime that made the module; "" if it is unknown.
    """

    imports: list[Item]
    exports: list[Item]
    producers: Mapping[str, list[str]] = msgspec.field(default_factory=dict)
    runtime: str = ""


def describe(wasm: bytes) -> ModuleDescription:
    """Describe a valid module in binary form."""
    types: list[str] = []
    functions: list[int] = []
    imports: list[Item] = []
    exports: list[Item] = []
    producers: Mapping[str, list[str]] = {}
    for section, body, end in sections(wasm):
        if section == _TYPE:
            types = [_function_type(body) for _ in range(body.number())]
        elif section == _IMPORT:
            for _ in range(body.number()):
                item, function = _import(body, types)
                if function is not None:
                    functions.append(function)
                imports.append(item)
        elif section == _FUNCTION:
            functions += [body.number() for _ in range(body.number())]
        elif section == _EXPORT:
            exports += [_export(body, types, functions) for _ in range(body.number())]
        elif section == _CUSTOM and not producers:
            producers = _producers(wasm[body.at : end])
    shown = imports[:SHOWN_LIMIT], exports[:SHOWN_LIMIT]
    return ModuleDescription(*shown, producers, _runtime(imports, exports, producers))


def _function_type(body: Reader) -> str:
    body.byte()
    params, results = _values(body), _values(body)
    return f"({params}) -> ({results})"


def _values(body: Reader) -> str:
    """Read the types of values; the text names the first `_SHOWN_VALUES`."""
    count = body.number()
    kinds = [body.byte() for _ in range(count)]
    shown = [_VALUES.get(kind, "?") for kind in kinds[:_SHOWN_VALUES]]
    return ", ".join([*shown, "..."] if count > _SHOWN_VALUES else shown)


def _import(body: Reader, types: list[str]) -> tuple[Item, int | None]:
    module, name = body.name()[:_NAME_CHARACTERS], body.name()[:_NAME_CHARACTERS]
    kind = _kind(body.peek())
    function = body.import_kind()
    return Item(module, name, kind, "" if function is None else types[function]), function


def _export(body: Reader, types: list[str], functions: list[int]) -> Item:
    name, kind, index = body.name()[:_NAME_CHARACTERS], body.byte(), body.number()
    return Item("", name, _kind(kind), types[functions[index]] if kind == _FUNC else "")


def _kind(number: int) -> str:
    return _KINDS[number] if number < len(_KINDS) else "unknown"


def _producers(custom: bytes) -> Mapping[str, list[str]]:
    """Read a custom section; return an empty dict if it is not a well-formed section
    `producers`."""
    if len(custom) > _PRODUCERS_BYTES:
        return {}
    body = Reader(custom, 0)
    try:
        if body.name() != "producers":
            return {}
        return {
            body.name()[:_NAME_CHARACTERS]: list(_programs(body))
            for _ in range(min(body.number(), _PRODUCERS))
        }
    except IndexError:  # the section ends too early
        return {}


def _programs(body: Reader) -> Iterator[str]:
    for _ in range(min(body.number(), _PRODUCERS)):
        name, version = body.name()[:_NAME_CHARACTERS], body.name()[:_NAME_CHARACTERS]
        yield f"{name} {version}".strip()


def _runtime(imports: list[Item], exports: list[Item], producers: Mapping[str, list[str]]) -> str:
    made = [*producers.get("processed-by", ()), *producers.get("language", ())]
    for text, shown in (("TinyGo", "TinyGo"), ("Go ", "Go"), ("rustc", "Rust"), ("clang", "C")):
        if any(text in name for name in made):
            return shown
    if producers.get("language"):
        return producers["language"][0]
    names = {(item.module, item.name) for item in (*imports, *exports)}
    if ("env", "abort") in names or ("", "__new") in names or ("", "__pin") in names:
        return "AssemblyScript"
    return ""


def main(arguments: Sequence[str]) -> int:
    """Describe the module in a file, in a child with limits; return the exit status.

    Prints the description as JSON, or `null` for a file that is no valid module.
    """
    (source,) = arguments
    description: ModuleDescription | None = None
    with suppress(ModuleRefusedError):
        wasm = to_binary(Path(source).read_bytes())
        with suppress(wasmtime.WasmtimeError):
            wasmtime.Module.validate(make_compiler(), wasm)
            description = describe(wasm)
    sys.stdout.buffer.write(msgspec.json.encode(description))
    return 0
