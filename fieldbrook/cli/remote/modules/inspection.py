"""Command that makes a node check a module: `applet inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fieldbrook.cli.client import Upload
from fieldbrook.cli.console import current
from fieldbrook.cli.errors import EXIT_REFUSED
from fieldbrook.cli.input import read_module
from fieldbrook.cli.output import show_fields, show_json
from fieldbrook.cli.remote.projects.applets import applet
from fieldbrook.cli.text import printable

_FIELDS = {
    "size": "bytes",
    "sha256": "SHA-256",
    "runtime": "made with",
    "handlers": "handlers",
    "calls": "imports",
}


@applet.command("inspect")
@click.argument("module", type=click.Path(path_type=Path))
@click.pass_context
def applet_inspect(context: click.Context, module: Path) -> None:
    """Make the node check a module like an upload, and describe it; nothing is stored.

    The exit code is 1 when the node would refuse it.
    """
    file = Upload(module.name, read_module(module))
    answer: dict[str, Any] = current().client().upload("POST", ["resource", "inspect"], {}, file)
    if current().json:
        show_json(answer)
    else:
        calls = [f"{each['module']}.{each['name']}" for each in answer["imports"]]
        show_fields({**answer, "calls": calls}, _FIELDS)
        for text in answer["warnings"]:
            click.echo(printable(f"warning: {text}"))
        for text in answer["problems"]:
            click.echo(printable(f"refused: {text}"))
    if answer["problems"]:
        context.exit(EXIT_REFUSED)
