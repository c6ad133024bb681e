"""State of one invocation: the form of the output, the server, the login, the connections."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import click

from fieldbrook.cli.client import DEFAULT_SERVER, Client, items, normal_server
from fieldbrook.cli.errors import ClientError, NotLoggedInError, RefusedError
from fieldbrook.cli.session import Session, load_session, session_path
from fieldbrook.cli.text import available

_LOOK_S = 2.0  # time limit of a request for a hint
_TOKEN_KEYS = frozenset(
    {
        "AccessKeyExpired",
        "InvalidAccessKey",
        "InvalidAuthAccountID",
        "InvalidToken",
        "Unauthorized",
    }
)


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
        """The node's address: from `--server`, else `FIELDBROOK_SERVER`, else the saved login, else
        `DEFAULT_SERVER`."""
        named = self.given_server or os.environ.get("FIELDBROOK_SERVER")
        if named:
            return normal_server(named)
        saved = load_session(session_path())
        return saved.server if saved else DEFAULT_SERVER

    @property
    def authorities(self) -> str:
        """The PEM file of trusted certificate authorities: from `--ca`, else `FIELDBROOK_CA`, else
        the saved login for this server; "" for the authorities of the system."""
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
        """Return advice for the user about an error; "" if there is none."""
        if error.hint or not isinstance(error, RefusedError):
            return error.hint
        if error.key == "ProjectNotFound":
            return self._names_of_projects()
        if error.key in _TOKEN_KEYS:
            return self._login_hint()
        if error.key == "OutcomeUnknown":
            return "the node may have done it: check before you repeat the command"
        if error.status in (429, 503):
            return "the node did nothing: try again in a moment"
        return ""

    def last_answered(self) -> str:
        """Return method and path of the last answered request; "" if there is none."""
        return next((c.last_answered for c in reversed(self._clients) if c.last_answered), "")

    def close(self) -> None:
        """Close all clients."""
        for client in self._clients:
            client.close()

    def _keep(self, client: Client) -> Client:
        self._clients.append(client)
        return client

    def _hint_client(self, token: str) -> Client:
        """Return a client with a short time limit, because a hint must not delay the command."""
        client = Client(
            self.server, token, _LOOK_S, authorities=self.authorities, whole_answer_s=_LOOK_S
        )
        return self._keep(client)

    def _login_hint(self) -> str:
        if os.environ.get("FIELDBROOK_TOKEN"):
            return "the token came from FIELDBROOK_TOKEN: unset it or set a valid token"
        option = "" if self.server == DEFAULT_SERVER else f" --server {self.server}"
        if self._needs_administrator():
            create = f"fieldbrook admin create{option}"
            return f"the node has no administrator yet: create one with `{create}`"
        return f"log in with `fieldbrook login{option}`"

    def _needs_administrator(self) -> bool:
        try:
            found = self._hint_client("").call("GET", ["configuration", "dashboard"])
            return bool(found["setup"])
        except (ClientError, TypeError, LookupError):
            return False  # an older node, or none; the failed request itself has reported that

    def _names_of_projects(self) -> str:
        # The hint is optional: leave it out when the projects cannot be listed.
        token = "" if self.session is None else self.session.token
        with suppress(ClientError, TypeError, LookupError, AttributeError):
            answer = self._hint_client(token).call("GET", ["project"], query={"size": 100})
            names = [str(item["projectName"]) for item in items(answer)]
            return available("project", names)
        return ""


def current() -> Console:
    """The console of the running command."""
    root = click.get_current_context().find_root()
    console = root.ensure_object(Console)
    return console
