"""Applet folders: created from a template and built with the recipe that they contain.

An applet folder has a file `applet.toml`. Its table `[build]` says how to make the file
`module`: `wat` is a file in the WebAssembly text format that is assembled here, and `steps` are
commands that run in the folder. `needs` maps each program that the steps call to advice for
users who do not have it. An environment variable with the name of a program in capitals
(`CLANG`, `RUSTC`) replaces that program.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from fieldbrook.system.regular_file import read_regular_file

TEMPLATES = ("assemblyscript", "c", "rust", "wat")
MANIFEST = "applet.toml"
_MANIFEST_LIMIT_BYTES = 1 << 20
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_NOT_A_LETTER = re.compile(r"\W")
_PLACEHOLDER = "{{name}}"
_IGNORED = "build/\nnode_modules/\n"


class ScaffoldError(Exception):
    """An applet folder cannot be created or built; the text says why, `hint` what to do."""

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an applet folder is built; paths are relative to the folder."""

    module: str
    wat: str
    steps: tuple[tuple[str, ...], ...]
    needs: Mapping[str, str]
    hint: str


def create(name: str, template: str, folder: Path) -> list[Path]:
    """Create an applet folder and return its files, sorted.

    Args:
        name: 1 to 64 lower-case letters, digits, `-` and `_`, a letter first.
        template: one of `TEMPLATES`.
        folder: must be empty or not exist.

    Raises:
        ScaffoldError: the name is invalid, or the folder is not empty.
        OSError: the folder cannot be written.
    """
    if not _NAME.fullmatch(name):
        raise ScaffoldError(
            f"{name!r} is not a name for an applet",
            "use 1 to 64 lower-case letters, digits, - and _, a letter first",
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ScaffoldError(
            f"{folder} exists already and is not an empty folder",
            "choose another name or --folder",
        )
    source = resources.files("fieldbrook.workbench") / "templates" / template
    copied = [folder / path for path in _copy(source, folder, name)]
    ignored = folder / ".gitignore"
    ignored.write_text(_IGNORED, "utf-8")
    return sorted([*copied, ignored])


def _copy(source: Traversable, folder: Path, name: str) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for item in source.iterdir():
        if item.is_dir():
            made += [f"{item.name}/{path}" for path in _copy(item, folder / item.name, name)]
        else:
            text = item.read_text("utf-8").replace(_PLACEHOLDER, name)
            (folder / item.name).write_text(text, "utf-8")
            made.append(item.name)
    return made


def read_recipe(folder: Path) -> Recipe:
    """Read the recipe of an applet folder.

    Raises:
        ScaffoldError: `applet.toml` is missing or does not have the form above.
    """
    path = folder / MANIFEST
    try:
        build = tomllib.loads(read_regular_file(path, _MANIFEST_LIMIT_BYTES).decode())["build"]
        return Recipe(
            module=_string(build["module"]),
            wat=_string(build.get("wat", "")),
            steps=tuple(tuple(_string(word) for word in step) for step in build.get("steps", [])),
            needs={_string(tool): _string(how) for tool, how in build.get("needs", {}).items()},
            hint=_string(build.get("hint", "")),
        )
    except FileNotFoundError:
        hint = "create an applet folder with `fieldbrook applet new NAME --template TEMPLATE`"
        raise ScaffoldError(f"{path} does not exist", hint) from None
    except KeyError as error:
        raise ScaffoldError(f"{path} has no {error.args[0]}") from None
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ScaffoldError(f"{path}: {error}") from None


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def missing_tools(recipe: Recipe, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the required programs that are not installed, each with advice for the user."""
    return {
        tool: how
        for tool, how in recipe.needs.items()
        if shutil.which(_program(tool, environment), path=environment.get("PATH")) is None
    }


def _program(tool: str, environment: Mapping[str, str]) -> str:
    """Return the program that runs for a tool: its environment variable, or the tool itself."""
    return environment.get(_NOT_A_LETTER.sub("_", tool).upper()) or tool


def build(folder: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """Build an applet folder and return the path of the module.

    The output of the steps goes to standard error.

    Raises:
        ScaffoldError: the recipe, a program or the resulting module is missing, or a step failed.
        ModuleRefusedError: the WebAssembly text is invalid.
        OSError: a file cannot be read or written.
    """
    recipe = read_recipe(folder)
    missing = missing_tools(recipe, environment)
    if missing:
        lines = [f"{tool} is missing: {how}" for tool, how in missing.items()]
        raise ScaffoldError("\n".join([f"cannot build {folder}", *lines]))
    module = folder / recipe.module
    module.parent.mkdir(parents=True, exist_ok=True)
    if recipe.wat:
        from fieldbrook.wasm.module.inspection import to_binary

        module.write_bytes(to_binary(read_regular_file(folder / recipe.wat)))
    for step in recipe.steps:
        _run(step, folder, environment, recipe.hint)
    if not module.is_file():
        raise ScaffoldError(f"the steps have ended, but did not make {module}")
    return module


def _run(step: Sequence[str], folder: Path, environment: Mapping[str, str], hint: str) -> None:
    command = [_program(step[0], environment), *step[1:]] if step else []
    if not command:
        raise ScaffoldError(f"{folder / MANIFEST}: a step is empty")
    try:
        # Standard output is reserved for the result of the command, the module's path.
        done = subprocess.run(
            command,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=2,
            check=False,
        )
    except OSError as error:
        raise ScaffoldError(f"{command[0]}: {error.strerror}", hint) from None
    if done.returncode:
        raise ScaffoldError(f"{' '.join(command)} ended with status {done.returncode}", hint)
