"""Write the tables of docs/reference from the code: scripts/reference.py [--check].

With --check nothing is written, and the exit code is 1 when a page differs from the code.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import itertools
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from fieldbrook.cli import main as cli
from fieldbrook.core import errors
from fieldbrook.core.errors import NotFoundError
from fieldbrook.core.settings import (
    RENAMED,
    SECRETS,
    Settings,
    allowed,
    default_text,
    flag_of,
    variable_of,
)
from fieldbrook.gateway.management.framework.generations import LATER, SEED, generations, shape
from fieldbrook.gateway.management.framework.route import Auth, Route, WrongMethod, find_route
from fieldbrook.gateway.management.route_table import PREFIXES, ROUTES
from fieldbrook.wasm.module import abi

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "reference"
_NOTE = "<!-- made by scripts/reference.py; change the code, not this page -->"

_HOST_FUNCTIONS = {
    "ws_log": "(level, ptr, len): a line in the applet log",
    "ws_get_data": "(rid, &ptr, &len): the event's payload",
    "ws_set_data": "(rid, ptr, len): replaces or makes a resource",
    "ws_get_event_type": "(rid, &ptr, &len): the event's type",
    "ws_get_db": "(key, key len, &ptr, &len): a value of the applet's key-value store",
    "ws_set_db": "(key, key len, value, value len): stores a value, committed with the event",
    "ws_get_env": "(key, key len, &ptr, &len): a variable of the project",
    "ws_set_sql_db": "(JSON, JSON len): carries a statement out on the project's database",
    "ws_get_sql_db": "(JSON, JSON len, &ptr, &len): the same, and gives its rows as JSON",
    "ws_send_mqtt_msg": "(topic, topic len, ptr, len): publishes after the commit, QoS 1; not to "
    "a topic where a project takes events",
    "ws_send_mqtt": "the same under its older name",
    "ws_get_mqtt_msg": "(rid, &topic, &len, &ptr, &len): the event's type and payload",
    "ws_api_call": "(request, len, &ptr, &len): a call carried out after the commit; the response "
    "comes as an event",
    "ws_send_tx": "(chain id, request, len, &ptr, &len): sends a transaction, gives its hash; "
    "-1 without that chain",
    "ws_send_tx_with_operator": "the same by the operator the request names",
    "ws_call_contract": "(chain id, request, len, &ptr, &len): what a contract returns; -1 without "
    "that chain",
    "ws_submit_metrics": "(ptr, len): keeps JSON with the time",
    "ws_counter_inc": "(name, len): keeps a count of one",
    "ws_counter_add": "(name, len, number): keeps a count",
    "ws_gauge_set": "(name, len, number): keeps a level",
    "abort": "(message, file, line, column): AssemblyScript's; logged, the module traps next",
    "trace": "(message, n, five numbers): AssemblyScript's; logged",
    "seed": "(): a number for AssemblyScript's Math.random",
    "poll_oneoff": "WASI's sleep, ended by the run's deadline",
    "verify_secp256k1": "(digest, len, signature, len, key, len): 0 when the ECDSA signature of "
    "the 32-byte digest is the key's",
    "verify_p256": "the same on P-256",
    "verify_ed25519": "(message, len, signature, len, key, len): the same for Ed25519, over the "
    "message itself",
    "recover_secp256k1": "(digest, len, signature, len, &ptr, &len): the 64-byte public key of a "
    "65-byte signature",
    "recover_address": "(digest, len, signature, len, &ptr, &len): its 20-byte Ethereum address",
    "sha256": "(ptr, len, &ptr, &len): the 32-byte digest",
    "keccak256": "(ptr, len, &ptr, &len): the 32-byte digest, Ethereum's (not SHA3-256)",
}


def settings_page() -> str:
    """Every setting, and the old names of renamed ones."""
    rows = [
        (
            "" if name in SECRETS else f"`{flag_of(name)}`",
            f"`{variable_of(name)}`",
            f"`{name}`",
            _default(name),
            f"{field.description}{_range(name)}",
        )
        for name, field in Settings.model_fields.items()
    ]
    text = (
        "A flag overrides a variable, a variable overrides the settings file (`--config FILE` or "
        "`FIELDBROOK_CONFIG`, in TOML), and the file overrides the default. When a value is not "
        "allowed or the file has an unknown key, the node does not start; the error names the "
        "setting and where the value came from."
    )
    renamed = [
        (f"`{old}`", f"`{variable_of(old)}`", f"`{flag_of(old)}`", f"`{new}`")
        for old, new in RENAMED.items()
    ]
    old_names = (
        "An old name still works in this version, in the file, as a variable and as a flag, and "
        "logs a warning with the new name. The next version refuses it. Where one of them has both "
        "names, the node does not start."
    )
    return page(
        "Settings",
        text,
        table(("flag", "variable", "in the file", "default", "meaning"), rows),
        "## Renamed settings",
        old_names,
        table(("old name", "old variable", "old flag", "new name"), renamed),
    )


def cli_page() -> str:
    """Every command with its options."""
    program = click.Context(cli.cli, info_name="fieldbrook")
    parts = [
        (
            "Results go to standard output, everything else to standard error. Exit codes: 0 done; 1 the "
            "node refused, or a handler failed; 2 wrong usage or settings; 3 the node cannot be reached; "
            "4 not logged in, or not allowed; 130 ended by Ctrl-C."
        ),
        "The options of the program; `--json`, `--server` and `--ca` may also stand after the name of a command:",
        _options_table(cli.cli, program, set()),
    ]
    shared = {option.name or "" for option in cli.cli.get_params(program)} - {"data"}
    for path, command in commands(cli.cli, "fieldbrook"):
        context = click.Context(command, info_name=path)
        usage = " ".join(piece for piece in command.collect_usage_pieces(context)[1:])
        parts.append(f"## {path} {usage}".rstrip())
        parts.append(inspect.cleandoc(command.help or "").split("\f")[0])
        if command is not cli.node:  # its options are those of `up`
            parts.append(_options_table(command, context, shared))
    return page("Command line", *parts)


def _options_table(command: click.Command, context: click.Context, without: set[str]) -> str:
    rows = [
        (f"`{record[0]}`", record[1])
        for option in command.get_params(context)
        if isinstance(option, click.Option) and option.name not in without
        if "--help" not in option.opts
        if (record := option.get_help_record(context)) is not None
    ]
    return table(("option", "what"), rows) if rows else ""


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Every command below one, with the words that call it."""
    if isinstance(command, click.Group):
        for name, sub in sorted(command.commands.items()):
            yield from commands(sub, f"{path} {name}")
    else:
        yield path, command


