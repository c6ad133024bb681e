"""Commands on a data folder: `backup`, `restore`, `verify`, `outbox`.

They work on the files of the folder, whether or not a node runs on it. They need no login,
because a user who can read a data folder can do anything with it.
"""

from __future__ import annotations

import time
from pathlib import Path

import click

from fieldbrook.cli.console import current
from fieldbrook.cli.errors import EXIT_REFUSED, expected_errors
from fieldbrook.cli.options import CommandGroup, SharedCommand
from fieldbrook.cli.output import note, show_done, show_json, show_rows
from fieldbrook.cli.text import counted, printable

_data_option = click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    help="The node's data folder [default: as for `fieldbrook`].",
)
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(cls=SharedCommand)
@click.argument("target", metavar="FILE|FOLDER", type=click.Path(path_type=Path))
@_data_option
@click.pass_context
def backup(context: click.Context, target: Path, data: Path | None) -> None:
    """Write a copy of a data folder to a file; the node may run.

    The copy is consistent. In a FOLDER the file gets a name with the time. The file contains
    the node's secrets; only you can read it. The exit code is 1 when the data folder lacks a
    module, or when a worker's journal is damaged.
    """
    with expected_errors():
        from fieldbrook.storage.backup.backup import back_up

        if target.is_dir():
            target /= time.strftime("fieldbrook-%Y%m%dT%H%M%SZ.tar.gz", time.gmtime())
        made = back_up(data or current().data, target)
    size = sum(file.size for file in made.manifest.files.values())
    show_done(
        f"backup written to {target}: {counted(made.projects, 'project')}, "
        f"{counted(len(made.manifest.files), 'file')}, {size} bytes",
        file=str(target),
        projects=made.projects,
        files=len(made.manifest.files),
        bytes=size,
        missing=made.missing,
        damaged=made.damaged,
    )
    for sha256 in made.missing:
        note(f"module {sha256} is missing in the data folder, and so in the backup")
    for damage in made.damaged:
        note(f"the journal {damage}: batches that a store lacks are not in the backup")
    if made.missing or made.damaged:
        context.exit(EXIT_REFUSED)


@click.command(cls=SharedCommand)
@click.argument("archive", type=_FILE)
@_data_option
@click.pass_context
def restore(context: click.Context, archive: Path, data: Path | None) -> None:
    """Restore a data folder from a backup. The folder must be empty or not exist.

    Handlers' messages and calls that were not delivered before the backup stay parked in the
    outbox, because they may have been delivered since. `fieldbrook outbox` shows and releases
    them. The exit code is 1 when the restored data has defects.
    """
    with expected_errors():
        from fieldbrook.storage.backup.backup import restore as restore_archive
        from fieldbrook.storage.backup.verify_in_child import verify_in_child

        folder = data or current().data
        manifest = restore_archive(archive, folder)
        found = verify_in_child(folder)
    show_done(
        f"{counted(found.projects, 'project')} restored to {folder}, as of {manifest.made_at}",
        data=str(folder),
        madeAt=manifest.made_at,
        madeBy=manifest.made_by,
        projects=found.projects,
        defects=found.defects,
    )
    note(f"the node sends nothing until `fieldbrook --data {folder} outbox release`")
    for defect in found.defects:
        note(defect)
    if found.defects:
        context.exit(EXIT_REFUSED)


@click.command(cls=SharedCommand)
@click.argument("archive", type=_FILE, required=False)
@_data_option
@click.pass_context
def verify(context: click.Context, archive: Path | None, data: Path | None) -> None:
    """Check a backup or a data folder for defects.

    Every file, record and reference is checked; nothing is changed. A backup is first
    unpacked into the folder for temporary files (TMPDIR). The exit code is 1 when there are
    defects.
    """
    with expected_errors():
        from fieldbrook.storage.backup.backup import require_data, unpacked
        from fieldbrook.storage.backup.verify_in_child import verify_in_child

        if archive is not None:
            with unpacked(archive) as folder:
                require_data(folder)
                found = verify_in_child(folder)
        else:
            require_data(data or current().data)
            found = verify_in_child(data or current().data)
    if current().json:
        show_json(found._asdict())
    else:
        for defect in found.defects:
            click.echo(printable(defect))
        defects = counted(len(found.defects), "defect") if found.defects else "no defects"
        projects, records = counted(found.projects, "project"), counted(found.records, "record")
        note(f"{defects} in {projects}, {records}")
        if found.waiting:
            note(
                f"batches that only the journals have: {found.waiting}; the next start of the node "
                "writes them into the stores"
            )
    if found.defects:
        context.exit(EXIT_REFUSED)


@click.group(cls=CommandGroup)
def outbox() -> None:
    """Show or release the outbox of undelivered messages and calls."""


@outbox.command("status")
@_data_option
def outbox_status(data: Path | None) -> None:
    """Show whether the outbox is parked, and how many entries wait."""
    with expected_errors():
        from fieldbrook.storage.backup.backup import require_data, waiting_outboxes
        from fieldbrook.storage.project.outbox import is_parked

        folder = data or current().data
        require_data(folder)
        parked, rows = is_parked(folder), waiting_outboxes(folder)
    if current().json:
        show_json({"parked": parked, "waiting": rows})
        return
    note(
        "the outbox is parked: the node sends nothing until `fieldbrook outbox release`"
        if parked
        else "the outbox is not parked"
    )
    show_rows(rows, {"project": "PROJECT", "entries": "ENTRIES"}, "no entries wait")


@outbox.command("release")
@_data_option
def outbox_release(data: Path | None) -> None:
    """Let a restored node deliver the entries of its outbox.

    A running node begins within seconds.
    """
    with expected_errors():
        from fieldbrook.storage.backup.backup import require_data
        from fieldbrook.storage.project.outbox import release

        folder = data or current().data
        require_data(folder)
        released = release(folder)
    show_done("outbox released" if released else "the outbox was not parked", released=released)
