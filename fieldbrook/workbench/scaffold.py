"""Projects of applets: made from a template, built by the recipe they carry.

A project is a folder with `applet.toml`. Its table `[build]` says what `module` becomes of:
`wat`, a file in WebAssembly text that is assembled here, or `steps`, commands that run in
the folder. `needs` are the programs that the steps call, each with what to do when it is
missing. A variable named as a program in capitals (`CLANG`, `RUSTC`) stands for another one.
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

TEMPLATES = ("assemblyscript", "c", "rust", "wat")
MANIFEST = "applet.toml"
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_NOT_A_LETTER = re.compile(r"\W")
_PLACEHOLDER = "{{name}}"
_IGNORED = "build/\nnode_modules/\n"


class ScaffoldError(Exception):
    """A project cannot be made or built; the text says why, `hint` what to do."""

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a project is built; paths are relative to its folder."""

    module: str
    wat: str
    steps: tuple[tuple[str, ...], ...]
    needs: Mapping[str, str]
    hint: str


def create(name: str, template: str, folder: Path) -> list[Path]:
    """Make a project; returns the files, in order.

    Args:
        name: lower-case letters, digits, `-` and `_`, a letter first.
        template: one of `TEMPLATES`.
        folder: not there yet, or empty.

    Raises:
        ScaffoldError: the name cannot be one, or the folder holds something.
        OSError: the folder cannot be written.
    """
    if not _NAME.fullmatch(name):
        raise ScaffoldError(
            f"{name!r} is no name for an applet",
            "take up to 64 lower-case letters, digits, - and _, a letter first",
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ScaffoldError(f"{folder} is there already", "choose another name or --folder")
    source = resources.files("fieldbrook.workbench") / "templates" / template
    made = [folder / path for path in _copy(source, folder, name)]
    ignored = folder / ".gitignore"
    ignored.write_text(_IGNORED, "utf-8")
    return sorted([*made, ignored])


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
    """The recipe of a project.

    Raises:
        ScaffoldError: there is no `applet.toml`, or it is not of the form above.
    """
    path = folder / MANIFEST
    try:
        build = tomllib.loads(path.read_text("utf-8"))["build"]
        return Recipe(
            module=_string(build["module"]),
            wat=_string(build.get("wat", "")),
            steps=tuple(tuple(_string(word) for word in step) for step in build.get("steps", [])),
            needs={_string(tool): _string(how) for tool, how in build.get("needs", {}).items()},
            hint=_string(build.get("hint", "")),
        )
    except FileNotFoundError:
        hint = "make a project with `fieldbrook applet new NAME --template TEMPLATE`"
        raise ScaffoldError(f"there is no {path}", hint) from None
    except KeyError as error:
        raise ScaffoldError(f"{path}: there is no {error.args[0]}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, TypeError, AttributeError) as error:
        raise ScaffoldError(f"{path}: {error}") from None


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def missing_tools(recipe: Recipe, environment: Mapping[str, str]) -> dict[str, str]:
    """The programs that are not there, each with what to do about it."""
    return {
        tool: how
        for tool, how in recipe.needs.items()
        if shutil.which(_program(tool, environment), path=environment.get("PATH")) is None
    }


def _program(tool: str, environment: Mapping[str, str]) -> str:
    """The program that stands for a tool."""
    return environment.get(_NOT_A_LETTER.sub("_", tool).upper()) or tool


def build(folder: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """Build a project; returns the module. What the steps print goes where this prints.

    Raises:
        ScaffoldError: no recipe, a program is missing, a step failed, or no module came out.
        ModuleRefusedError: the text format has a mistake.
        OSError: a file cannot be read or written.
    """
    recipe = read_recipe(folder)
    missing = missing_tools(recipe, environment)
    if missing:
        lines = [f"{tool} is missing: {how}" for tool, how in missing.items()]
        raise ScaffoldError("\n".join(["it cannot be built here", *lines]))
    module = folder / recipe.module
    module.parent.mkdir(parents=True, exist_ok=True)
    if recipe.wat:
        from fieldbrook.wasm.module.inspection import to_binary

        module.write_bytes(to_binary((folder / recipe.wat).read_bytes()))
    for step in recipe.steps:
        _perform(step, folder, environment, recipe.hint)
    if not module.is_file():
        raise ScaffoldError(f"the recipe is done, but there is no {module}")
    return module


def _perform(step: Sequence[str], folder: Path, environment: Mapping[str, str], hint: str) -> None:
    command = [_program(step[0], environment), *step[1:]] if step else []
    if not command:
        raise ScaffoldError(f"{folder / MANIFEST}: a step is empty")
    try:
        # Standard output is for results: the module's path.
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
        raise ScaffoldError(f"{' '.join(command)}: ended with status {done.returncode}", hint)