def http_page() -> str:
    """Every route."""
    rows = [
        ("POST", "/event/{channel}", "HandleEvent", "the publisher's token", "Event", "see below")
    ]
    rows += [
        (
            route.method,
            route.pattern,
            route.operation,
            route.auth.name.lower().replace("_", " "),
            "" if route.auth is Auth.ANYBODY else str(route.group or ""),
            "; ".join(filter(None, (_first_line(route.handler), _fields(route)))),
        )
        for route in ROUTES
    ]
    return page(
        "HTTP",
        "Paths are below `/srv-applet-mgr/v0`, and below `/api/w3bapp` too. Success is 201 for a "
        "POST, 200 with a body and 204 without; a failure is the 8-key error of "
        "[errors](errors.md). The account's token, or an access key, travels as `Authorization: "
        "Bearer TOKEN`. An access key needs READONLY on the group for GET, READ_WRITE for the rest "
        "([accounts and keys](../how-to/accounts.md)). A `*` marks what is required. Beside these: `GET /` (204), `GET /liveness`, `GET /readiness`, `GET /metrics` ([monitoring](../how-to/monitor.md#metrics)), `GET /version`. The dashboard port also serves this documentation at `GET /docs/`.",
        table(("method", "path", "operation", "authority", "group", "what"), rows),
        "## Events",
        'One message: `{"header": {"pub_id", "token", "event_type"?, "pub_time"?, '
        '"event_id"?}, "payload"?: base64}`, whatever the Content-Type says. NULs and white space '
        "may follow the JSON. It is answered 201 "
        'with `{"results": [{"instanceID", "code", "errMsg"}]}`, one result per handler, when '
        "its effects are on disk. A handler that traps, runs out of a budget or is stopped gives "
        "code -1 and the reason. Every answer carries `X-Event-Id`.",
        'A batch: `{"events": [message, ...]}`, 8,192 at most. It is answered 201 with a list, one item per '
        'message in order: `{"projectName", "pubID"?, "pubName"?, "eventID", "errMsg"?, "wasmResults", "replayed"?}`; what '
        "is wrong with a message is in its item. `pubID` is the publisher's id. Behind an event whose "
        "outcome is unknown (`OutcomeUnknown`) no other of its publisher in the same batch runs: these "
        "are answered `ServiceUnavailable`. One that was refused holds up none.",
        "A publisher that may send certain event types only gets 403 `EventTypeNotAllowed` for others. "
        "A project with a traffic limit answers 429 `TrafficLimitExceededFailed` until its next "
        "window, and so does a batch of which nothing was taken; events of cron jobs and monitors "
        "are not counted.",
        "Raw: with `?eventType=`, or with a token and a body of neither of these forms, the body "
        "itself is the payload; `eventID` and `timestamp` (any 64-bit integer) may stand in the "
        "query too. The publisher's token alone says who sends: header `Authorization` or query "
        '`authorization`, with or without `Bearer`. It is answered 201 with `{"channel", '
        '"publisherID", "publisherKey", "eventID", "timestamp", "results": '
        '[{"appletName", "instanceID", "handler", "returnValue": null, "code", '
        '"error"?}]}`; `results` is null when no strategy matched. A token of another project '
        'gives `"error": "InvalidEventChannel"` there, with 201.',
        "Data push: `?eventType=DA-TA_PU-SH`, the access key of the project's owner or of an "
        'administrator as the token, and a JSON array of `{"device_id", "event_type"?, '
        '"payload"}` (text, taken verbatim), 4096 at most. A device that is no publisher yet '
        'becomes one. It is answered 201 with `[{"index", "results", "replayed"?}]`, one item for each '
        "in order; what is wrong with an item is in its one result, with code -1.",
        "Repetitions: an event is answered from its stored result, and does not run again, when it was "
        "handled within the last day (as far as a million others of the project have not come since) "
        "and has the same publisher, event type, payload, sender's time (`pub_time`, `timestamp`) and "
        "event id, of 16 characters at least. A shorter id is a label: it names no event. The header "
        "`Idempotency-Key` (1 to 255 printable characters of ASCII, in quotation marks or not) does it "
        "for any request, with the items of a batch or a push numbered: the same key with another event "
        "type or payload is 422 `IdempotencyKeyReused`. A stored result comes with the header "
        "`Idempotency-Replayed: true`; in a batch or a push that header says it of all items, "
        '`"replayed": true` of one. More: [clients](clients.md#sending-an-event-again).',
        "A public project takes messages and raw events without a token, from its publisher "
        "`anonymous`. Which client sends which form: [clients](clients.md).",
        "A request head of more than 16,384 bytes is answered 431, a head with a line that ends with a "
        "bare line feed 400; both end the connection. A request line may hold a whole address "
        "(`POST http://HOST/...`, RFC 9112, 3.2.2), whose host then counts instead of the header's. A "
        "path with doubled slashes is answered 307 with the clean path in `Location`, one with a "
        "slash too many at its end or in another case 301 (GET) or 307.",
        "429 and 503 carry `Retry-After`: nothing was taken. 503 `OutcomeUnknown`: the project died "
        "on the event, which may or may not have been committed.",
    )


