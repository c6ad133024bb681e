"""Bundles the modules that every page of the dashboard imports into one module.

A browser takes about 10 ms for each file of the first page, however small the file is. So the entry
module of the page is joined with the modules that it imports, directly and indirectly. In the
joined module, each of these modules is a function that returns its exports. Other modules import
these exports from the joined module::

    import { ask } from '../core/api.js';                           // as it is written
    import { $2 as $m1 } from '../app.js'; const { ask } = $m1;     // as it is served

Each `import` and `export` is the beginning of a line, in one of the forms that the dashboard uses.
A library is joined if all its exports are named at its end, `export{a as b};`. Other libraries stay
separate modules, and so do the modules that pages import by `import('…')`. The entry module must
not await these at its top level, because they wait for the entry module.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

from fieldbrook.core.errors import SettingsError

_IMPORT = re.compile(
    r"^import (?:\{ ([\w, ]+) \} from |\* as (\w+) from )?'(\.[^'\n]+)';$", re.MULTILINE
)
_EXPORT = re.compile(r"^export ((?:async function|function|class|const) (\w+))", re.MULTILINE)
_LATER = re.compile(r"(?<![{<])\bimport\((['`])(\.[^'`$\n]*)")
_UNKNOWN = re.compile(r"^(?:import|export)\b.*|(?<![{<])\bimport\((?!['`]\.).*", re.MULTILINE)
_OWN_ADDRESS = "import.meta.url"
_LIBRARIES = "vendor/"
_EXPORTS = re.compile(r"\bexport\{([\w$ ,]+)\};?\s*\Z")


def join(modules: Mapping[str, str], entry: str) -> dict[str, str]:
    """Return the modules to serve; `entry` becomes the joined module.

    Args:
        modules: the text of each module by its path; libraries may be missing.
        entry: the path of the entry module of the page. It is in the top folder.

    Raises:
        SettingsError: a module imports or exports in another form, imports a missing module, or
            imports itself indirectly.
    """
    own_names: dict[str, str] = {}
    _visit(modules, entry, own_names, ())
    del own_names[entry]
    separate = {name for name in own_names if _is_separate(name, modules)}
    joined = "".join(
        f"import * as {own} from './{name}';\n"
        if name in separate
        else f"const {own} = (() => {{ {_as_function(name, modules[name], own_names)}\n"
        for name, own in own_names.items()
    )
    joined += _IMPORT.sub(
        lambda match: _bound(match, own_names[_target(entry, match[3])]), modules[entry]
    )
    there = {name: own for name, own in own_names.items() if name not in separate}
    served = {
        name: text if name.startswith(_LIBRARIES) else _outside(name, text, there, entry)
        for name, text in modules.items()
        if name not in there
    }
    return {**served, entry: f"{joined}\nexport {{ {', '.join(own_names.values())} }};\n"}


def _visit(
    modules: Mapping[str, str], name: str, own_names: dict[str, str], path: tuple[str, ...]
) -> None:
    """Assign names in the joined module: first to all modules that a module imports, then to the
    module itself."""
    if name in path:
        raise SettingsError(reason=f"the dashboard's module {name} imports itself by way of others")
    if name in own_names:
        return
    if not name.startswith(_LIBRARIES):
        if name not in modules:
            reason = f"the dashboard's module {path[-1]} imports {name}, which is not there"
            raise SettingsError(reason=reason)
        for _, _, relative in _IMPORT.findall(modules[name]):
            _visit(modules, _target(name, relative), own_names, (*path, name))
    own_names[name] = f"${len(own_names)}"


def _is_separate(name: str, modules: Mapping[str, str]) -> bool:
    """Whether a module that the first page imports stays a module of its own."""
    return name.startswith(_LIBRARIES) and not _EXPORTS.search(modules.get(name, ""))


def _target(name: str, relative: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), relative))


def _as_function(name: str, text: str, own_names: Mapping[str, str]) -> str:
    """Return the rest of a function with the code of a module; the function returns the exports of
    the module."""
    if name.startswith(_LIBRARIES):
        return f"{_EXPORTS.sub(_as_return, text)} }})();"
    exported = [each[1] for each in _EXPORT.findall(text)]
    text = _IMPORT.sub(lambda match: _bound(match, own_names[_target(name, match[3])]), text)
    text = _EXPORT.sub(r"\1", text)
    text = _LATER.sub(lambda match: f"import({match[1]}./{_later(name, match, own_names)}", text)
    unknown = _UNKNOWN.search(text)
    if unknown is not None:
        raise SettingsError(reason=f"the dashboard's module {name} cannot be joined: {unknown[0]}")
    text = text.replace(_OWN_ADDRESS, f"new URL('{name}', {_OWN_ADDRESS}).href")
    return f"{text}return {{ {', '.join(exported)} }}; }})();"


def _as_return(match: re.Match[str]) -> str:
    """The end of a library's function: `export{a as b};` becomes `return {b: a};`."""
    pairs = [each.split(" as ") for each in match[1].split(",")]
    return f"return {{ {', '.join(f'{pair[-1].strip()}: {pair[0].strip()}' for pair in pairs)} }};"


def _outside(name: str, text: str, own_names: Mapping[str, str], entry: str) -> str:
    """Return a module that imports from the joined module whatever is in it."""
    found = 0
    joined = posixpath.relpath(entry, posixpath.dirname(name) or ".")

    def imported(match: re.Match[str]) -> str:
        nonlocal found
        target = _target(name, match[3])
        if target not in own_names:
            return match[0]
        found += 1
        alias = f"$m{found}"
        source = joined if joined.startswith(".") else f"./{joined}"
        return (
            f"import {{ {own_names[target]} as {alias} }} from '{source}'; {_bound(match, alias)}"
        )

    for match in _LATER.finditer(text):
        _later(name, match, own_names)
    return _IMPORT.sub(imported, text)


def _later(name: str, match: re.Match[str], own_names: Mapping[str, str]) -> str:
    """Return the path of a dynamic import, or the constant first part of the path."""
    target = _target(name, match[2]) + "/" * match[2].endswith("/")
    if target in own_names:
        raise SettingsError(
            reason=f"the dashboard's module {name} cannot be joined: {match[0]} names a module of "
            "the first page"
        )
    return target


def _bound(match: re.Match[str], exports: str) -> str:
    """Return the declaration of the names in an import."""
    names, everything = match[1], match[2]
    if names:
        return f"const {{ {names.replace(' as ', ': ')} }} = {exports};"
    return f"const {everything} = {exports};" if everything else ""
