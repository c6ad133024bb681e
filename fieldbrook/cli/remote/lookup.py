"""Looks up projects, applets and publishers by name or id, for the routes.

Users may give either; the name is tried first.
"""

from __future__ import annotations

import difflib
from contextlib import suppress
from typing import Any

from fieldbrook.cli.client import Client, items
from fieldbrook.cli.console import current
from fieldbrook.cli.errors import ClientError, RefusedError, WrongUsageError
from fieldbrook.cli.text import available

ALL = {"size": -1}
_ID_DIGITS = 15  # ids have 15 to 19 digits; a shorter number is a name

Object = dict[str, Any]


def open_project(given: str) -> tuple[Client, str]:
    """Return a client with the login, and the name of the project given by name or id.

    A name is not looked up, because the route to which it is sent reports unknown projects.

    Raises:
        NotLoggedInError: there is no login for the server.
        WrongUsageError: the name is empty.
    """
    if not given:
        raise WrongUsageError("the name of the project is empty")
    client = current().client()
    if given.isdecimal() and len(given) >= _ID_DIGITS:
        for row in projects(client):
            if given in (row["projectName"], row["projectID"]):
                return client, str(row["projectName"])
    return client, given


def open_project_by_id(given: str) -> tuple[Client, str]:
    """Do the same as `open_project`, but return the project's id, for routes that accept no
    name."""
    client, name = open_project(given)
    return client, str(client.call("GET", ["project", name])["projectID"])


def projects(client: Client) -> list[Object]:
    """Return all projects of the account."""
    return items(client.call("GET", ["project"], query=ALL))


def applets(client: Client, project: str) -> list[Object]:
    """Return all applets of a project."""
    return items(client.call("GET", ["applet", project], query=ALL))


def find_applet(client: Client, project: str, given: str) -> Object:
    """Return the applet of a project by name or id."""
    return find(applets(client, project), given, "applet", "name", "appletID")


def publishers(client: Client, project: str) -> list[Object]:
    """Return all publishers of a project."""
    return items(client.call("GET", ["publisher", project], query=ALL))


def with_publisher_keys(client: Client, project: str, rows: list[Object]) -> list[Object]:
    """Return rows with the field `publisher`: the key for the id in `publisherID`.

    The field has the id if the publisher was deleted, or if the caller may not read publishers.
    Rows without a publisher have "".
    """
    keys: dict[str, str] = {"0": ""}
    if any(str(row["publisherID"]) not in keys for row in rows):
        with suppress(RefusedError):
            keys |= {str(one["publisherID"]): one["key"] for one in publishers(client, project)}
    return [
        {**row, "publisher": keys.get(str(row["publisherID"]), row["publisherID"])} for row in rows
    ]


def find_publisher(client: Client, project: str, given: str) -> Object:
    """Return the publisher of a project by key or id."""
    rows = publishers(client, project)
    if not rows:
        hint = f"add it with `fieldbrook publisher add {project} {given}`"
        raise ClientError(f"there is no publisher {given}", hint)
    return find(rows, given, "publisher", "key", "publisherID")


def find(rows: list[Object], given: str, noun: str, name_key: str, id_key: str) -> Object:
    """Return the row whose name is `given`, otherwise the row whose id is `given`.

    Raises:
        ClientError: there is no such row; the hint suggests a similar name or lists the names.
    """
    for key in (name_key, id_key):
        for row in rows:
            if str(row[key]) == given:
                return row
    raise not_found(noun, given, [str(row[name_key]) for row in rows])


def not_found(noun: str, given: str, names: list[str]) -> ClientError:
    """Return the error for an unknown name; the hint suggests a similar one or lists them."""
    close = difflib.get_close_matches(given, names, 1)
    hint = f"did you mean {close[0]}?" if close else available(noun, names)
    return ClientError(f"there is no {noun} {given}", hint)