def routes_page() -> str:
    """Every route, whom it is for and which test calls it."""
    tests = tested_by()
    rows = [
        (
            route.method,
            f"`{route.pattern}`",
            route.operation,
            ", ".join(generations(route)) or "ours",
            route.auth.name.lower(),
            _calls_most(tests[shape(route)]),
        )
        for route in sorted(ROUTES, key=lambda route: (route.segments, route.method))
    ]
    missing = sorted((SEED | LATER) - {shape(route) for route in ROUTES})
    return page(
        "Routes by generation",
        "S1 are the routes of early clients (until April 2023), L those of later ones; ours are in "
        "neither. What a route takes is in [HTTP](http.md). The test named is the file that calls "
        "the route most often; how that is found: `tested_by` in scripts/reference.py.",
        "Of both generations these are not served: "
        + (", ".join(f"`{name}`" for name in missing) or "none")
        + ".",
        table(("method", "path", "operation", "generation", "authority", "tested by"), rows),
    )


def tested_by() -> dict[str, Counter[str]]:
    """How often each test file calls each route.

    A call is a method and a path that stand next to each other among the arguments of a call
    or the members of a tuple. A path is a string, or put together from strings, names given
    one in the same function or module, and functions of the file that return one. What
    an f-string inserts otherwise stands for any parameter of a path, or, where no route has
    one, for any word (the kinds of monitors). Helpers outside of test files do not count.
    """
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        name = path.relative_to(ROOT).as_posix()
        for method, target in _requests(ast.parse(path.read_text())):
            for route in _routes_at(method, target):
                found[shape(route)][name] += 1
    return found


def _routes_at(method: str, target: str) -> list[Route]:
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


