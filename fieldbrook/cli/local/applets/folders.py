"""Commands on folders of applet sources: `applet new`, `applet build`."""

from __future__ import annotations

from pathlib import Path

import click

from fieldbrook.cli.console import current
from fieldbrook.cli.errors import expected_errors
from fieldbrook.cli.input import require_terminal
from fieldbrook.cli.output import note, note_unless_json, show_done, show_json
from fieldbrook.cli.remote.projects.applets import applet
from fieldbrook.cli.text import printable
from fieldbrook.system.regular_file import read_regular_file

_TEMPLATES = ("assemblyscript", "c", "go", "rust", "wat")
_LANGUAGES = {
    "assemblyscript": "AssemblyScript",
    "c": "C",
    "go": "Go",
    "rust": "Rust",
    "wat": "WebAssembly text",
}
_BY_EASE = ("assemblyscript", "rust", "go", "c", "wat")
_NAME = "my-applet"


@applet.command("new")
@click.argument("name", required=False)
@click.option(
    "--template",
    type=click.Choice(_TEMPLATES),
    help="The source language [default: asks on a terminal].",
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="The new folder [default: ./NAME].",
)
def applet_new(name: str | None, template: str | None, folder: Path | None) -> None:
    """Create a folder with a starter applet.

    It has the source, a build recipe, a test and a simulated device. Without NAME or --template
    the command asks for them.
    """
    from fieldbrook.workbench import scaffold

    if name is None or template is None:
        missing = [what for what, given in (("name", name), ("language", template)) if not given]
        require_terminal(
            " and the ".join(missing), "`fieldbrook applet new NAME --template LANGUAGE`"
        )
    with expected_errors(scaffold.ScaffoldError):
        name = _ask_name() if name is None else scaffold.valid_name(name)
    template = template or _ask_template()
    folder = folder or Path(name)
    with expected_errors(scaffold.ScaffoldError):
        files = scaffold.create(name, template, folder)
    if current().json:
        show_json({"folder": str(folder), "files": [str(path) for path in files]})
        return
    for path in files:
        click.echo(printable(str(path)))
    note(f"build it and run its test with `fieldbrook applet test {folder}`")
    note(f"or do so at each save with `fieldbrook applet dev {folder}`")


def _ask_name() -> str:
    from fieldbrook.workbench import scaffold

    def valid(text: str) -> str:
        try:
            return scaffold.valid_name(text)
        except scaffold.ScaffoldError as error:
            raise click.UsageError(f"{error}: {error.hint}") from None

    answer: str = click.prompt("Name", default=_NAME, value_proc=valid, err=True)
    return answer


def _ask_template() -> str:
    """Ask for the language; the default is the first one whose programs are installed."""
    from fieldbrook.workbench import scaffold

    missing = {template: scaffold.template_needs(template) for template in _TEMPLATES}
    for template, programs in missing.items():
        needs = f" (needs {', '.join(programs)}, not installed here)" if programs else ""
        note(f"  {_LANGUAGES[template]:<17} {template}{needs}")
    default = next(template for template in _BY_EASE if not missing[template])
    answer: str = click.prompt(
        "Language", default=default, type=click.Choice(_TEMPLATES), show_choices=False, err=True
    )
    return answer


@applet.command("build")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
def applet_build(folder: Path) -> None:
    """Build an applet and print the module's path.

    The recipe is in the folder's applet.toml. The module then gets the checks that a node
    makes at upload.
    """
    from fieldbrook.wasm.limits import Limits
    from fieldbrook.wasm.module.inspection import check
    from fieldbrook.workbench import build_record, scaffold

    with expected_errors(scaffold.ScaffoldError):
        sources = build_record.fingerprint(folder, scaffold.read_recipe(folder))
        module = scaffold.build(folder, tell=note_unless_json)
        build_record.remember(module, sources)
        report = check(read_regular_file(module), Limits())
        size = module.stat().st_size
    note_unless_json(f"{size} bytes, handlers: {', '.join(report.handlers)}")
    show_done(str(module), module=str(module), bytes=size, handlers=list(report.handlers))
