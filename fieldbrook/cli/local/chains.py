"""Commands on chains that need no node: `chain networks` and `chain doctor`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from fieldbrook.cli.console import current
from fieldbrook.cli.errors import (
    EXIT_REFUSED,
    UnreachableError,
    WrongUsageError,
    file_error,
    require_chain_libraries,
)
from fieldbrook.cli.output import show_json, show_rows
from fieldbrook.cli.remote.chain.chains import chain
from fieldbrook.core.networks import BY_NAME, NETWORKS

if TYPE_CHECKING:
    from fieldbrook.chain.doctor.findings import Report

_SCHEMES = ("http", "https", "ws", "wss")
_KEY_CHARACTERS = 200
_COLUMNS = {
    "name": "NAME",
    "chain_id": "ID",
    "confirmations": "CONFIRMATIONS",
    "finality": "FINALITY",
    "final_tag": "FINALIZED",
    "poll_ms": "POLL MS",
    "priority_fee": "PRIORITY FEE",
    "max_fee_per_gas": "MAX FEE",
    "test": "TEST",
}


@chain.command("networks")
def chain_networks() -> None:
    """List the known chains with their defaults; needs no node.

    FINALITY is the number of blocks after which a block is final, FINALIZED tells whether
    endpoints know the block of that name, and fees are in wei per gas. The settings of a chain
    override its defaults. With --json each chain has the sources of its figures.
    """
    show_rows([dataclasses.asdict(network) for network in NETWORKS], _COLUMNS, "")


@chain.command("doctor")
@click.argument("url")
@click.option("--chain", "wanted", metavar="CHAIN", help="The expected chain, by id or known name.")
@click.option(
    "--websocket",
    metavar="URL",
    help="An address that announces blocks [default: tries that of the endpoint].",
)
@click.option(
    "--send-from",
    "key_file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="On a test chain only: send a transaction of value 0 from the account of this file's "
    "private key (64 hexadecimal digits) to itself, and wait for the receipt.",
)
@click.option("--no-rate", is_flag=True, help="Do not measure how many requests are answered.")
@click.option(
    "--timeout",
    "limit_s",
    type=click.FloatRange(0.1, 120),
    default=10.0,
    show_default=True,
    help="Seconds that each answer may take, and six times of that the receipt.",
)
@click.pass_context
def chain_doctor(
    context: click.Context,
    url: str,
    wanted: str | None,
    websocket: str | None,
    key_file: Path | None,
    no_rate: bool,
    limit_s: float,
) -> None:
    """Examine an endpoint, and print settings that fit it; needs no node.

    URL is an address with http, https, ws or wss. About 60 requests are sent; it takes up to a
    minute. The exit code is 1 when the endpoint cannot be used, or is not of the chain; 3 when
    nobody answers there.
    """
    for address, schemes in ((url, _SCHEMES), (websocket, _SCHEMES[2:])):
        if address is not None:
            _require_address(address, schemes)
    chain_id = None if wanted is None else _chain_id(wanted)
    # Imported here, so that `fieldbrook --help` starts fast.
    require_chain_libraries("chain doctor")
    import asyncio

    from fieldbrook.chain.doctor.examination import NoEndpointError, Options, examine
    from fieldbrook.chain.doctor.sending import NotTestChainError, Sender
    from fieldbrook.chain.rpc.endpoint_url import public_part

    sender = None if key_file is None else Sender(_read_key(key_file), 6 * limit_s)
    options = Options(chain_id, websocket, sender, not no_rate, limit_s)
    try:
        report = asyncio.run(examine(url, options))
    except NoEndpointError as error:
        raise UnreachableError(f"{public_part(url)}: {error}") from None
    except NotTestChainError as error:
        raise WrongUsageError(f"{error}: nothing is sent") from None
    _show(report)
    context.exit(0 if report.is_usable else EXIT_REFUSED)


def _require_address(address: str, schemes: Sequence[str]) -> None:
    try:
        parts = urlsplit(address)
        good = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port, or an address in brackets, is not valid
        good = False
    if not good or any(c.isspace() for c in address):
        # The address may contain a key, so it is not repeated.
        raise WrongUsageError(f"the address is not a URL with {', '.join(schemes)} and a host")


def _chain_id(text: str) -> int:
    if text in BY_NAME:
        return BY_NAME[text].chain_id
    if text.isascii() and text.isdecimal() and 0 < int(text[:20]) < 1 << 63:
        return int(text)
    raise WrongUsageError(
        f"--chain {text[:64]!r} is neither an id nor a known name",
        "fieldbrook chain networks lists the known ones",
    )


def _read_key(path: Path) -> bytes:
    from fieldbrook.core.errors import InvalidPrivateKeyError
    from fieldbrook.security.operator_keys import ECDSA, parse_secret

    try:
        with path.open() as file:
            return parse_secret(file.read(_KEY_CHARACTERS).strip(), ECDSA)
    except (InvalidPrivateKeyError, UnicodeDecodeError):
        raise WrongUsageError(f"{path}: not a private key of 64 hexadecimal digits") from None
    except OSError as error:
        raise file_error(path, error) from None


def _show(report: Report) -> None:
    if current().json:
        show_json(
            {
                "endpoint": report.endpoint,
                "usable": report.is_usable,
                "checks": [dataclasses.asdict(finding) for finding in report.findings],
                "settings": report.settings(),
                "toml": report.toml(),
            }
        )
        return
    rows = [dataclasses.asdict(finding) for finding in report.findings]
    show_rows(rows, {"check": "CHECK", "state": "STATE", "text": "RESULT"}, "")
    if report.is_usable:
        click.echo(f"\n{report.toml()}")