def _requests(tree: ast.Module) -> Iterator[tuple[str, str]]:
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    texts = _Texts({}, {function.name: function for function in functions})
    texts = _Texts(texts.given_in(tree.body), texts.functions)
    scopes: list[ast.FunctionDef | ast.Module] = [*functions, tree]
    for scope in scopes:
        given = {**texts.names, **texts.given_to(scope), **texts.given_in(scope.body)}
        local = _Texts(given, texts.functions)
        inside = ast.walk(scope) if isinstance(scope, ast.FunctionDef) else _outside(tree)
        for node in inside:
            if isinstance(node, ast.Call):
                items = node.args
            elif isinstance(node, ast.Tuple | ast.List):
                items = node.elts
            else:
                continue
            for first, second in itertools.pairwise(items):
                for method in local.of(first) & _METHODS:
                    yield from ((method, _below_prefix(text)) for text in local.of(second) if text)


def _outside(tree: ast.Module) -> Iterator[ast.AST]:
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield from ast.walk(node)


class _Texts:
    """What expressions of a test file can be, as far as they are text."""

    def __init__(
        self, names: dict[str, set[str]], functions: dict[str, ast.FunctionDef], depth: int = 0
    ) -> None:
        self.names, self.functions, self._depth = names, functions, depth

    def given_in(self, body: list[ast.stmt]) -> dict[str, set[str]]:
        """Names that statements give a text, by assignment or by looping over texts."""
        given: dict[str, set[str]] = defaultdict(set)
        for statement in body:
            for node in ast.walk(statement):
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    given[node.targets[0].id] |= self.of(node.value)
                elif (
                    isinstance(node, ast.For)
                    and isinstance(node.target, ast.Name)
                    and isinstance(node.iter, ast.Tuple | ast.List)
                ):
                    for item in node.iter.elts:
                        given[node.target.id] |= self.of(item)
        return {name: texts for name, texts in given.items() if texts}

    def given_to(self, scope: ast.FunctionDef | ast.Module) -> dict[str, set[str]]:
        """Parameters of a test that `pytest.mark.parametrize` gives texts, one at a time."""
        given = {}
        for decorator in scope.decorator_list if isinstance(scope, ast.FunctionDef) else ():
            match decorator:
                case ast.Call(args=[ast.Constant(value=str(name)), ast.List(elts=items), *_]):
                    given[name] = set().union(*map(self.of, items))
        return given

    def of(self, node: ast.expr) -> set[str]:
        """All texts an expression can be; none when that cannot be told."""
        match node:
            case ast.Constant(value=str(text)):
                return {text}
            case ast.JoinedStr(values=values):
                return self._joined([self.of(value) or {ANY} for value in values])
            case ast.FormattedValue(value=value):
                return self.of(value)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._joined([self.of(left) or {ANY}, self.of(right) or {ANY}])
            case ast.Name(id=name):
                return self.names.get(name, set())
            case ast.IfExp(body=one, orelse=other):
                return self.of(one) | self.of(other)
            case ast.Call(func=ast.Name(id=name)) if name in self.functions and self._depth < 3:
                return self._returned(self.functions[name], node)
        return set()

    def _returned(self, function: ast.FunctionDef, call: ast.Call) -> set[str]:
        texts: set[str] = set()
        parameters = [argument.arg for argument in function.args.args]
        defaults = dict(zip(parameters[::-1], function.args.defaults[::-1], strict=False))
        given = {name: self.of(default) for name, default in defaults.items()}
        given |= {name: self.of(node) for name, node in zip(parameters, call.args, strict=False)}
        inner = _Texts(
            {**self.names, **{name: set() for name in parameters}, **given},
            self.functions,
            self._depth + 1,
        )
        for node in ast.walk(function):
            if isinstance(node, ast.Return) and node.value is not None:
                texts |= inner.of(node.value)
        return texts

    @staticmethod
    def _joined(parts: list[set[str]]) -> set[str]:
        return {"".join(chosen) for chosen in itertools.product(*parts)}


def _below_prefix(target: str) -> str:
    path = target.partition("?")[0]
    for prefix in PREFIXES:
        path = path.removeprefix(prefix)
    return path.removeprefix(ANY) if path.startswith(f"{ANY}/") else path


def _calls_most(files: Counter[str]) -> str:
    if not files:
        return ""
    name = min(files, key=lambda name: (-files[name], name))
    return f"[{Path(name).name}](../../{name})"


def errors_page() -> str:
    """Every error class."""
    # Without a key of its own a class only gathers others.
    found = sorted(
        {error for error in _tree(errors.NodeError) if error.key != errors.NodeError.key},
        key=lambda error: (error.status, error.number, error.__name__),
    )
    rows = [
        (str(error.status), f"`{error.key}`", str(_code(error)), error.msg, _when(error))
        for error in found
    ]
    return page(
        "Errors",
        "The body: `key`, `code`, `msg`, `desc` (what was wrong, with its names), `canBeTalk`, `id`, "
        "`sources`, `fields` (for `badRequest`: `field`, `msg` and `in` of each parameter, else "
        "null). Programs compare keys.",
        table(("status", "key", "code", "msg", "when"), rows),
    )


