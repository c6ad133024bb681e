"""Applet folders: created from a template and built with the recipe that they contain.

An applet folder has a file `applet.toml`. Its table `[build]` defines how the file `module` is
made: `wat` is a file in the WebAssembly text format that is assembled here, and `steps` are
commands that run in the folder, with the variables of `env`. `needs` maps each program that the
steps call to advice for users who do not have it. An environment variable with the name of a
program in capitals (`CLANG`, `RUSTC`) replaces that program. `hint` is advice for a step that
fails; with `hint_unless`, only if this command fails, too. `ignore` lists patterns of names of
files that `applet dev` does not watch. The table `[strategies]` maps event types to handlers, for
runs of the folder's events.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from fieldbrook.system.process_tree import descendants
from fieldbrook.system.regular_file import read_regular_file
from fieldbrook.system.signals import held

TEMPLATES = ("assemblyscript", "c", "go", "rust", "wat")
_COMMON = "common"
"""The folder of the files that all templates share."""
MANIFEST = "applet.toml"
_MANIFEST_LIMIT_BYTES = 1 << 20
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_NOT_A_LETTER = re.compile(r"\W")
_HINT_LIMIT_S = 10.0
_SLOW_STEP_S = 5.0
_PLACEHOLDER = "{{name}}"
_IGNORED = "build/\nnode_modules/\ntarget/\n"


class ScaffoldError(Exception):
    """An applet folder cannot be created or built; the text has the reason, and `hint` has
    advice."""

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Recipe:
    """The build of an applet folder; paths are relative to the folder."""

    module: str
    wat: str
    steps: tuple[tuple[str, ...], ...]
    needs: Mapping[str, str]
    hint: str
    hint_unless: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    ignore: tuple[str, ...] = ()
    strategies: Mapping[str, str] = field(default_factory=dict)


def create(name: str, template: str, folder: Path) -> list[Path]:
    """Create an applet folder and return its files, sorted.

    Args:
        name: 1 to 64 lower-case letters, digits, `-` and `_`, a letter first.
        template: one of `TEMPLATES`.
        folder: the new folder; it must be empty or not exist.

    Raises:
        ScaffoldError: the name is invalid, or the folder is not empty.
        OSError: the folder cannot be written.
    """
    valid_name(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ScaffoldError(
            f"{folder} exists already and is not an empty folder",
            "choose another name or --folder",
        )
    templates = resources.files("fieldbrook.workbench") / "templates"
    copied = [
        folder / path
        for source in (templates / template, templates / _COMMON)
        for path in _copy(source, folder, name)
    ]
    ignored = folder / ".gitignore"
    ignored.write_text(_IGNORED, "utf-8")
    return sorted([*copied, ignored])


def valid_name(name: str) -> str:
    """Return the name of a new applet.

    Raises:
        ScaffoldError: the name is invalid.
    """
    if not _NAME.fullmatch(name):
        raise ScaffoldError(
            f"{name!r} is not a name for an applet",
            "use 1 to 64 lower-case letters, digits, - and _, a letter first",
        )
    return name


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
        manifest = tomllib.loads(read_regular_file(path, _MANIFEST_LIMIT_BYTES).decode())
        build, strategies = manifest["build"], manifest.get("strategies", {})
        return Recipe(
            module=_string(build["module"]),
            wat=_string(build.get("wat", "")),
            steps=tuple(tuple(_string(word) for word in step) for step in build.get("steps", [])),
            needs={_string(tool): _string(how) for tool, how in build.get("needs", {}).items()},
            hint=_string(build.get("hint", "")),
            hint_unless=tuple(_string(word) for word in build.get("hint_unless", [])),
            env={_string(name): _string(text) for name, text in build.get("env", {}).items()},
            ignore=tuple(_string(pattern) for pattern in build.get("ignore", [])),
            strategies={_string(kind): _string(name) for kind, name in strategies.items()},
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
        raise TypeError(f"{value!r} is not a string")
    return value


def missing_tools(recipe: Recipe, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the required programs that are not installed, each with advice for the user."""
    return {
        tool: how
        for tool, how in recipe.needs.items()
        if shutil.which(program(tool, environment), path=environment.get("PATH")) is None
    }


