"""Shared by all commands: the options `--json`, `--server` and `--ca`, the login, the output.

Results go to standard output, everything else to standard error. Control characters in text
from other sources (names, logs, errors) are printed as escapes, so that an applet's log line
cannot control the terminal.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import click

from fieldbrook.cli.client import (
    DEFAULT_SERVER,
    Client,
    ClientError,
    NotLoggedInError,
    RefusedError,
    Session,
    load_session,
    normal_server,
    session_path,
)

_NAMES_SHOWN = 20
_TOKEN_KEYS = frozenset(
    {
        "AccessKeyExpired",
        "InvalidAccessKey",
        "InvalidAuthAccountID",
        "InvalidToken",
        "Unauthorized",
    }
)

Row = Mapping[str, Any]
F = TypeVar("F", bound=Callable[..., Any])


class Console:
    """The state of one invocation of the program; commands get it from `current`."""

    def __init__(self) -> None:
        self.json = False
        self.data = Path(os.environ.get("FIELDBROOK_DATA") or "data")
        self.given_server: str | None = None
        self.given_authorities: str | None = None
        self._clients: list[Client] = []

    @property
    def server(self) -> str:
        """The node's address: `--server`, else `FIELDBROOK_SERVER`, else that of the saved login,
        else `DEFAULT_SERVER`."""
        named = self.given_server or os.environ.get("FIELDBROOK_SERVER")
        if named:
            return normal_server(named)
        saved = load_session(session_path())
        return saved.server if saved else DEFAULT_SERVER

    @property
    def authorities(self) -> str:
        """The PEM file of trusted certificate authorities: `--ca`, else `FIELDBROOK_CA`, else that
        of the saved login for this server; "" for those of the system."""
        named = self.given_authorities or os.environ.get("FIELDBROOK_CA")
        if named:
            return str(Path(named).absolute())
        saved = load_session(session_path())
        return saved.authorities if saved and saved.server == self.server else ""

    @property
    def session(self) -> Session | None:
        """The login for `server`: `FIELDBROOK_TOKEN`, else the saved login for this server.

        A login that was saved for another server is never sent to this one.
        """
        server = self.server
        token = os.environ.get("FIELDBROOK_TOKEN")
        if token:
            return Session(server, token)
        saved = load_session(session_path())
        return saved if saved and saved.server == server else None

    def client(self) -> Client:
        """Return a client that sends the login.

        Raises:
            NotLoggedInError: there is no login for the server.
        """
        session = self.session
        if session is None:
            raise NotLoggedInError(f"not logged in to {self.server}", self._login_hint())
        return self._keep(Client(session.server, session.token, authorities=self.authorities))

    def anonymous_client(self) -> Client:
        """Return a client without a login, for routes that need none."""
        return self._keep(Client(self.server, authorities=self.authorities))

    def explain(self, error: ClientError) -> str:
        """Return advice for the user about an error, "" when there is none."""
        if error.hint or not isinstance(error, RefusedError):
            return error.hint
        if error.key == "ProjectNotFound":
            return self._names_of_projects()
        if error.key in _TOKEN_KEYS:
            return self._login_hint()
        if error.key == "OutcomeUnknown":
            return "it may have happened; look before you do it again"
        if error.status in (429, 503):
            return "nothing was taken; try again in a moment"
        return ""

    def answered(self) -> str:
        """Return method and path of the last request that was answered, "" when none was."""
        return next((c.answered for c in reversed(self._clients) if c.answered), "")

    def close(self) -> None:
        """Close all clients."""
        for client in self._clients:
            client.close()

    def _keep(self, client: Client) -> Client:
        self._clients.append(client)
        return client

    def _login_hint(self) -> str:
        if os.environ.get("FIELDBROOK_TOKEN"):
            return "FIELDBROOK_TOKEN is set and was used: unset it or give it a fresh token"
        place = "" if self.server == DEFAULT_SERVER else f" --server {self.server}"
        return f"log in with `fieldbrook login{place}`"

    def _names_of_projects(self) -> str:
        # The hint is optional: leave it out when the projects cannot be listed.
        with suppress(ClientError, TypeError, LookupError, AttributeError):
            answer = self.client().call("GET", ["project"], query={"size": 100})
            names = [str(item["projectName"]) for item in items(answer)]
            return available("projects", names)
        return ""


def current() -> Console:
    """The console of the running command."""
    root = click.get_current_context().find_root()
    console = root.ensure_object(Console)
    return console


def shared_options(command: F) -> F:
    """Add `--json`, `--server` and `--ca` to a command.

    The program and each command have these options, so that users may give them before or
    after the command's name.
    """

    def set_json(_ctx: click.Context, _param: click.Parameter, value: bool) -> None:
        if value:
            current().json = True

    def set_server(_ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
        if value:
            current().given_server = normal_server(value)

    def set_authorities(_ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
        if value:
            current().given_authorities = value

    as_json = click.option(
        "--json",
        is_flag=True,
        expose_value=False,
        callback=set_json,
        help="Print JSON, for programs.",
    )
    server = click.option(
        "--server",
        metavar="URL",
        expose_value=False,
        callback=set_server,
        help="The node's address [env: FIELDBROOK_SERVER; default: the login's, else "
        f"{DEFAULT_SERVER}].",
    )
    authorities = click.option(
        "--ca",
        metavar="FILE",
        expose_value=False,
        callback=set_authorities,
        help="PEM file of the authorities that may vouch for an https:// server "
        "[env: FIELDBROOK_CA; default: the login's, else the system's].",
    )
    return as_json(server(authorities(command)))


def items(answer: Any) -> list[dict[str, Any]]:
    """Return the rows of a list route's answer: a bare array, or the array under `data`.

    A `data` of null means that there are no rows.
    """
    rows = answer.get("data") if isinstance(answer, dict) else answer
    return list(rows or [])


def available(what: str, names: Sequence[str]) -> str:
    """Return a text that lists the existing names, at most 20; `what` is their plural noun."""
    if not names:
        return f"there are no {what} yet"
    more = ", ..." if len(names) > _NAMES_SHOWN else ""
    return f"{what}: {', '.join(printable(name) for name in names[:_NAMES_SHOWN])}{more}"


def show_rows(rows: Sequence[Row], columns: Mapping[str, str], nothing: str) -> None:
    """Print rows: a JSON array, or a table of `columns` (key of the row -> heading).

    Without rows, `nothing` is printed on standard error in place of the table.
    """
    if current().json:
        show_json(list(rows))
        return
    if not rows:
        click.echo(nothing, err=True)
        return
    table = [list(columns.values())]
    table += [[_cell(row.get(key)) for key in columns] for row in rows]
    widths = [max(len(line[i]) for line in table) for i in range(len(columns))]
    for line in table:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(padded).rstrip())


def show_fields(value: Row, names: Mapping[str, str]) -> None:
    """Print one object: as JSON, or the fields in `names` (key -> label), one per line.

    Fields without a value are left out of the lines.
    """
    if current().json:
        show_json(value)
        return
    width = max(len(label) for label in names.values())
    for key, label in names.items():
        if value.get(key) not in (None, "", []):
            click.echo(f"{label.ljust(width)}  {_cell(value[key])}")


def show_done(text: str, **value: object) -> None:
    """Report a finished action: print the sentence `text`, or `value` as JSON."""
    if current().json:
        show_json(value)
    else:
        click.echo(printable(text))


def show_json(value: object) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def note(text: str) -> None:
    """Print a remark on standard error."""
    click.echo(printable(text), err=True)


def printable(text: str) -> str:
    """Return the text with control characters as escapes, line breaks included; tabs stay."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode() for c in text
    )


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(_cell(item) for item in value)
    return printable(str(value))
