"""Command for certificates to try out TLS with: `cert`. It only reads and writes files."""

from __future__ import annotations

import shlex
import socket
from pathlib import Path

import click

from fieldbrook.cli.console import current
from fieldbrook.cli.errors import ClientError, file_error
from fieldbrook.cli.options import SharedCommand
from fieldbrook.cli.output import note, show_done, show_json
from fieldbrook.cli.text import printable


@click.command(cls=SharedCommand)
@click.argument("names", nargs=-1)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder of the three files [default: `tls` in the data folder].",
)
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    default=365,
    show_default=True,
    help="Days until it expires.",
)
def cert(names: tuple[str, ...], folder: Path | None, days: int) -> None:
    """Create a certificate, and its authority, for trying out TLS.

    NAMES are the host names and addresses that clients use for the node; the default is those
    of this machine. A client trusts the authority only when it is given the file ca.pem.

    `fieldbrook cert trust` creates nothing: it prints how browsers come to trust the certificate
    that a node without another one makes for https://localhost:3000.
    """
    if names == ("trust",):
        _show_trust(current().data)
        return
    from fieldbrook.security.certificates import write

    folder = folder or current().data / "tls"
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


_TRUST = """\
The authority of this node's certificate for localhost: {file}
Its key was thrown away, so it can vouch for no other certificate.

Firefox           Settings, Privacy & Security, View Certificates, Authorities, Import
Chromium, Linux   certutil -d sql:$HOME/.pki/nssdb -A -t C,, -n fieldbrook -i {file}
Debian, Ubuntu    sudo cp {file} /usr/local/share/ca-certificates/fieldbrook.crt
                  sudo update-ca-certificates
Fedora            sudo trust anchor {file}
macOS             security add-trusted-cert -r trustRoot {file}
curl              curl --cacert {file} https://localhost:3000/version"""


def _show_trust(data: Path) -> None:
    """Print how to trust the certificate that the node made for this machine.

    Raises:
        ClientError: the data folder has none.
    """
    file = (data / "secrets" / "localhost-ca.pem").absolute()
    if not file.is_file():
        raise ClientError(
            f"{file} does not exist",
            "a node without tls_certificate writes it at its start; name its folder with --data",
        )
    if current().json:
        show_json({"ca": str(file)})
    else:
        click.echo(_TRUST.format(file=shlex.quote(printable(str(file)))))
