"""Build records: the sources of a module, so that a test need not build unchanged sources again.

A file next to the module has the digest of the sources and that of the module. Files outside the
applet folder, such as a shared header, are not included.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

from fieldbrook.system.regular_file import read_regular_file
from fieldbrook.workbench import watch
from fieldbrook.workbench.scaffold import Recipe, program

_NO_INPUTS = ("events.jsonl", "events.expected.jsonl", "README.md", "device.sh")


def fingerprint(folder: Path, recipe: Recipe, environment: Mapping[str, str] = os.environ) -> str:
    """Return the digest of the inputs of a build: the sources, the recipe, the names of programs.

    Raises:
        ScaffoldError: the folder has too many files.
        OSError: the folder cannot be read.
    """
    digest = blake2b()
    for path, seen in sorted(watch.look(folder, recipe.ignore).items()):
        if path.name not in _NO_INPUTS:
            digest.update(f"{path.relative_to(folder)}\0".encode())
            digest.update(seen.digest)
    for step in recipe.steps:
        digest.update(f"{program(step[0], environment) if step else ''}\0".encode())
    return digest.hexdigest()


def is_current(module: Path, sources: str) -> bool:
    """Return whether the module is the result of the last build, from sources with this
    fingerprint."""
    try:
        return _record(module).read_text("utf-8") == _text(module, sources)
    except (OSError, ValueError):
        return False


def remember(module: Path, sources: str) -> None:
    """Record that the module was built from sources with this fingerprint.

    Raises:
        OSError: the module cannot be read, or the record cannot be written.
    """
    _record(module).write_text(_text(module, sources), "utf-8")


def _record(module: Path) -> Path:
    return module.with_name(f"{module.name}.sources")


def _text(module: Path, sources: str) -> str:
    return f"{sources} {blake2b(read_regular_file(module)).hexdigest()}\n"
