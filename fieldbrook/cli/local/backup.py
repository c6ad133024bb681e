"""Commands on a data folder: `backup`, `restore`, `verify`, `outbox`.

They work on the files of the folder, whether or not a node runs on it. They need no login,
because a user who can read a data folder can do anything with it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from fieldbrook.cli.client import EXIT_REFUSED, ClientError
from fieldbrook.cli.console import (
    current,
    note,
    printable,
    shared_options,
    show_done,
    show_json,
    show_rows,
)

_DATA = click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    help="The node's data folder [default: as for `fieldbrook`].",
)
_FILE = click.Path(path_type=Path, dir_okay=False)


@contextmanager
def _errors_told() -> Iterator[None]:
    from fieldbrook.core.errors import NodeError

    try:
        yield
    except NodeError as error:
        raise ClientError(str(error)) from None


@click.command()
@click.argument("target", metavar="FILE|FOLDER", type=click.Path(path_type=Path))
@_DATA
@shared_options
@click.pass_context
def backup(context: click.Context, target: Path, data: Path | None) -> None:
    """Make a consistent copy of a data folder; the node may run.

    In a FOLDER the file gets a name with the time. It holds the node's secrets, and only you
    can read it. It does not contain the messages that wait in the embedded broker. The exit
    code is 1 when the data folder lacks a module.
    """
    with _errors_told():
        from fieldbrook.storage.backup.backup import back_up

        if target.is_dir():
            target /= time.strftime("fieldbrook-%Y%m%dT%H%M%SZ.tar.gz", time.gmtime())
        made = back_up(data or current().data, target)
    size = sum(file.size for file in made.manifest.files.values())
    show_done(
        f"{target}: {made.projects} projects, {len(made.manifest.files)} files, {size} bytes",
        file=str(target),
        projects=made.projects,
        files=len(made.manifest.files),
        bytes=size,
        missing=made.missing,
    )
    for sha256 in made.missing:
        note(f"module {sha256} is missing in the data folder and so in the backup")
    if made.missing:
        context.exit(EXIT_REFUSED)


@click.command()
@click.argument("archive", type=_FILE)
@_DATA
@shared_options
@click.pass_context
def restore(context: click.Context, archive: Path, data: Path | None) -> None:
    """Make a data folder from a backup. The folder must be empty or not exist.

    Output of handlers that was not delivered before the backup stays parked in the outbox,
    because it may have been delivered since. `fieldbrook outbox` shows and releases it. The
    exit code is 1 when the restored data has defects.
    """
    with _errors_told():
        from fieldbrook.storage.backup.backup import restore as restored
        from fieldbrook.storage.backup.verify_apart import verify_apart as look

        folder = data or current().data
        manifest = restored(archive, folder)
        found = look(folder)
    show_done(
        f"{folder}: {found.projects} projects as of {manifest.made_at}",
        data=str(folder),
        madeAt=manifest.made_at,
        madeBy=manifest.made_by,
        projects=found.projects,
        defects=found.defects,
    )
    note(f"nothing leaves the node until `fieldbrook --data {folder} outbox release`")
    for defect in found.defects:
        note(defect)
    if found.defects:
        context.exit(EXIT_REFUSED)


@click.command()
@click.argument("archive", type=_FILE, required=False)
@_DATA
@shared_options
@click.pass_context
def verify(context: click.Context, archive: Path | None, data: Path | None) -> None:
    """Check a backup or a data folder for defects.

    Every file, record and reference is checked; nothing is changed. A backup is first
    unpacked into the folder for temporary files (TMPDIR). The exit code is 1 when there are
    defects.
    """
    with _errors_told():
        from fieldbrook.storage.backup.backup import require_data, unpacked
        from fieldbrook.storage.backup.verify_apart import verify_apart as look

        if archive is not None:
            with unpacked(archive) as folder:
                require_data(folder)
                found = look(folder)
        else:
            require_data(data or current().data)
            found = look(data or current().data)
    if current().json:
        show_json({"defects": found.defects, "projects": found.projects, "records": found.records})
    else:
        for defect in found.defects:
            click.echo(printable(defect))
        count = f"{len(found.defects)} defects" if found.defects else "no defects"
        note(f"{count}: {found.projects} projects, {found.records} records")
    if found.defects:
        context.exit(EXIT_REFUSED)


@click.group()
def outbox() -> None:
    """The outbox: output of handlers that is not delivered yet."""


@outbox.command("status")
@_DATA
@shared_options
def outbox_status(data: Path | None) -> None:
    """Show whether the outbox is parked, and how many entries wait in each project."""
    with _errors_told():
        from fieldbrook.storage.backup.backup import require_data, waiting
        from fieldbrook.storage.project.outbox import is_parked

        folder = data or current().data
        require_data(folder)
        parked, rows = is_parked(folder), waiting(folder)
    if current().json:
        show_json({"parked": parked, "waiting": rows})
        return
    note("parked: nothing leaves the node until `fieldbrook outbox release`" if parked else "open")
    show_rows(rows, {"project": "PROJECT", "entries": "ENTRIES"}, "nothing waits")


@outbox.command("release")
@_DATA
@shared_options
def outbox_release(data: Path | None) -> None:
    """Let a restored node send again; a running node starts to send within seconds."""
    with _errors_told():
        from fieldbrook.storage.backup.backup import require_data
        from fieldbrook.storage.project.outbox import release

        folder = data or current().data
        require_data(folder)
        released = release(folder)
    show_done("released" if released else "nothing was parked", released=released)
