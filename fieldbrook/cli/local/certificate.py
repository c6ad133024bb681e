"""Command that makes certificates for trying out TLS: `cert`. It only writes files."""

from __future__ import annotations

import socket
from pathlib import Path

import click

from fieldbrook.cli.client import ClientError
from fieldbrook.cli.console import note, shared_options, show_done


@click.command()
@click.argument("names", nargs=-1)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("tls"),
    help="Where the three files go [default: ./tls].",
)
@click.option("--days", type=click.IntRange(1, 3650), default=365, help="How long it lasts.")
@shared_options
def cert(names: tuple[str, ...], folder: Path, days: int) -> None:
    """Make a certificate for trying out TLS, and its authority.

    NAMES are the host names and addresses that clients use for the node; the default is those
    of this machine. A client trusts the authority only when it is given the file ca.pem.
    """
    from fieldbrook.security.certificates import write

    known = names or tuple(dict.fromkeys([socket.gethostname(), "localhost", "127.0.0.1", "::1"]))
    try:
        authorities, certificate, key = write(folder, known, days)
    except FileExistsError as error:
        raise ClientError(str(error), "name another place with --folder") from None
    except OSError as error:
        raise ClientError(f"{error.filename or folder}: {error.strerror}") from None
    except ValueError as error:
        raise ClientError(f"no certificate can have such names: {error}") from None
    show_done(
        f"made a certificate for {', '.join(known)}",
        names=list(known),
        ca=str(authorities),
        certificate=str(certificate),
        key=str(key),
    )
    note(f"  fieldbrook up --tls-certificate {certificate} --tls-key {key}")
    note(f"  fieldbrook --server https://{known[0]}:8888 --ca {authorities} status")
