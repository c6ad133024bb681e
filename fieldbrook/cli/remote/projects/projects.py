"""Commands on projects: `project`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from fieldbrook.cli.client import Upload, items
from fieldbrook.cli.console import current
from fieldbrook.cli.errors import WrongUsageError, file_error
from fieldbrook.cli.input import read_file
from fieldbrook.cli.options import (
    CommandGroup,
    confirm,
    project_argument,
    split_pair,
    yes_option,
)
from fieldbrook.cli.output import show_done, show_fields, show_rows, show_warnings
from fieldbrook.cli.remote.lookup import ALL, open_project

_COLUMNS = {
    "projectName": "NAME",
    "projectID": "ID",
    "applets": "APPLETS",
    "deadLetters": "DEAD LETTERS",
    "createdAt": "CREATED",
}
_COLUMNS_OF_ALL = {"projectName": "NAME", "owner": "OWNER", **_COLUMNS}
_FIELDS = {
    "name": "project",
    "projectID": "id",
    "description": "description",
    "dedicated": "dedicated worker",
    "env": "environment",
    "createdAt": "created",
    "updatedAt": "updated",
}
_CREATED_FIELDS = {"name": "project", "projectID": "id"}
_FIELDS_OF_UPDATE = {
    "name": "project",
    "description": "description",
    "dedicated": "dedicated worker",
}
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.group(cls=CommandGroup)
def project() -> None:
    """Manage projects, which receive events and run applets."""


@project.command("create")
@click.argument("name")
@click.option("--description", default="", help="A text for people.")
@click.option(
    "--env", multiple=True, metavar="KEY=VALUE", help="A variable for its applets; repeatable."
)
def project_create(name: str, description: str, env: tuple[str, ...]) -> None:
    """Create a project. Its name is also its MQTT topic."""
    body: dict[str, Any] = {"name": name, "description": description}
    if env:
        body["envs"] = [split_pair(text, "--env", "KEY=VALUE") for text in env]
    show_fields(current().client().call("POST", ["project"], body=body), _CREATED_FIELDS)


@project.command("list")
@click.option("--all", "everybody", is_flag=True, help="List the projects of all accounts.")
def project_list(everybody: bool) -> None:
    """List your projects; administrators can list those of all accounts."""
    query = {**ALL, "deadLetters": "true", "all": "true" if everybody else None}
    rows = items(current().client().call("GET", ["project", "detail_list"], query=query))
    if not current().json:
        for row in rows:
            row["applets"] = [item["appletName"] for item in row.get("applets") or []]
    columns = _COLUMNS_OF_ALL if everybody else _COLUMNS
    show_rows(rows, columns, "no projects yet: `fieldbrook project create NAME`")


@project.command("show")
@project_argument
def project_show(project: str) -> None:
    """Show a project."""
    client, name = open_project(project)
    value = client.call("GET", ["project", name])
    if not current().json:
        value["env"] = [f"{key}={text}" for key, text in value["envs"]["env"]]
    show_fields(value, _FIELDS)


@project.command("update")
@project_argument
@click.option("--description", help="A text for people; empty for none.")
@click.option(
    "--dedicated/--shared",
    default=None,
    help="Run it in a worker of its own, or in one that it shares with other projects.",
)
def project_update(project: str, description: str | None, dedicated: bool | None) -> None:
    """Change the description of a project, or where it runs.

    A dedicated project has a process of its own: no other project can slow it down or stop it. The
    quota `dedicated` limits their number; it is 0 by default, except for administrators.
    """
    if description is None and dedicated is None:
        raise WrongUsageError("nothing to change", "give --description, --dedicated or --shared")
    client, name = open_project(project)
    updated: dict[str, Any] = {}
    if dedicated is not None:
        body: dict[str, Any] = {"dedicated": dedicated}
        updated = client.call("PUT", ["project", "x", name, "worker"], body=body)
    if description is not None:
        body = {"description": description}
        updated = client.call("PUT", ["project", "x", name], body=body)
    show_fields(updated, _FIELDS_OF_UPDATE)


@project.command("export")
@project_argument
@click.argument("file", type=_FILE)
@click.option("--tokens", is_flag=True, help="Include publishers' tokens: the file is a secret.")
@click.option("--no-data", is_flag=True, help="Leave out the data that its handlers stored.")
def project_export(project: str, file: Path, tokens: bool, no_data: bool) -> None:
    """Export a project to a file for `project import`.

    It can be imported at this or another node. The file has its configurations, applets with
    their modules, strategies, publishers, cron jobs, monitors, ABIs, limits, and the data that
    its handlers stored. Logs, the event history and dead letters are not exported.
    """
    client, name = open_project(project)
    body = {"tokens": tokens, "data": not no_data}
    content = client.download("POST", ["project", "x", name, "export"], body)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(content)
    except OSError as error:
        raise file_error(file, error) from None
    text = f"project {name} exported to {file}: {len(content)} bytes"
    show_done(text, file=str(file), bytes=len(content))


@project.command("import")
@click.argument("file", type=_FILE)
@click.option("--name", default="", help="The name of the new project [default: the exported one].")
@click.option("--new-tokens", is_flag=True, help="Replace the publishers' tokens in the file.")
def project_import(file: Path, name: str, new_tokens: bool) -> None:
    """Create a project from a file of `project export`.

    The project is yours. It is created completely or not at all. Publishers keep the tokens in
    the file; a publisher without one gets a new token.
    """
    info = {"name": name, "newTokens": new_tokens}
    upload = Upload(file.name, read_file(file))
    created = current().client().upload("POST", ["project", "import"], info, upload)
    show_fields(created, _CREATED_FIELDS)
    show_warnings(created)


@project.command("delete")
@project_argument
@yes_option
def project_delete(project: str, yes: bool) -> None:
    """Delete a project with its applets, publishers and data."""
    client, name = open_project(project)
    confirm(f"Delete project {name} and all its data?", yes)
    client.call("DELETE", ["project", name])
    show_done(f"project {name} deleted", deleted=name)
