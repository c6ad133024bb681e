"""Finds which test files call which management routes, by reading the tests.

A request is a method and a path next to each other among the arguments of a call or the members of
a tuple. A path is a string, or is composed of strings, of names to which the same function or
module assigns a string, and of functions of the file that return a string. Any other value in an
f-string stands for any parameter of a path or, if no route has a parameter there, for any word (the
kinds of monitors). Helpers outside of test files do not count.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from fieldbrook.core.errors import NotFoundError
from fieldbrook.gateway.management.framework.generations import shape
from fieldbrook.gateway.management.framework.route import Route, WrongMethod, find_route
from fieldbrook.gateway.management.prefixes import PREFIXES
from fieldbrook.gateway.management.route_table import ROUTES

ROOT = Path(__file__).parent.parent
_METHODS = frozenset({"GET", "POST", "PUT", "DELETE"})
ANY = "*"
"""A placeholder for text of a path that cannot be determined."""


@cache
def calls_by_test_file() -> dict[str, Counter[str]]:
    """Return how often each test file calls each route."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        name, text = path.relative_to(ROOT).as_posix(), path.read_text()
        if not any(f'"{method}"' in text for method in _METHODS):
            continue  # most tests call no route
        for method, target in requests_in(ast.parse(text)):
            for route in routes_at(method, target):
                found[shape(route)][name] += 1
    return found


def routes_at(method: str, target: str) -> list[Route]:
    """Return the routes to which a request may belong; several if the path has unknown text."""
    with contextlib.suppress(NotFoundError, WrongMethod):
        return [find_route(ROUTES, method, target).route]
    found = []
    for route in ROUTES:
        given = target.split("/")[1:]
        if len(given) != len(route.segments) or given[0] != route.segments[0]:
            continue
        words = [
            want if have == ANY and not want.startswith("{") else have
            for have, want in zip(given, route.segments, strict=True)
        ]
        with contextlib.suppress(NotFoundError, WrongMethod):
            if find_route(ROUTES, method, "/" + "/".join(words)).route is route:
                found.append(route)
    return found


def requests_in(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield method and path of each call in a test file."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    texts = _TextEvaluator({}, {function.name: function for function in functions})
    texts = _TextEvaluator(texts.texts_assigned_in(tree.body), texts.functions)
    scopes: list[ast.FunctionDef | ast.Module] = [*functions, tree]
    for scope in scopes:
        given = {
            **texts.names,
            **texts.texts_of_parameters(scope),
            **texts.texts_assigned_in(scope.body),
        }
        local = _TextEvaluator(given, texts.functions)
        inside = ast.walk(scope) if isinstance(scope, ast.FunctionDef) else _outside(tree)
        for node in inside:
            if isinstance(node, ast.Call):
                items = node.args
            elif isinstance(node, ast.Tuple | ast.List):
                items = node.elts
            else:
                continue
            for first, second in itertools.pairwise(items):
                for method in local.evaluate(first) & _METHODS:
                    yield from (
                        (method, _below_prefix(text)) for text in local.evaluate(second) if text
                    )


def _outside(tree: ast.Module) -> Iterator[ast.AST]:
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield from ast.walk(node)


class _TextEvaluator:
    """Evaluates expressions of a test file: finds all texts that an expression can have."""

    def __init__(
        self, names: dict[str, set[str]], functions: dict[str, ast.FunctionDef], depth: int = 0
    ) -> None:
        self.names, self.functions, self._depth = names, functions, depth

    def texts_assigned_in(self, body: list[ast.stmt]) -> dict[str, set[str]]:
        """Return the names to which statements assign a text, directly or by a loop over texts."""
        given: dict[str, set[str]] = defaultdict(set)
        for statement in body:
            for node in ast.walk(statement):
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    given[node.targets[0].id] |= self.evaluate(node.value)
                elif (
                    isinstance(node, ast.For)
                    and isinstance(node.target, ast.Name)
                    and isinstance(node.iter, ast.Tuple | ast.List)
                ):
                    for item in node.iter.elts:
                        given[node.target.id] |= self.evaluate(item)
        return {name: texts for name, texts in given.items() if texts}

    def texts_of_parameters(self, scope: ast.FunctionDef | ast.Module) -> dict[str, set[str]]:
        """Return the parameters of a test to which `pytest.mark.parametrize` assigns texts, one at
        a time."""
        given = {}
        for decorator in scope.decorator_list if isinstance(scope, ast.FunctionDef) else ():
            match decorator:
                case ast.Call(args=[ast.Constant(value=str(name)), ast.List(elts=items), *_]):
                    given[name] = set().union(*map(self.evaluate, items))
        return given

    def evaluate(self, node: ast.expr) -> set[str]:
        """Return all texts that an expression can have; none if they cannot be determined."""
        match node:
            case ast.Constant(value=str(text)):
                return {text}
            case ast.JoinedStr(values=values):
                return self._joined([self.evaluate(value) or {ANY} for value in values])
            case ast.FormattedValue(value=value):
                return self.evaluate(value)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._joined([self.evaluate(left) or {ANY}, self.evaluate(right) or {ANY}])
            case ast.Name(id=name):
                return self.names.get(name, set())
            case ast.IfExp(body=one, orelse=other):
                return self.evaluate(one) | self.evaluate(other)
            case ast.Call(func=ast.Name(id=name)) if name in self.functions and self._depth < 3:
                return self._returned(self.functions[name], node)
        return set()

    def _returned(self, function: ast.FunctionDef, call: ast.Call) -> set[str]:
        texts: set[str] = set()
        parameters = [argument.arg for argument in function.args.args]
        defaults = dict(zip(parameters[::-1], function.args.defaults[::-1], strict=False))
        given = {name: self.evaluate(default) for name, default in defaults.items()}
        given |= {
            name: self.evaluate(node) for name, node in zip(parameters, call.args, strict=False)
        }
        inner = _TextEvaluator(
            {**self.names, **{name: set() for name in parameters}, **given},
            self.functions,
            self._depth + 1,
        )
        for node in ast.walk(function):
            if isinstance(node, ast.Return) and node.value is not None:
                texts |= inner.evaluate(node.value)
        return texts

    @staticmethod
    def _joined(parts: list[set[str]]) -> set[str]:
        return {"".join(chosen) for chosen in itertools.product(*parts)}


def _below_prefix(target: str) -> str:
    path = target.partition("?")[0]
    for prefix in PREFIXES:
        path = path.removeprefix(prefix)
    return path.removeprefix(ANY) if path.startswith(f"{ANY}/") else path
