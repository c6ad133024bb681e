"""Commands for administrators: `mqtt clients`, `client`, `disconnect`, `sessions`, `session`."""

from __future__ import annotations

from typing import Any

import click

from fieldbrook.cli.client import Client, items
from fieldbrook.cli.console import current
from fieldbrook.cli.options import SharedCommand, confirm, limit_option, yes_option
from fieldbrook.cli.output import note, show_done, show_fields, show_rows

_PAGE_ROWS = 1_000  # largest page of the routes
_CLIENTS = {
    "clientID": "CLIENT",
    "principal": "PRINCIPAL",
    "address": "ADDRESS",
    "transport": "VIA",
    "version": "MQTT",
    "connectedAt": "SINCE",
    "subscriptions": "SUBSCRIPTIONS",
    "messagesIn": "IN",
    "messagesOut": "OUT",
    "queued": "QUEUED",
}
_CLIENT = {
    "clientID": "client",
    "principal": "principal",
    "address": "address",
    "transport": "via",
    "version": "MQTT version",
    "connectedAt": "since",
    "keepAlive": "keep alive (s)",
    "sessionExpiry": "session expiry (s)",
    "subscriptions": "subscriptions",
    "messagesIn": "messages in",
    "messagesOut": "messages out",
    "bytesIn": "bytes in",
    "bytesOut": "bytes out",
    "unacknowledgedIn": "unacknowledged in",
    "unacknowledgedOut": "unacknowledged out",
    "queued": "queued",
}
_SESSIONS = {
    "clientID": "CLIENT",
    "principal": "PRINCIPAL",
    "connected": "CONNECTED",
    "createdAt": "CREATED",
    "expiresAt": "EXPIRES",
    "subscriptions": "SUBSCRIPTIONS",
    "queued": "QUEUED",
    "queuedBytes": "BYTES",
}
_SESSION = {
    "clientID": "client",
    "principal": "principal",
    "connected": "connected",
    "createdAt": "created",
    "endedAt": "away since",
    "expiresAt": "expires",
    "sessionExpiry": "session expiry (s)",
    "queued": "queued",
    "queuedBytes": "queued bytes",
    "unacknowledgedOut": "unacknowledged out",
    "will": "last will",
}
_FILTERS = {
    "filter": "FILTER",
    "qos": "QOS",
    "noLocal": "NO LOCAL",
    "retainAsPublished": "RETAIN AS PUBLISHED",
    "identifier": "IDENTIFIER",
}

_client_argument = click.argument("client_id", metavar="CLIENT")
_principal_option = click.option(
    "--principal",
    help="Login of the client, if several have this id: PRINCIPAL of the list, - for none.",
)


@click.command("clients", cls=SharedCommand)
@limit_option(default=100, largest=100_000)
def clients(limit: int) -> None:
    """List the connected clients in the order of their ids, for administrators."""
    show_rows(listed(["mqtt", "client"], limit), _CLIENTS, "no client is connected")


@click.command("client", cls=SharedCommand)
@_client_argument
@_principal_option
def client(client_id: str, principal: str | None) -> None:
    """Show a connected client, for administrators.

    `in` counts messages from the client. Unacknowledged messages `in` are still being handled by
    the node; for unacknowledged messages `out`, the client has not sent PUBACK or PUBCOMP yet.
    """
    path, query = ["mqtt", "client", client_id], _query(principal)
    show_fields(current().client().call("GET", path, query=query), _CLIENT)


@click.command("disconnect", cls=SharedCommand)
@_client_argument
@_principal_option
def disconnect(client_id: str, principal: str | None) -> None:
    """End the connection of a client. Its session stays, and it may connect again."""
    path, query = ["mqtt", "client", client_id], _query(principal)
    current().client().call("DELETE", path, query=query)
    show_done(f"disconnected {client_id}", clientID=client_id, change="disconnected")


@click.command("sessions", cls=SharedCommand)
@limit_option(default=100, largest=100_000)
def sessions(limit: int) -> None:
    """List the sessions of all clients, connected or not, for administrators."""
    show_rows(listed(["mqtt", "session"], limit), _SESSIONS, "there are no sessions")


@click.command("session", cls=SharedCommand)
@_client_argument
@_principal_option
@click.option("--remove", is_flag=True, help="Remove the session, with all that waits in it.")
@yes_option
def session(client_id: str, principal: str | None, remove: bool, yes: bool) -> None:
    """Show or remove the session of a client, for administrators.

    A removed session ends its client's connection. Messages that wait for the client are lost.
    """
    path, query = ["mqtt", "session", client_id], _query(principal)
    if remove:
        confirm(f"remove the session of {client_id} and the messages that wait in it?", yes)
        current().client().call("DELETE", path, query=query)
        show_done(f"removed the session of {client_id}", clientID=client_id, change="removed")
        return
    found: dict[str, Any] = current().client().call("GET", path, query=query)
    show_fields(found, _SESSION)
    if not current().json:
        show_rows(found["filters"], _FILTERS, "it has no subscriptions")


def listed(path: list[str], limit: int) -> list[dict[str, Any]]:
    """Return up to `limit` rows of a list, page by page; a note says if there may be more."""
    node: Client = current().client()
    rows: list[dict[str, Any]] = []
    after: str | None = ""
    while after is not None and len(rows) < limit:
        query = {"after": after, "limit": min(limit - len(rows), _PAGE_ROWS)}
        answer = node.call("GET", path, query=query)
        rows += items(answer)
        after = answer.get("next")
    if after is not None and not current().json:
        note("there may be more: raise --limit")
    return rows


def _query(principal: str | None) -> dict[str, str]:
    return {} if principal is None else {"principal": principal}
