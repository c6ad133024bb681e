"""Finds every regular expression of the product, and runs each over its worst inputs.

`python -m tests.unit.repository.patterns` runs the attacks of `pattern_table` and prints one JSON
line for each: the pattern, the attack and the CPU seconds, null if the time limit was reached.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import resource
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parent.parent.parent.parent
FOLDERS = ("fieldbrook", "gateway", "actors", "storage", "chain", "wasm")
SIZE = 1 << 18
GENERIC_SIZE = 1 << 16
# A linear pattern takes milliseconds for either size. A quadratic one takes at least 69 s for SIZE
# and 4.3 s for GENERIC_SIZE: the engine takes a nanosecond or more for a character.
CPU_LIMIT_S = 2.0
ALL_CPU_LIMIT_S = 600
_METHODS = ("fullmatch", "match", "search", "findall", "finditer", "split", "sub", "subn")


@dataclass(frozen=True)
class Found:
    """A pattern of the product: `module:NAME` or `module:NAME[KEY]`, and the methods that its
    module calls on the name; none for patterns in a container."""

    name: str
    pattern: re.Pattern[Any]
    methods: frozenset[str]


class _Reader(ast.NodeVisitor):
    """Finds the calls of `re` in one file."""

    def __init__(self) -> None:
        self.depth = 0
        self.misplaced: list[int] = []
        self.compiled = 0
        self.methods: dict[str, set[str]] = {}

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.depth += 1
        self.generic_visit(node)
        self.depth -= 1

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.module == "re":
            self.misplaced.append(node.lineno)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        of = node.value
        if isinstance(of, ast.Name) and of.id == "re":
            if node.attr == "compile" and not self.depth:
                self.compiled += 1
            elif node.attr == "compile" or node.attr in _METHODS:
                self.misplaced.append(node.lineno)
        elif isinstance(of, ast.Name) and node.attr in _METHODS:
            self.methods.setdefault(of.id, set()).add(node.attr)
        elif isinstance(of, ast.Call) and node.attr in _METHODS:
            self.methods.setdefault(ast.unparse(of), set()).add(node.attr)
        self.generic_visit(node)


def source_files() -> Iterator[tuple[str, Path]]:
    """Return the product's modules: import name and file."""
    for folder in FOLDERS:
        for place, _, names in os.walk(ROOT / folder):
            for name in sorted(names):
                path = Path(place, name)
                if path.suffix == ".py":
                    parts = path.relative_to(ROOT).with_suffix("").parts
                    yield (
                        ".".join(parts if folder == "fieldbrook" else ("fieldbrook", *parts)),
                        path,
                    )


def misplaced() -> list[str]:
    """Return uses of `re` that `find_patterns` cannot find: all but `re.compile` in a module."""
    wrong = []
    for _, path in source_files():
        reader = _read(path)
        wrong += [f"{path.relative_to(ROOT)}:{line}" for line in reader.misplaced]
    return wrong


@cache
def find_patterns() -> list[Found]:
    """Return every pattern of the product.

    Raises:
        AssertionError: a module compiles a pattern that none of its names refers to.
    """
    found: list[Found] = []
    for module_name, path in source_files():
        text = path.read_text()
        if "re.compile(" not in text:
            continue
        reader = _read(path)
        here = []
        for target in _targets(ast.parse(text)):
            value = getattr(importlib.import_module(module_name), target)
            methods = reader.methods.get(target, set())
            here += [
                Found(f"{module_name}:{target}{key}", pattern, frozenset(methods | called))
                for key, pattern, called in _patterns_in(value)
            ]
        assert len(here) >= reader.compiled, f"{path}: a pattern is hidden"
        found += here
    return found


def _read(path: Path) -> _Reader:
    reader = _Reader()
    reader.visit(ast.parse(path.read_text()))
    return reader


def _targets(tree: ast.Module) -> Iterator[str]:
    """Return the names of a module that are bound to compiled patterns."""
    for node in tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        if "re.compile(" in ast.unparse(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def _patterns_in(value: Any) -> Iterator[tuple[str, re.Pattern[Any], set[str]]]:
    if isinstance(value, re.Pattern):
        yield "", value, set()
    elif isinstance(getattr(value, "__self__", None), re.Pattern):
        yield "", value.__self__, {value.__name__}
    elif isinstance(value, dict):
        for key, each in value.items():
            yield f"[{key}]", each, set()
    elif isinstance(value, tuple | list):
        for place, each in enumerate(value):
            yield f"[{place}]", each, set()


# ---------------------------------------------------------------- attacks


def attack(pattern: re.Pattern[Any], method: str, data: str | bytes) -> None:
    """Use a pattern like the product, to the end."""
    call = getattr(pattern, method)
    if method in ("sub", "subn"):
        call("_" if isinstance(data, str) else b"_", data)
    elif method == "finditer":
        for _ in call(data):
            pass
    else:
        call(data)


def inflate(pattern: re.Pattern[Any], parts: tuple[str, str, str], size: int) -> str | bytes:
    """Return prefix, pumps up to `size`, and suffix, in the pattern's type."""
    prefix, pump, suffix = parts
    text = prefix + pump * (size // len(pump)) + suffix
    return text if isinstance(pattern.pattern, str) else text.encode("latin-1")


def generic(pattern: re.Pattern[Any]) -> list[tuple[str, str, str]]:
    """Yield attacks that any pattern must withstand: repetitions of each kind of character in the
    pattern, and of each two alternately, with an end that never matches."""
    source = (
        pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin1")
    )
    wanted = [" ", "\t", "\n", "0", "a", "A"]
    if "[^" in source or "." in source:
        wanted.append("~")
    wanted += [letter for letter in dict.fromkeys(source) if not letter.isalnum()]
    runs = [letter for letter in dict.fromkeys(wanted) if letter.isascii()][:24]
    return [("", run, "\x00") for run in runs] + [("", f"{run}a", "\x00") for run in runs]


class _TimeIsUp(Exception):  # noqa: N818 - a result, no failure of ours
    pass


def _limit(number: int, frame: FrameType | None) -> None:
    raise _TimeIsUp


def measure(pattern: re.Pattern[Any], method: str, data: str | bytes) -> float | None:
    """Return the CPU seconds of one attack; None if the time limit was reached. The engine checks
    for signals while it matches."""
    signal.signal(signal.SIGVTALRM, _limit)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_LIMIT_S)
    began = time.process_time()
    try:
        attack(pattern, method, data)
        return time.process_time() - began
    except _TimeIsUp:
        return None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def main() -> int:
    """Run all attacks."""
    from tests.unit.repository.pattern_table import TABLE

    resource.setrlimit(resource.RLIMIT_CPU, (ALL_CPU_LIMIT_S, ALL_CPU_LIMIT_S))
    for found in find_patterns():
        entry = TABLE.get(found.name)
        if entry is None:
            continue  # another test reports it
        attacks = [(parts, SIZE) for parts in entry.worst]
        attacks += [(parts, GENERIC_SIZE) for parts in generic(found.pattern)]
        for parts, size in attacks:
            for method in entry.methods:
                seconds = measure(found.pattern, method, inflate(found.pattern, parts, size))
                line = {"name": found.name, "attack": parts, "size": size, "seconds": seconds}
                sys.stdout.write(json.dumps(line) + "\n")
                sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
