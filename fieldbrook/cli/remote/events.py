"""Commands that send events and read applet logs and stored values: `send`, `logs`, `kv`."""

from __future__ import annotations

import base64
import json
import secrets
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from fieldbrook.cli.client import (
    EXIT_REFUSED,
    Client,
    ClientError,
    RefusedError,
    UnreachableError,
    WrongUsageError,
)
from fieldbrook.cli.console import (
    current,
    items,
    note,
    printable,
    shared_options,
    show_json,
    show_rows,
)
from fieldbrook.cli.remote.objects import applets, find_applet, find_publisher, project_name

TOKEN_VARIABLE = "FIELDBROOK_PUBLISHER_TOKEN"  # noqa: S105 - a variable's name, no token
_PAGE = _TAIL_LIMIT = _KEYS_LIMIT = 1_000  # largest page of the routes
_POLL_S = 0.5

# ---------------------------------------------------------------- sending


@click.command()
@click.argument("project_", metavar="PROJECT")
@click.option("--publisher", "pub_id", required=True, metavar="KEY", help="Who sends it.")
@click.option(
    "--token",
    envvar=TOKEN_VARIABLE,
    help=f"The publisher's token [env: {TOKEN_VARIABLE}; default: looked up with your login].",
)
@click.option("--type", "event_type", default="DEFAULT", show_default=True)
@click.option("--data", "text", help="The payload, as text.")
@click.option(
    "--file", "file", type=click.Path(path_type=Path, allow_dash=True), help="The payload's file."
)
@click.argument("dash", metavar="[-]", required=False)
@click.option("--event-id", help="What it is found by in the history  [default: a random one]")
@click.option(
    "--idempotency-key",
    metavar="KEY",
    help="Sent again with the same key it runs once  [default: a random one]",
)
@shared_options
@click.pass_context
def send(
    context: click.Context,
    project_: str,
    pub_id: str,
    token: str | None,
    event_type: str,
    text: str | None,
    file: Path | None,
    dash: str | None,
    event_id: str | None,
    idempotency_key: str | None,
) -> None:
    """Send one event and print the results of its handlers.

    The payload is --data, the content of --file, or standard input with `-`.

    The exit code is 1 when a handler failed: it trapped, ran out of time or returned a
    negative code. A code of 0 or more is the handler's own answer and counts as success.
    """
    payload = _payload(text, file, dash)
    console = current()
    if token is None:
        client = console.client()
        project_ = project_name(client, project_)
        token = str(find_publisher(client, project_, pub_id)["token"])
    # The time is part of an event's identity. With an id from the user no time is sent, so that
    # repeating the command sends the same event.
    when = {} if event_id else {"pub_time": time.time_ns() // 1_000_000}
    event_id = event_id or f"cli-{secrets.token_hex(8)}"
    message = {
        "header": {
            "event_type": event_type,
            "pub_id": pub_id,
            "token": token,
            "event_id": event_id,
            **when,
        },
        "payload": base64.b64encode(payload).decode(),
    }
    key = idempotency_key or str(uuid.uuid4())
    try:
        answer = console.anonymous_client().call(
            "POST", ["event", project_], body=message, headers={"Idempotency-Key": key}
        )
    except ClientError as error:
        if isinstance(error, UnreachableError) or _is_unknown(error):
            # Without this key, repeating the command would send another event.
            error.hint = error.hint or f"send it again with --idempotency-key {key}: it runs once"
        raise
    results: list[dict[str, Any]] = list(answer.get("results") or [])
    if console.json:
        show_json({"eventID": event_id, "results": results})
    else:
        columns = {"instanceID": "INSTANCE", "code": "CODE", "errMsg": "ERROR"}
        show_rows(results, columns, "no handler ran")
    if any(failed(result) for result in results):
        context.exit(EXIT_REFUSED)


def _is_unknown(error: ClientError) -> bool:
    return isinstance(error, RefusedError) and error.key == "OutcomeUnknown"


def failed(result: dict[str, Any]) -> bool:
    """Whether a handler's result is a failure: an error text or a negative code."""
    return bool(result.get("errMsg")) or int(result.get("code", 0)) < 0


def _payload(text: str | None, file: Path | None, dash: str | None) -> bytes:
    if dash not in (None, "-"):
        raise WrongUsageError(
            f"unexpected argument {dash!r}", "give the payload with --data or --file"
        )
    if sum(given is not None for given in (text, file, dash)) != 1:
        raise WrongUsageError(
            "the payload is not clear", "give one of --data TEXT, --file FILE or -"
        )
    if text is not None:
        return text.encode("utf-8", "surrogateescape")
    if file is None or str(file) == "-":
        return sys.stdin.buffer.read()
    try:
        return file.read_bytes()
    except OSError as error:
        raise ClientError(f"{file}: {error.strerror}") from None


# ---------------------------------------------------------------- logs


@click.command()
@click.argument("project_", metavar="PROJECT")
@click.option("--follow", "-f", is_flag=True, help="Wait for more; end it with Ctrl-C.")
@click.option("--tail", "-n", type=click.IntRange(1, _TAIL_LIMIT), help="The last N [default: 20].")
@click.option("--after", type=click.IntRange(0), help="All after this sequence number.")
@shared_options
def logs(project_: str, follow: bool, tail: int | None, after: int | None) -> None:
    """Print the log rows of a project's applets, the oldest first.

    With --json each row is one line of JSON; its `sequence` is a value for --after.
    """
    if tail is not None and after is not None:
        raise WrongUsageError("--tail and --after cannot both be given")
    client = current().client()
    real = project_name(client, project_)
    start = after if after is not None else -(tail or 20)
    for row in _rows(client, real, start, follow):
        if current().json:
            click.echo(json.dumps(row, ensure_ascii=False))
        else:
            click.echo(log_line(row))


def log_line(row: dict[str, Any]) -> str:
    """Format a log row for people: `2026-11-21T06:31:00.123Z info  counter: count=1`."""
    source = str(row.get("src") or "")
    origin = "" if source in ("", "wasmCode") else f" [{source}]"
    level = str(row.get("level", ""))
    applet_name = row.get("appletName") or "-"
    return printable(
        f"{row.get('logTime', '')} {level:<5} {applet_name}{origin}: {row.get('msg', '')}"
    )


def _rows(client: Client, project_: str, after: int, follow: bool) -> Iterator[dict[str, Any]]:
    end = None if follow else _end(client, project_)
    while True:
        query = {"after": after, "limit": _PAGE if after >= 0 else -after}
        answer = client.call("GET", ["applet_log", project_], query=query)
        page = items(answer)
        for row in page:
            # Without --follow, rows that were written after the command started are left out.
            if end is None or int(row["sequence"]) <= end:
                yield row
        if page:
            after = int(page[-1]["sequence"])
        if end is not None and (not page or after >= end):
            return
        if not page:
            after = max(after, 0)  # an empty log: negative values count from its last row
            sys.stdout.flush()
            time.sleep(_POLL_S)


def _end(client: Client, project_: str) -> int:
    newest = items(client.call("GET", ["applet_log", project_], query={"after": -1, "limit": 1}))
    return int(newest[-1]["sequence"]) if newest else 0


# ---------------------------------------------------------------- key-value store


@click.group()
def kv() -> None:
    """The key-value store in which handlers keep their data."""


@kv.command("get")
@click.argument("project_", metavar="PROJECT")
@click.argument("key")
@click.option("--applet", "applet_name", help="Whose key [default: the project's only applet].")
@click.option("--base64", "raw", is_flag=True, help="Print the value as base64.")
@shared_options
def kv_get(project_: str, key: str, applet_name: str | None, raw: bool) -> None:
    """Print the value of a key, byte for byte.

    On a terminal and with --json a value that is not UTF-8 is printed as base64.
    """
    client = current().client()
    real = project_name(client, project_)
    query = {
        "appletID": _applet_id(client, real, applet_name),
        "key": base64.b64encode(key.encode("utf-8", "surrogateescape")).decode(),
        "encoding": "base64",
    }
    try:
        value = base64.b64decode(client.call("GET", ["kv", real], query=query)["value"])
    except RefusedError as error:
        if error.key == "NotFound":
            place = real if applet_name is None else f"{real} --applet {applet_name}"
            hint = f"list what there is with `fieldbrook kv list {place}`"
            raise ClientError(f"there is no key {key or '(empty)'}", hint) from None
        raise
    encoded = base64.b64encode(value).decode()
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = None
    if current().json:
        shown = {"value": encoded, "encoding": "base64"}
        if text is not None and not raw:
            shown = {"value": text, "encoding": "text"}
        show_json({"key": key, **shown})
    elif raw or (text is None and sys.stdout.isatty()):
        click.echo(encoded)
    elif sys.stdout.isatty():
        click.echo(printable(text or ""))
    else:
        sys.stdout.buffer.write(value + (b"" if value.endswith(b"\n") else b"\n"))
        sys.stdout.flush()


@kv.command("list")
@click.argument("project_", metavar="PROJECT")
@click.option("--applet", "applet_name", help="Whose keys [default: the project's only applet].")
@click.option("--prefix", default="", help="Only keys that start so.")
@shared_options
def kv_list(project_: str, applet_name: str | None, prefix: str) -> None:
    """List the keys of an applet, at most 1000 of them."""
    client = current().client()
    real = project_name(client, project_)
    query = {
        "appletID": _applet_id(client, real, applet_name),
        "prefix": base64.b64encode(prefix.encode("utf-8", "surrogateescape")).decode(),
        "encoding": "base64",
        "limit": _KEYS_LIMIT,
    }
    answer = client.call("GET", ["kv", real], query=query)
    keys = [base64.b64decode(key).decode("utf-8", "backslashreplace") for key in answer["data"]]
    show_rows([{"key": key} for key in keys], {"key": "KEY"}, "no keys yet")
    if "" in keys:
        note(f'the first key is empty: `fieldbrook kv get {real} ""` prints its value')
    if len(keys) == _KEYS_LIMIT:
        note("there may be more: narrow it down with --prefix")


def _applet_id(client: Client, project_: str, given: str | None) -> str:
    if given is not None:
        return str(find_applet(client, project_, given)["appletID"])
    rows = applets(client, project_)
    if len(rows) != 1:
        names = ", ".join(str(row["name"]) for row in rows)
        hint = f"name one with --applet: {names}" if rows else "deploy one first"
        raise ClientError(f"project {project_} has {len(rows)} applets", hint)
    return str(rows[0]["appletID"])
