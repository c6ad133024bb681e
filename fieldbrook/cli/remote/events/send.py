"""Command that sends an event: `send`."""

from __future__ import annotations

import base64
import secrets
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from fieldbrook.cli.client import Client
from fieldbrook.cli.console import current
from fieldbrook.cli.errors import (
    EXIT_REFUSED,
    ClientError,
    RefusedError,
    UnreachableError,
    WrongUsageError,
)
from fieldbrook.cli.input import read_file
from fieldbrook.cli.options import SharedCommand, event_type_option, project_argument
from fieldbrook.cli.output import show_json, show_rows
from fieldbrook.cli.remote.lookup import find_publisher, open_project

TOKEN_VARIABLE = "FIELDBROOK_PUBLISHER_TOKEN"  # noqa: S105 - the name of a variable, not a token
_COLUMNS = {"instanceID": "INSTANCE", "code": "CODE", "errMsg": "ERROR"}


@click.command(cls=SharedCommand)
@project_argument
@click.option("--publisher", "key", required=True, metavar="KEY", help="The publisher.")
@click.option(
    "--token",
    envvar=TOKEN_VARIABLE,
    help=f"The publisher's token [env: {TOKEN_VARIABLE}; default: looked up with your login].",
)
@event_type_option
@click.option("--data", "text", help="The payload, as text.")
@click.option(
    "--file", "file", type=click.Path(path_type=Path, allow_dash=True), help="The payload's file."
)
@click.argument("dash", metavar="[-]", required=False)
@click.option("--event-id", help="The event's id in the event history [default: a random one].")
@click.option(
    "--idempotency-key",
    metavar="KEY",
    help="A key with which repeated sending runs the event once [default: a random one].",
)
@click.pass_context
def send(
    context: click.Context,
    project: str,
    key: str,
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
    negative code. A negative code without an ERROR was returned by the handler: its writes are
    kept, and the event is not a dead letter. A code of 0 or more is the handler's own answer and
    counts as success.
    """
    payload = _payload(text, file, dash)
    if token is None:
        client, project = open_project(project)
        token = str(find_publisher(client, project, key)["token"])
    # The time is part of an event's identity. With an id from the user no time is sent, so that
    # repeating the command sends the same event.
    when = {} if event_id else {"pub_time": time.time_ns() // 1_000_000}
    event_id = event_id or f"cli-{secrets.token_hex(8)}"
    header = {"event_type": event_type, "pub_id": key, "token": token, "event_id": event_id, **when}
    client = current().anonymous_client()
    results = post_event(client, project, header, payload, idempotency_key)
    if current().json:
        show_json({"eventID": event_id, "results": results})
    else:
        show_rows(results, _COLUMNS, "no handler ran")
    if any(failed(result) for result in results):
        context.exit(EXIT_REFUSED)


def post_event(
    client: Client,
    project: str,
    header: Mapping[str, object],
    payload: bytes,
    idempotency_key: str | None = None,
) -> list[dict[str, Any]]:
    """Send one event and return the results of its handlers.

    Args:
        client: a client without a login; the header has the publisher's token.
        project: the project's name.
        header: the header of the data message.
        payload: the payload.
        idempotency_key: None for a random one.
    """
    idempotency_key = idempotency_key or str(uuid.uuid4())
    headers = {"Idempotency-Key": idempotency_key}
    message = {"header": dict(header), "payload": base64.b64encode(payload).decode()}
    try:
        answer = client.call("POST", ["event", project], body=message, headers=headers)
    except ClientError as error:
        unknown = isinstance(error, RefusedError) and error.key == "OutcomeUnknown"
        if unknown or isinstance(error, UnreachableError):
            # Without this key, repeating the command would send another event.
            repeat = f"repeat the command with --idempotency-key {idempotency_key}"
            error.hint = error.hint or f"{repeat}: the event runs once"
        raise
    return list(answer.get("results") or [])


def failed(result: dict[str, Any]) -> bool:
    """Return whether a handler's result is a failure: an error text or a negative code."""
    return bool(result.get("errMsg")) or int(result.get("code", 0)) < 0


def _payload(text: str | None, file: Path | None, dash: str | None) -> bytes:
    if dash not in (None, "-"):
        raise WrongUsageError(
            f"unexpected argument {dash!r}", "give the payload with --data or --file"
        )
    if sum(given is not None for given in (text, file, dash)) != 1:
        raise WrongUsageError("give exactly one payload: --data TEXT, --file FILE or -")
    if text is not None:
        return text.encode("utf-8", "surrogateescape")
    if file is None or str(file) == "-":
        return sys.stdin.buffer.read()
    return read_file(file)
