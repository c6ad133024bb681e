"""Commands on folders of applet sources: `applet new`, `applet build`."""

from __future__ import annotations

from pathlib import Path

import click

from fieldbrook.cli.console import current
from fieldbrook.cli.errors import expected_errors
from fieldbrook.cli.output import note, note_unless_json, show_done, show_json
from fieldbrook.cli.remote.projects.applets import applet
from fieldbrook.cli.text import printable
from fieldbrook.system.regular_file import read_regular_file

_TEMPLATES = ("assemblyscript", "c", "rust", "wat")


@applet.command("new")
@click.argument("name")
@click.option(
    "--template", type=click.Choice(_TEMPLATES), required=True, help="The source language."
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="The new folder [default: ./NAME].",
)
def applet_new(name: str, template: str, folder: Path | None) -> None:
    """Create a folder with a starter applet.

    It has the source, a build recipe and test events.
    """
    from fieldbrook.workbench import scaffold

    folder = folder or Path(name)
    with expected_errors(scaffold.ScaffoldError):
        files = scaffold.create(name, template, folder)
    if current().json:
        show_json({"folder": str(folder), "files": [str(path) for path in files]})
        return
    for path in files:
        click.echo(printable(str(path)))
    note(f"build it with `fieldbrook applet build {folder}`")


@applet.command("build")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
def applet_build(folder: Path) -> None:
    """Build an applet and print the module's path.

    The recipe is in the folder's applet.toml. The module then gets the checks that a node
    makes at upload.
    """
    from fieldbrook.wasm.limits import Limits
    from fieldbrook.wasm.module.inspection import check
    from fieldbrook.workbench import scaffold

    with expected_errors(scaffold.ScaffoldError):
        module = scaffold.build(folder)
        report = check(read_regular_file(module), Limits())
        size = module.stat().st_size
    note_unless_json(f"{size} bytes, handlers: {', '.join(report.handlers)}")
    show_done(str(module), module=str(module), bytes=size, handlers=list(report.handlers))
