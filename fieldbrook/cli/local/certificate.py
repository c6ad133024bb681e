"""Command that creates certificates for trying out TLS: `cert`. It only writes files."""

from __future__ import annotations

import socket
from pathlib import Path

import click

from fieldbrook.cli.errors import ClientError, file_error
from fieldbrook.cli.options import SharedCommand
from fieldbrook.cli.output import note, show_done


@click.command(cls=SharedCommand)
@click.argument("names", nargs=-1)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("tls"),
    help="The folder of the three files [default: ./tls].",
)
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    default=365,
    show_default=True,
    help="Days until it expires.",
)
def cert(names: tuple[str, ...], folder: Path, days: int) -> None:
    """Create a certificate, and its authority, for trying out TLS.

    NAMES are the host names and addresses that clients use for the node; the default is those
    of this machine. A client trusts the authority only when it is given the file ca.pem.
    """
    from fieldbrook.security.certificates import write

    known = names or tuple(dict.fromkeys([socket.gethostname(), "localhost", "127.0.0.1", "::1"]))
    try:
        authorities, certificate, key = write(folder, known, days)
    except FileExistsError as error:
        raise ClientError(str(error), "name another folder with --folder") from None
    except OSError as error:
        raise file_error(error.filename or folder, error) from None
    except ValueError as error:
        raise ClientError(f"a certificate cannot have these names: {error}") from None
    show_done(
        f"certificate created for {', '.join(known)}",
        names=list(known),
        ca=str(authorities),
        certificate=str(certificate),
        key=str(key),
    )
    note(f"  fieldbrook up --tls-certificate {certificate} --tls-key {key}")
    note(f"  fieldbrook --server https://{known[0]}:8888 --ca {authorities} status")
