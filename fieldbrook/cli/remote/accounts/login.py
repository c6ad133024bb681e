"""Commands on administrators and your login: `admin`, `login`, `logout`, `whoami`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from fieldbrook.cli.client import (
    Client,
    ClientError,
    NotLoggedInError,
    RefusedError,
    Session,
    WrongUsageError,
    load_session,
    save_session,
    session_path,
)
from fieldbrook.cli.console import current, note, shared_options, show_done, show_fields

PASSWORD_SOURCES = ("-", "prompt", "generated")


@click.group()
def admin() -> None:
    """Administrators of the node."""


@admin.command("create")
@click.option("--username", default="admin", show_default=True)
@click.option(
    "--password",
    "source",
    metavar="-|prompt|generated",
    help="Where the password comes from: standard input, a question, or the node, which then "
    "shows it once. Default: prompt on a terminal, else generated.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    help="The node's data folder, to read the setup code from [default: as for `fieldbrook`].",
)
@click.option(
    "--setup-code",
    envvar="FIELDBROOK_SETUP_CODE",
    metavar="CODE",
    help="The code that the node made at its first start [env: FIELDBROOK_SETUP_CODE].",
)
@click.option("--login/--no-login", default=True, help="Log in as the new one, if nobody is.")
@shared_options
def admin_create(
    username: str, source: str | None, data: Path | None, setup_code: str | None, login: bool
) -> None:
    """Create an administrator and log in.

    The first administrator needs the node's setup code. This command reads it from the node's
    data folder (secrets/setup-code) when it runs on the node's machine. Every further
    administrator needs the login of an existing one.
    """
    console = current()
    session = console.session
    try:
        code = setup_code or read_setup_code(data or console.data)
    except NotLoggedInError:
        if session is None:
            raise
        code = ""  # not needed: the login authorises the request
    password = new_password(source)
    body = {"username": username, "role": "ADMIN"}
    if password is not None:
        body["password"] = password
    client = console.client() if session else console.anonymous_client()
    headers = {"X-Setup-Code": code} if code else {}
    account = client.call("POST", ["register", "admin"], body=body, headers=headers)
    known = password if password is not None else str(account["password"])
    if login and session is None:
        _log_in(client.server, username, known)
    if password is not None:
        account.pop("password", None)
    show_fields(
        {"username": username, **account},
        {"username": "username", "accountID": "id", "role": "role"}
        | ({"password": "password"} if password is None else {}),
    )
    if not console.json:
        if password is None:
            note("the password is shown only now")
        if login and session is None:
            note(f"logged in to {client.server}")


@admin.command("password")
@click.option("--password-stdin", is_flag=True, help="Read the old and the new one, a line each.")
@shared_options
def admin_password(password_stdin: bool) -> None:
    """Change your own password. All your logins end; the one saved here is replaced."""
    if password_stdin:
        old, new = line_of_input("old password"), line_of_input("new password")
    else:
        need_terminal("--password-stdin")
        old = click.prompt("Old password", hide_input=True, err=True)
        new = click.prompt("New password", hide_input=True, confirmation_prompt=True, err=True)
    console = current()
    session, client = console.session, console.client()
    answer = client.call("PUT", ["account"], body={"oldPassword": old, "password": new})
    saved = _renew(session, answer)
    show_done("password changed; other logins have ended", changed=True)
    if not saved and not console.json:
        note("FIELDBROOK_TOKEN is set: if it is a login, it has ended, too; log in again")


@click.command()
@click.option("--username", help="[default: admin, or asked for on a terminal]")
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
@shared_options
def login(username: str | None, password_stdin: bool) -> None:
    """Log in to a node and save the login.

    The login is saved in $XDG_CONFIG_HOME/fieldbrook/session.json (by default
    ~/.config/fieldbrook), readable by you alone. FIELDBROOK_SERVER and FIELDBROOK_TOKEN
    override it.
    """
    server = current().server
    if password_stdin:
        username = username or "admin"
        password = line_of_input("password")
    else:
        need_terminal("--password-stdin")
        username = username or click.prompt("Username", default="admin", err=True)
        password = click.prompt("Password", hide_input=True, err=True)
    session = _log_in(server, username, password)
    show_done(
        f"logged in to {server} as {username}",
        server=server,
        username=username,
        role=session.role,
        expiresAt=session.expires_at,
    )


@click.command()
@click.option("--everywhere", is_flag=True, help="End all your logins at the node first.")
@shared_options
def logout(everywhere: bool) -> None:
    """Delete the saved login."""
    if everywhere:
        current().client().call("POST", ["logout"])
    path = session_path()
    try:
        path.unlink()
        was = True
    except FileNotFoundError:
        was = False
    except OSError as error:
        raise ClientError(f"{path}: {error.strerror}") from None
    show_done("logged out" if was else "there was no login", loggedOut=was)


@click.command()
@shared_options
def whoami() -> None:
    """Show the login, and whether the node still accepts it."""
    console = current()
    client = console.client()
    session = console.session
    assert session is not None  # console.client() raised otherwise
    client.call("GET", ["project"], query={"size": 1})
    show_fields(
        {
            "server": session.server,
            "username": session.username or "(token from FIELDBROOK_TOKEN)",
            "role": session.role,
            "expiresAt": session.expires_at,
        },
        {"server": "server", "username": "username", "role": "role", "expiresAt": "valid until"},
    )


def read_setup_code(data: Path) -> str:
    """Read the setup code from a node's data folder.

    Raises:
        NotLoggedInError: the file is missing, not readable or not ASCII.
    """
    path = data / "secrets" / "setup-code"
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a setup code"
        raise NotLoggedInError(
            f"no setup code: {path}: {reason}",
            "name the node's data folder with --data, or give the code that the node printed "
            "at its first start with --setup-code",
        ) from None


def new_password(source: str | None) -> str | None:
    """Get a password from one of `PASSWORD_SOURCES`; None: the node generates it.

    The default source is `prompt` on a terminal, otherwise `generated`.

    Raises:
        WrongUsageError: the source is unknown or gives no password.
    """
    source = source or ("prompt" if sys.stdin.isatty() else "generated")
    if source not in PASSWORD_SOURCES:
        raise WrongUsageError(
            "--password takes -, prompt or generated, never the password itself: "
            "other users of this machine could see it",
            "pipe it: `... | fieldbrook admin create --password -`",
        )
    if source == "generated":
        return None
    if source == "-":
        return line_of_input("password")
    need_terminal("--password -")
    answer: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return answer


def _renew(session: Session | None, answer: Any) -> bool:
    """Replace the saved login, which a new password has ended, by the one in the answer.

    Returns:
        False if the login that was used is not the saved one, e.g. comes from FIELDBROOK_TOKEN.
    """
    saved = load_session(session_path())
    if session is None or saved is None or saved.token != session.token:
        return False
    fresh = saved._replace(token=str(answer["token"]), expires_at=str(answer.get("expireAt", "")))
    save_session(session_path(), fresh)
    return True


def _log_in(server: str, username: str, password: str) -> Session:
    authorities = current().authorities
    client = Client(server, authorities=authorities)
    try:
        answer = client.call("PUT", ["login"], body={"username": username, "password": password})
    except RefusedError as error:
        if error.status in (401, 404):
            error.hint = "check the username and the password"
        raise
    finally:
        client.close()
    session = Session(
        client.server,
        str(answer["token"]),
        username,
        str(answer.get("accountRole", "")),
        str(answer.get("expireAt", "")),
        authorities,
    )
    save_session(session_path(), session)
    if os.environ.get("FIELDBROOK_TOKEN"):
        note("FIELDBROOK_TOKEN is set: it is used instead of this login")
    return session


def line_of_input(what: str) -> str:
    """Read a line of standard input, without its line break; `what` names it in the error.

    Raises:
        WrongUsageError: the line is empty or missing.
    """
    line = sys.stdin.readline().rstrip("\r\n")
    if not line:
        raise WrongUsageError(f"no {what} on standard input")
    return line


def need_terminal(instead: str) -> None:
    """Require a terminal for a prompt; `instead` is the option that the error recommends.

    Raises:
        WrongUsageError: standard input is not a terminal.
    """
    if not sys.stdin.isatty():
        raise WrongUsageError(
            "standard input is not a terminal, nobody can be asked", f"use {instead}"
        )