def abi_page() -> str:
    """Every host function."""
    letters = {"i": "i32", "d": "f64"}
    rows = [
        (
            f"`{s.module}.{s.name}`",
            f"({', '.join(letters[p] for p in s.params)})"
            + (f" -> {letters[s.result]}" if s.result else ""),
            str(s.failure) if s.result == "i" else "",
            _HOST_FUNCTIONS[s.name],
        )
        for s in abi.SIGNATURES
    ]
    return page(
        "Applets: what a module may import",
        "A handler is an exported function `(i32) -> i32`; its argument is the resource id of the "
        "event. A module exports `memory`, and `alloc` `(i32) -> i32` for functions that hand data "
        "back: those write pointer and length to the two addresses given last. `_initialize` is "
        "called once when exported, `_start` never. WASI preview 1 is there and empty: no files, "
        "arguments or variables. Another import is refused at upload with its name.",
        "Every event gets a fresh instance. What it stores is committed when the handler returns, "
        "whatever the code, and dropped when it traps. Budgets per run: deadline, memory, host "
        "calls, log bytes and key-value bytes; one exceeded ends the run with a trap that names it.",
        table(("import", "signature", "bad pointer gives", "what"), rows),
        "## Signatures of devices",
        "`fieldbrook.verify_*` return 0 for a signature that is the key's, and for nothing else: 11 "
        "it is not the key's, 12 it has no valid form, 13 the key has none or is no point of the "
        "curve, 10 the digest is not 32 bytes. ECDSA takes a signature as 64 bytes (R, S, big-endian) "
        "or, at any other length, as strict DER, and a key as 33, 65 or 64 bytes (compressed, "
        "uncompressed, uncompressed without its 04). Ed25519 takes 64 and 32 bytes; a key that is no "
        "point gives 11. For recovery a signature is R, S and V (0, 1, 27 or 28).",
        "S of an ECDSA signature may lie in either half of its range, as devices make it. Whoever "
        "sees a signature can make a second good one of the same message, so its bytes must not "
        "serve as an identity or to recognise what was seen before: use a digest of the message. "
        "Ed25519 has no such second signature. A signature proves who signed, not when: what must "
        "count once needs a number or a time within the message.",
    )


_METHODS = frozenset({"GET", "POST", "PUT", "DELETE"})
ANY = "*"

PAGES = {
    "settings.md": settings_page,
    "cli.md": cli_page,
    "http.md": http_page,
    "routes.md": routes_page,
    "errors.md": errors_page,
    "abi.md": abi_page,
}


def page(title: str, *parts: str) -> str:
    """A Markdown page."""
    return "\n\n".join((f"# {title}", _NOTE, *(part for part in parts if part))) + "\n"


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(c.replace("|", "\\|") for c in line) + " |" for line in lines
    )


def _default(name: str) -> str:
    text = default_text(name)
    return text if text == "none" else f"`{text}`"


def _range(name: str) -> str:
    words = allowed(name)
    return f" Allowed: {words.removeprefix('must be ')}." if words else ""


def _first_line(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").split("\n\n")[0].replace("\n", " ").rstrip(".")


def _fields(route: Any) -> str:
    parts = []
    for where, struct in (("body", route.body), ("query", route.query)):
        if struct is not None:
            names = [
                f"`{field.encode_name}`{'*' if field.required else ''}"
                for field in msgspec.structs.fields(struct)
            ]
            parts.append(f"{where}: {', '.join(names)}")
    if route.upload:
        parts.insert(0, "multipart with `file` and `info`")
    return "; ".join(parts)


def _tree(error: type[errors.NodeError]) -> Iterator[type[errors.NodeError]]:
    yield error
    for sub in error.__subclasses__():
        yield from _tree(sub)


def _when(error: type[errors.NodeError]) -> str:
    own = error.__dict__.get("__doc__")
    return inspect.cleandoc(own).split("\n\n")[0].replace("\n", " ") if own else error.template


def _code(error: type[errors.NodeError]) -> int:
    if error.key == errors.BadRequestError.key:
        return 400_000_000
    return error.status * 1_000_000 + 999_000 + error.number


def main(arguments: list[str]) -> int:
    """Write the pages, or compare them."""
    stale = []
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, make in PAGES.items():
        path, text = FOLDER / name, make()
        if "--check" not in arguments:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(name)
    if stale:
        print(f"docs/reference: {', '.join(stale)} differ from the code; run scripts/reference.py")
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
