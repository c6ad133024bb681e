"""Commands on your login: `login`, `logout`, `whoami`."""

from __future__ import annotations

import os

import click

from fieldbrook.cli.client import Client
from fieldbrook.cli.console import current
from fieldbrook.cli.errors import RefusedError, UnreachableError, file_error
from fieldbrook.cli.input import read_secret, require_terminal
from fieldbrook.cli.options import SharedCommand
from fieldbrook.cli.output import note, show_done, show_fields
from fieldbrook.cli.session import Session, load_session, save_session, session_path


@click.command(cls=SharedCommand)
@click.option("--username", help="The account [default: admin, or asked for on a terminal].")
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
def login(username: str | None, password_stdin: bool) -> None:
    """Log in to a node and save the login.

    The login is saved in $XDG_CONFIG_HOME/fieldbrook/session.json (by default
    ~/.config/fieldbrook), readable by you alone. FIELDBROOK_SERVER and FIELDBROOK_TOKEN
    override it.
    """
    server = current().server
    if not username and not password_stdin:
        require_terminal("username", "--username and --password-stdin")
        username = click.prompt("Username", default="admin", err=True)
    username = username or "admin"
    password = read_secret("password", password_stdin, "--password-stdin")
    session = log_in(server, username, password)
    show_done(
        f"logged in to {server} as {username}",
        server=server,
        username=username,
        role=session.role,
        expiresAt=session.expires_at,
    )


@click.command(cls=SharedCommand)
@click.option("--everywhere", is_flag=True, help="End all your logins at the node.")
def logout(everywhere: bool) -> None:
    """End the login at the node and delete it here.

    The saved login is also deleted if it has ended at the node, or if the node cannot be reached.
    """
    path = session_path()
    if everywhere:
        current().client().call("DELETE", ["login"], query={"all": "true"})
    elif (saved := load_session(path)) is not None:
        _end_login(saved)
    try:
        path.unlink()
        existed = True
    except FileNotFoundError:
        existed = False
    except OSError as error:
        raise file_error(path, error) from None
    show_done("logged out" if existed else "there was no login", loggedOut=existed)


def _end_login(session: Session) -> None:
    client = Client(session.server, session.token, authorities=session.authorities)
    try:
        client.call("DELETE", ["login"])
    except RefusedError as error:
        if error.status not in (401, 404):  # ended before, or not supported by the node
            raise
    except UnreachableError as error:
        note(f"the node still accepts this login until {session.expires_at}: {error}")
    finally:
        client.close()


@click.command(cls=SharedCommand)
def whoami() -> None:
    """Show the login, and whether the node still accepts it."""
    console = current()
    client = console.client()
    session = console.session
    assert session is not None  # otherwise console.client() would have raised an error
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


def log_in(server: str, username: str, password: str) -> Session:
    """Log in to a server and save the login."""
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
