"""`fieldbrook upgrade`: converts the data folder of an older version."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fieldbrook.cli.console import current
from fieldbrook.cli.errors import EXIT_CONVERTS, EXIT_REFUSED, EXIT_RUNNING, expected_errors
from fieldbrook.cli.local.doctor import COLUMNS
from fieldbrook.cli.options import SharedCommand
from fieldbrook.cli.output import note_unless_json, show_done, show_json, show_rows
from fieldbrook.cli.text import counted

if TYPE_CHECKING:
    from fieldbrook.node.upgrade import Examined


@click.command(cls=SharedCommand)
@click.option("--check", is_flag=True, help="Change nothing, and say what an upgrade would do.")
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    help="The node's data folder [default: as for `fieldbrook`].",
)
@click.pass_context
def upgrade(context: click.Context, check: bool, data: Path | None) -> None:
    """Convert a data folder of an older version, or check what that would do.

    A node does the same when it starts: it copies the data folder to `rollback` inside it, then
    changes each store whose schema is older. No node may run on the folder.

    With --check it names the schema and the version of all stores and the disk that the copy
    needs, also while a node runs. The exit code is then 0 when a node of this version can start
    and converts nothing, 5 when it converts stores, 6 when another node has to stop first, and 1
    when it cannot start.
    """
    folder = data or current().data
    with expected_errors():
        from fieldbrook.node import upgrade as work

        if check:
            examined = work.examine(folder)
        else:
            done = work.convert(folder)
    if check:
        context.exit(_show(examined))
    stores = done.stores if done else 0
    show_done(
        f"{counted(stores, 'store')} converted; the folder as it was is in {done.copy}"
        if done
        else "all stores have the schema of this version",
        stores=stores,
        copy=str(done.copy) if done else None,
    )


def _show(examined: Examined) -> int:
    """Print the findings; return the exit code."""
    rows = [dataclasses.asdict(finding) for finding in examined.findings]
    if current().json:
        show_json(
            {
                "canStart": examined.can_start,
                "running": examined.running,
                "converts": examined.converts,
                "checks": rows,
            }
        )
    else:
        show_rows(rows, COLUMNS, "")
    if not examined.can_start:
        note_unless_json("a node of this version cannot start on the folder")
        return EXIT_REFUSED
    if examined.running:
        note_unless_json("stop the node that runs before this version starts")
        return EXIT_RUNNING
    if examined.converts:
        note_unless_json(
            f"the next start converts {counted(examined.converts, 'store')} after a copy"
        )
        return EXIT_CONVERTS
    note_unless_json("the next start converts nothing")
    return 0
