"""Commands on administrators: `admin`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fieldbrook.cli.console import current
from fieldbrook.cli.errors import NotLoggedInError
from fieldbrook.cli.input import new_password, password_option, read_secret
from fieldbrook.cli.options import CommandGroup
from fieldbrook.cli.output import note, show_done, show_fields
from fieldbrook.cli.remote.accounts.login import log_in
from fieldbrook.cli.session import Session, load_session, save_session, session_path


@click.group(cls=CommandGroup)
def admin() -> None:
    """Create administrators, and change your password."""


@admin.command("create")
@click.option("--username", default="admin", show_default=True, help="Its username.")
@password_option
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    help="The node's data folder, which has the setup code [default: as for `fieldbrook`].",
)
@click.option(
    "--setup-code",
    envvar="FIELDBROOK_SETUP_CODE",
    metavar="CODE",
    help="The content of secrets/setup-code in the data folder [env: FIELDBROOK_SETUP_CODE].",
)
@click.option(
    "--login/--no-login",
    default=True,
    help="Log in as the new administrator, unless there is a login [default: --login].",
)
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
        code = ""  # the code is not needed, because the login authorises the request
    password = new_password(source)
    body = {"username": username, "role": "ADMIN"}
    if password is not None:
        body["password"] = password
    client = console.client() if session else console.anonymous_client()
    headers = {"X-Setup-Code": code} if code else {}
    account = client.call("POST", ["register", "admin"], body=body, headers=headers)
    known = password if password is not None else str(account["password"])
    if login and session is None:
        log_in(client.server, username, known)
    if password is not None:
        account.pop("password", None)
    show_fields(
        {"username": username, **account},
        {"username": "username", "accountID": "id", "role": "role"}
        | ({"password": "password"} if password is None else {}),
    )
    if not console.json:
        if password is None:
            note("the password cannot be shown again")
        if login and session is None:
            note(f"logged in to {client.server}")


@admin.command("password")
@click.option(
    "--password-stdin",
    is_flag=True,
    help="Read the old and the new password from two lines of standard input.",
)
def admin_password(password_stdin: bool) -> None:
    """Change your own password. All your logins end; the one saved here is replaced."""
    old = read_secret("old password", password_stdin, "--password-stdin")
    new = read_secret("new password", password_stdin, "--password-stdin", twice=True)
    console = current()
    session, client = console.session, console.client()
    answer = client.call("PUT", ["account"], body={"oldPassword": old, "password": new})
    saved = _renew(session, answer)
    show_done("password changed; other logins have ended", changed=True)
    if not saved and not console.json:
        note("FIELDBROOK_TOKEN is set: if it is a login, it has ended; log in again")


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
            f"cannot read the setup code: {path}: {reason}",
            "name the node's data folder with --data, or give the content of its file "
            "secrets/setup-code with --setup-code",
        ) from None


def _renew(session: Session | None, answer: Any) -> bool:
    """Replace the saved login, which a new password has ended, by the one in the answer.

    Returns:
        False if the login that was used is not the saved one, for example if it comes from
        FIELDBROOK_TOKEN.
    """
    saved = load_session(session_path())
    if session is None or saved is None or saved.token != session.token:
        return False
    fresh = saved._replace(token=str(answer["token"]), expires_at=str(answer.get("expireAt", "")))
    save_session(session_path(), fresh)
    return True
