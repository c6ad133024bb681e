"""Write the files that are generated from the code: scripts/reference.py [--check].

The pages of docs/reference are written by hand, except the parts between `<!-- generated: NAME -->`
and `<!-- end -->`, which this script makes. The file dashboard/api.d.ts is generated completely.
With --check nothing is written, and the exit code is 1 if a file differs from the code.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec
from api_types import api_types
from metric_table import metric_table
from route_calls import calls_by_test_file

from fieldbrook.cli import main as cli
from fieldbrook.core import errors
from fieldbrook.core.networks import NETWORKS
from fieldbrook.core.providers import PROVIDERS
from fieldbrook.core.settings import (
    REMOVED,
    RENAMED,
    SECRETS,
    default_text,
    flag_of,
    settings_fields,
    variable_of,
)
from fieldbrook.gateway.management.framework.generations import LATER, SEED, generations, shape
from fieldbrook.gateway.management.framework.route import Auth
from fieldbrook.gateway.management.route_table import ROUTES
from fieldbrook.wasm.module import abi

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "reference"
TYPES = ROOT / "dashboard" / "api.d.ts"
_PART = re.compile(r"<!-- generated: (\w+) -->\n.*?<!-- end -->", re.DOTALL)

_HOST_FUNCTIONS: dict[abi.Signature, tuple[str, str]] = {  # parameters, effect
    abi.WS_LOG: (
        "level, ptr, len",
        "writes a line to the applet log ([levels](#levels-of-log-lines))",
    ),
    abi.WS_GET_DATA: ("rid, &ptr, &len", "returns the payload of the event"),
    abi.WS_SET_DATA: ("rid, ptr, len", "creates or replaces a resource of this run"),
    abi.WS_GET_EVENT_TYPE: ("rid, &ptr, &len", "returns the type of the event"),
    abi.WS_GET_DB: (
        "key, key len, &ptr, &len",
        "returns a value of the applet's key-value store",
    ),
    abi.WS_SET_DB: (
        "key, key len, value, value len",
        "stores a value, which is committed with the event",
    ),
    abi.WS_GET_ENV: ("key, key len, &ptr, &len", "returns a variable of the project"),
    abi.WS_SET_SQL_DB: ("JSON, JSON len", "runs a statement on the project's SQL database"),
    abi.WS_GET_SQL_DB: (
        "JSON, JSON len, &ptr, &len",
        "runs a statement and returns its rows as JSON",
    ),
    abi.WS_SEND_MQTT_MSG: (
        "topic, topic len, ptr, len",
        (
            "publishes a message with QoS 1 after the commit; topics on which projects receive "
            "events, and those below another account's project, are refused"
        ),
    ),
    abi.WS_SEND_MQTT: ("topic, topic len, ptr, len", "older name of `ws_send_mqtt_msg`"),
    abi.WS_GET_MQTT_MSG: (
        "rid, &topic, &len, &ptr, &len",
        "returns the type and the payload of the event",
    ),
    abi.WS_API_CALL: (
        "request, len, &ptr, &len",
        "makes an API call after the commit; its response (headers 16 KiB, body 1 MiB) is an event",
    ),
    abi.WS_SEND_TX: (
        "chain id, request, len, &ptr, &len",
        (
            "sends a transaction after the commit and returns its hash; -1 if the chain is not "
            "configured"
        ),
    ),
    abi.WS_SEND_TX_WITH_OPERATOR: (
        "chain id, request, len, &ptr, &len",
        "the same, signed by the operator that the request names",
    ),
    abi.WS_CALL_CONTRACT: (
        "chain id, request, len, &ptr, &len",
        "returns the result of a contract call; -1 if the chain is not configured",
    ),
    abi.WS_SEND_TX_ONE_CHAIN: (
        "request, len",
        "sends a transaction on the default chain; returns no hash",
    ),
    abi.WS_CALL_CONTRACT_ONE_CHAIN: (
        "request, len, &ptr, &len",
        "returns the result of a contract call on the default chain",
    ),
    abi.WS_SUBMIT_METRICS: (
        "ptr, len",
        "stores JSON as a metric, with the time; arrays are refused",
    ),
    abi.WS_COUNTER_INC: ("name, len", 'stores the metric `{"counter": name, "value": 1}`'),
    abi.WS_COUNTER_ADD: (
        "name, len, number",
        'stores the metric `{"counter": name, "value": number}`',
    ),
    abi.WS_GAUGE_SET: ("name, len, number", 'stores the metric `{"gauge": name, "value": number}`'),
    abi.ABORT: (
        "message, file, line, column",
        "AssemblyScript: logs an exception; the module traps next",
    ),
    abi.TRACE: ("message, n, five numbers", "AssemblyScript: logs the message and n numbers"),
    abi.SEED: ("", "AssemblyScript: returns the seed of `Math.random`"),
    abi.POLL_ONEOFF: ("as in WASI", "WASI: sleeps, at most until the deadline of the run"),
    abi.VERIFY_SECP256K1: (
        "digest, len, signature, len, key, len",
        "verifies an ECDSA signature of a 32-byte digest on secp256k1",
    ),
    abi.VERIFY_P256: (
        "digest, len, signature, len, key, len",
        "verifies an ECDSA signature of a 32-byte digest on P-256",
    ),
    abi.VERIFY_ED25519: (
        "message, len, signature, len, key, len",
        "verifies an Ed25519 signature of a message",
    ),
    abi.RECOVER_SECP256K1: (
        "digest, len, signature, len, &ptr, &len",
        "returns the 64-byte public key of a 65-byte signature",
    ),
    abi.RECOVER_ADDRESS: (
        "digest, len, signature, len, &ptr, &len",
        "returns the 20-byte Ethereum address of a 65-byte signature",
    ),
    abi.SHA256: ("ptr, len, &ptr, &len", "returns the 32-byte SHA-256 digest"),
    abi.KECCAK256: (
        "ptr, len, &ptr, &len",
        "returns the 32-byte Keccak-256 digest (Ethereum's, not SHA3-256)",
    ),
}


def main(arguments: list[str]) -> int:
    """Write the files, or compare them."""
    stale = []
    files = {path: fill(path.read_text(), parts) for path, parts in _pages()}
    for path, made in {**files, TYPES: api_types()}.items():
        if path.is_file() and path.read_text() == made:
            continue
        if "--check" in arguments:
            stale.append(path.relative_to(ROOT).as_posix())
        else:
            path.write_text(made)
    if stale:
        print(f"{', '.join(stale)} differ from the code; run scripts/reference.py")
    return 1 if stale else 0


def _pages() -> Iterator[tuple[Path, Mapping[str, Callable[[], str]]]]:
    """Return the pages, and the functions that make their parts."""
    for name, parts in PAGES.items():
        yield FOLDER / name, parts


def fill(text: str, parts: Mapping[str, Callable[[], str]]) -> str:
    """Return a page with new generated parts.

    Raises:
        ValueError: the page does not have each part exactly once.
    """
    if sorted(_PART.findall(text)) != sorted(parts):
        raise ValueError(f"a page must have the generated parts {', '.join(parts)}")
    return _PART.sub(
        lambda part: f"<!-- generated: {part[1]} -->\n\n{parts[part[1]]()}\n\n<!-- end -->", text
    )


# The first setting of each part of the page, and the heading of the part.
_SETTING_PARTS = {
    "data": "Data, addresses and ports",
    "mqtt_broker": "A broker of your own",
    "tls_certificate": "TLS",
    "mqtt_anonymous": "MQTT",
    "token_lifetime_s": "Requests and storage",
    "deadline_ms": "Handlers and projects",
    "postgres_dsn": "SQL",
    "history_bytes": "History and registry",
    "quota_projects": "Quotas",
    "cron_timezone": "Cron, chains and provers",
    "wallet_whitelist": "Sign-in with a wallet",
    "audit_rows": "Records, metrics and logs",
}


def log_levels_table() -> str:
    """Return the numbers of `ws_log` and their names."""
    rows = [(str(number), f"`{name}`") for number, name in enumerate(abi.LEVEL_NAMES[:-1])]
    return table(("level", "name"), [*rows, ("any other", f"`{abi.LEVEL_NAMES[-1]}`")])


def settings_tables() -> str:
    """Return every setting, in a table for each part of the page.

    Each part is a separate result in the site's search, which would rank one long table last.
    """
    unknown = _SETTING_PARTS.keys() - settings_fields().keys()
    if unknown:
        raise ValueError(f"no settings, but begin parts of settings.md: {sorted(unknown)}")
    parts: list[tuple[str, list[tuple[str, ...]]]] = []
    for name, field in settings_fields().items():
        if name in _SETTING_PARTS:
            parts.append((_SETTING_PARTS[name], []))
        parts[-1][1].append(
            (
                "" if name in SECRETS else f"`{flag_of(name)}`",
                f"`{variable_of(name)}`",
                f"`{name}`",
                _default(name),
                f"{field.description}{_range(field.allowed)}",
            )
        )
    head = ("flag", "variable", "in the file", "default", "meaning")
    return "\n\n".join(f"## {title}\n\n{table(head, rows)}" for title, rows in parts)


def renamed_settings_table() -> str:
    """Return the old names of renamed settings."""
    rows = [
        (f"`{old}`", f"`{variable_of(old)}`", f"`{flag_of(old)}`", f"`{new}`")
        for old, new in RENAMED.items()
    ]
    return table(("old name", "old variable", "old flag", "new name"), rows)


def removed_settings_table() -> str:
    """Return settings without effect, and their replacements."""
    rows = [
        (f"`{old}`", f"`{variable_of(old)}`", f"`{flag_of(old)}`", instead)
        for old, instead in REMOVED.items()
    ]
    return table(("setting", "variable", "flag", "instead"), rows)


def program_options_table() -> str:
    """Return the options of the program itself."""
    return _options_table(cli.cli, click.Context(cli.cli, info_name=cli.PROGRAM), set())


def commands_text() -> str:
    """Return every command with its options."""
    program = click.Context(cli.cli, info_name=cli.PROGRAM)
    shared = {option.name or "" for option in cli.cli.get_params(program)} - {"data"}
    parts = []
    for path, command in _commands(cli.cli, cli.PROGRAM):
        context = click.Context(command, info_name=path)
        usage = " ".join(command.collect_usage_pieces(context)[1:])
        parts.append(f"## {path} {usage}".rstrip())
        parts.append(inspect.cleandoc(command.help or "").split("\f")[0])
        if command is not cli.node:  # the options of `node` are those of `up`
            parts.append(_options_table(command, context, shared))
    return "\n\n".join(part for part in parts if part)


def _options_table(command: click.Command, context: click.Context, without: set[str]) -> str:
    rows = [
        (f"`{record[0]}`", record[1])
        for option in command.get_params(context)
        if isinstance(option, click.Option) and option.name not in without
        if "--help" not in option.opts
        if (record := option.get_help_record(context)) is not None
    ]
    return table(("option", "what"), rows) if rows else ""


def _commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield every command below a group, with the words that call it."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            sub = command.get_command(context, name)
            assert sub is not None, name
            yield from _commands(sub, f"{path} {name}")
    else:
        yield path, command


def routes_table() -> str:
    """Return every route."""
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
    return table(("method", "path", "operation", "authority", "group", "what"), rows)


def generations_table() -> str:
    """Return the generation of every route, and the test file that calls it most often."""
    tests = calls_by_test_file()
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
    return table(("method", "path", "operation", "generation", "authority", "tested by"), rows)


def missing_routes() -> str:
    """Return the routes of either generation that are not served."""
    missing = sorted((SEED | LATER) - {shape(route) for route in ROUTES})
    return f"Not served: {', '.join(f'`{name}`' for name in missing) or 'none'}."


def networks_table() -> str:
    """Return every known chain, and the sources of its figures."""
    rows = [
        (
            f"`{network.name}`{' (test)' if network.test else ''}",
            str(network.chain_id),
            str(network.confirmations),
            "" if network.finality is None else f"{network.finality:,}",
            "yes" if network.final_tag else "",
            f"{network.poll_ms:,}",
            "" if network.priority_fee is None else _gwei(network.priority_fee),
            _gwei(network.max_fee_per_gas),
            _links(network.sources),
        )
        for network in NETWORKS
    ]
    head = (
        *("name", "id", "confirmations", "final after", "`finalized`", "poll_ms"),
        *("priority fee", "highest fee", "sources"),
    )
    return table(head, rows)


def providers_table() -> str:
    """Return the ranges of known providers, and the sources of the figures."""
    rows = [
        (
            provider.name,
            ", ".join(f"`{host}`" for host in provider.hosts),
            f"{provider.log_range:,}",
            _links([provider.source]),
        )
        for provider in PROVIDERS
    ]
    return table(("provider", "hosts", "blocks", "source"), rows)


def _gwei(wei: int) -> str:
    return f"{wei / 10**9:,g} gwei"


def _links(urls: Iterable[str]) -> str:
    return " ".join(f"[{number}]({url})" for number, url in enumerate(urls, 1))


def metrics_table() -> str:
    """Return every metric."""
    return table(("name", "type", "labels", "what"), metric_table())


def errors_table() -> str:
    """Return every error class."""
    # A class without a key of its own is only the base of other classes.
    found = sorted(
        {error for error in _tree(errors.NodeError) if error.key != errors.NodeError.key},
        key=lambda error: (error.status, error.number, error.__name__),
    )
    rows = [
        (str(error.status), f"`{error.key}`", str(_code(error)), error.msg, _when(error))
        for error in found
    ]
    return table(("status", "key", "code", "msg", "when"), rows)


def host_functions_table() -> str:
    """Return every host function."""
    letters = {"i": "i32", "d": "f64"}
    rows = [
        (
            f"`{s.module}.{s.name}`",
            f"({', '.join(letters[p] for p in s.params)})"
            + (f" -> {letters[s.result]}" if s.result else ""),
            str(s.failure) if s.result == "i" else "",
            *_HOST_FUNCTIONS[s],
        )
        for s in abi.SIGNATURES
    ]
    return table(("import", "signature", "invalid address", "parameters", "effect"), rows)


PAGES: dict[str, dict[str, Callable[[], str]]] = {
    "settings.md": {
        "settings": settings_tables,
        "renamed": renamed_settings_table,
        "removed": removed_settings_table,
    },
    "cli.md": {"options": program_options_table, "commands": commands_text},
    "http.md": {"routes": routes_table},
    "chains.md": {"networks": networks_table, "providers": providers_table},
    "routes.md": {"missing": missing_routes, "generations": generations_table},
    "metrics.md": {"metrics": metrics_table},
    "errors.md": {"errors": errors_table},
    "abi.md": {"functions": host_functions_table, "levels": log_levels_table},
}


def _calls_most(files: Counter[str]) -> str:
    if not files:
        return ""
    name = min(files, key=lambda name: (-files[name], name))
    return f"[{Path(name).name}](../../{name})"


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(c.replace("|", "\\|") for c in line) + " |" for line in lines
    )


def _default(name: str) -> str:
    text = default_text(name)
    return text if text == "none" else f"`{text}`"


def _range(words: str) -> str:
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
        parts.insert(0, f"multipart with `file`{' and `info`' if route.body else ''}")
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


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
