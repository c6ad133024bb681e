"""Commands on the SQL tables of a project: `sql`."""

from __future__ import annotations

import json
from typing import Any

import click

from fieldbrook.cli.console import current
from fieldbrook.cli.options import CommandGroup, limit_option, project_argument
from fieldbrook.cli.output import note, show_json, show_rows
from fieldbrook.cli.remote.lookup import open_project
from fieldbrook.cli.text import counted

_COLUMNS = {"name": "TABLE", "rows": "ROWS", "columns": "COLUMNS"}


@click.group(cls=CommandGroup)
def sql() -> None:
    """Read the SQL tables in which handlers keep their data."""


@sql.command("tables")
@project_argument
def sql_tables(project: str) -> None:
    """List the tables of a project with their columns and numbers of rows.

    Rows are counted up to 10000; `10000+` stands for more.
    """
    client, project = open_project(project)
    tables = client.call("GET", ["sql", project])["data"]
    if current().json:
        show_json(tables)
        return
    rows = [
        {
            "name": table["name"],
            "rows": "?" if table["rows"] is None else f"{table['rows']}{'+' * table['more']}",
            "columns": ", ".join(f"{each['name']} {each['type']}" for each in table["columns"]),
        }
        for table in tables
    ]
    show_rows(rows, _COLUMNS, "the project has no tables")


@sql.command("rows")
@project_argument
@click.argument("table")
@click.option("--order", metavar="COLUMN", help="Sort by a column [default: the primary key].")
@click.option("--desc", is_flag=True, help="Sort in descending order.")
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="List only rows with this value; repeatable.",
)
@click.option("--offset", type=click.IntRange(0), default=0, help="How many rows to skip.")
@limit_option()
def sql_rows(
    project: str,
    table: str,
    order: str | None,
    desc: bool,
    filters: tuple[str, ...],
    offset: int,
    limit: int,
) -> None:
    """List rows of a table."""
    client, project = open_project(project)
    query = {
        "order": order,
        "desc": str(desc).lower(),
        "filter": list(filters),
        "offset": offset,
        "limit": limit,
    }
    page = client.call("GET", ["sql", project, table], query=query)
    _show(page)
    if page["more"]:
        note(f"there are more rows: use --offset {offset + limit}")


@sql.command("query")
@project_argument
@click.argument("statement")
@click.argument("values", metavar="[VALUE]...", nargs=-1)
def sql_query(project: str, statement: str, values: tuple[str, ...]) -> None:
    """Run a SELECT, with a VALUE for each `?` or `$1` in it.

    A VALUE that is a number, true, false or null is sent as such, any other as text.
    """
    client, project = open_project(project)
    body = {"statement": statement, "args": [_value(text) for text in values]}
    answer = client.call("POST", ["sql", project, "query"], body=body)
    _show(answer)
    if not current().json:
        note(f"{counted(len(answer['data']), 'row')} in {answer['ms']} ms")


def _show(answer: Any) -> None:
    columns = answer["columns"]
    if current().json:
        show_json([dict(zip(columns, row, strict=True)) for row in answer["data"]])
        return
    rows = [{str(n): value for n, value in enumerate(row)} for row in answer["data"]]
    show_rows(rows, {str(n): name for n, name in enumerate(columns)}, "no rows")


def _value(text: str) -> object:
    """Return the value of an argument: JSON for numbers, booleans and null, else the text
    itself."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, (int, float, type(None))) else text