def missing_programs(
    folder: Path, recipe: Recipe, environment: Mapping[str, str] = os.environ
) -> str:
    """Return why a folder cannot be built with the installed programs; "" if it can be built."""
    missing = missing_tools(recipe, environment)
    lines = [f"{tool} is missing: {how}" for tool, how in missing.items()]
    return "\n".join([f"cannot build {folder}", *lines]) if missing else ""


def program(tool: str, environment: Mapping[str, str]) -> str:
    """Return the program that runs for a tool: its environment variable, or the tool itself."""
    return environment.get(_NOT_A_LETTER.sub("_", tool).upper()) or tool


def template_needs(template: str, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the programs that a template needs and that are not installed."""
    source = resources.files("fieldbrook.workbench") / "templates" / template / MANIFEST
    with resources.as_file(source) as path:
        return list(missing_tools(read_recipe(path.parent), environment))


def build(
    folder: Path,
    environment: Mapping[str, str] = os.environ,
    limit_s: float | None = None,
    tell: Callable[[str], None] | None = None,
) -> Path:
    """Build an applet folder and return the path of the module.

    The output of the steps is written to standard error. If this function raises an error, no step
    is left running.

    Args:
        folder: the applet folder.
        environment: the variables of the steps, in addition to those of the recipe.
        limit_s: the time limit of all steps together; None for no limit.
        tell: called with the first words of each step, because some take a minute and print
            nothing, and with the duration of each step that took five seconds or more.

    Raises:
        ScaffoldError: the recipe, a program or the resulting module is missing, a step failed, or
            the steps took too long.
        ModuleRefusedError: the WebAssembly text is invalid.
        OSError: a file cannot be read or written.
    """
    recipe = read_recipe(folder)
    missing = missing_programs(folder, recipe, environment)
    if missing:
        raise ScaffoldError(missing)
    module = folder / recipe.module
    module.parent.mkdir(parents=True, exist_ok=True)
    if recipe.wat:
        from fieldbrook.wasm.module.inspection import to_binary

        module.write_bytes(to_binary(read_regular_file(folder / recipe.wat)))
    end = None if limit_s is None else time.monotonic() + limit_s
    for step in recipe.steps:
        command = [program(step[0], environment), *step[1:]] if step else []
        if not command:
            raise ScaffoldError(f"{folder / MANIFEST}: a step is empty")
        if tell is not None:
            tell(f"{' '.join(step[:2])} ...")
        began = time.monotonic()
        try:
            status = _run(command, folder, {**environment, **recipe.env}, end)
        except OSError as error:
            raise ScaffoldError(f"{command[0]}: {error.strerror}", recipe.hint) from None
        except subprocess.TimeoutExpired:
            text = f"{' '.join(command)} was ended: the build took longer than {limit_s:g} s"
            raise ScaffoldError(text) from None
        if status:
            text = f"{' '.join(command)} ended with status {status}"
            raise ScaffoldError(text, _hint(recipe, folder, environment))
        took_s = time.monotonic() - began
        if tell is not None and took_s >= _SLOW_STEP_S:
            tell(f"{' '.join(step[:2])} took {took_s:.0f} s")
    if not module.is_file():
        raise ScaffoldError(f"the build steps succeeded, but did not create {module}")
    return module


def _hint(recipe: Recipe, folder: Path, environment: Mapping[str, str]) -> str:
    """Return the advice of a recipe for a failed step; "" when it does not apply."""
    if not recipe.hint_unless:
        return recipe.hint
    tool, *words = recipe.hint_unless
    command = [program(tool, environment), *words]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**environment, **recipe.env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_HINT_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return recipe.hint
    return recipe.hint if done.returncode else ""


def _run(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], end: float | None
) -> int:
    """Run a command and return its status; `end` is on the monotonic clock."""
    child = None
    try:
        with held():
            child = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=2,  # standard output is for the result of the command, the module's path
                start_new_session=True,  # it can be killed together with its child processes
            )
        return child.wait(None if end is None else max(0.0, end - time.monotonic()))
    except BaseException:
        if child is not None:
            with held():
                _kill(child.pid)
                child.wait()
        raise


def _kill(pid: int) -> None:
    """Kill a process that leads a session, and all its descendants."""
    for one in descendants(pid):
        with suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
