"""Commands on the transactions that projects send to chains: `tx`."""

from __future__ import annotations

from typing import Any

import click

from fieldbrook.cli.console import (
    current,
    items,
    note,
    shared_options,
    show_done,
    show_fields,
    show_json,
    show_rows,
)
from fieldbrook.cli.remote.objects import project_name

_STATES = ("INIT", "PENDING", "IN_BLOCK", "CONFIRMED", "FAILED")
_ROWS = {
    "transactionID": "TRANSACTION",
    "createdAt": "CREATED",
    "state": "STATE",
    "nonce": "NONCE",
    "to": "TO",
    "value": "WEI",
    "hash": "HASH",
    "reason": "REASON",
}
_FIELDS = {
    "transactionID": "transaction",
    "state": "state",
    "reason": "reason",
    "stuckSince": "stuck since",
    "hash": "hash",
    "from": "from",
    "operatorName": "operator",
    "nonce": "nonce",
    "to": "to",
    "value": "wei",
    "gas": "gas limit",
    "gasUsed": "gas used",
    "feeWei": "fee in wei",
    "blockNumber": "block",
    "eventID": "event",
    "createdAt": "created",
    "sentAt": "sent",
    "updatedAt": "updated",
}
_ATTEMPTS = {
    "nonce": "NONCE",
    "hash": "HASH",
    "maxFeePerGas": "MAX FEE PER GAS",
    "signedAt": "SIGNED",
    "why": "WHY",
}
_CHAINS = {
    "chainID": "CHAIN",
    "init": "INIT",
    "pending": "PENDING",
    "in_block": "IN BLOCK",
    "confirmed": "CONFIRMED",
    "failed": "FAILED",
    "gasUsed": "GAS USED",
    "feesWei": "FEES IN WEI",
    "spentTodayWei": "TODAY IN WEI",
}


@click.group()
def tx() -> None:
    """Transactions that projects have sent to chains."""


@tx.command("list")
@click.argument("project_", metavar="[PROJECT]", required=False)
@click.option("--state", type=click.Choice(_STATES, case_sensitive=False), multiple=True)
@click.option("--chain", "chain_id", type=int, help="Only those of this chain id.")
@click.option("--stuck", is_flag=True, help="Only those that are refused and hold up others.")
@click.option("--event", "event_id", help="Only those of this event.")
@click.option("--hash", "hash_", help="Only the one that has or had this hash.")
@click.option("--before", help="Only those below this number.")
@click.option("--limit", "-n", type=click.IntRange(1, 1_000), default=20, show_default=True)
@shared_options
def tx_list(
    project_: str | None,
    state: tuple[str, ...],
    stuck: bool,
    chain_id: int | None,
    event_id: str | None,
    hash_: str | None,
    before: str | None,
    limit: int,
) -> None:
    """List transactions, the newest first. Administrators may leave out the project."""
    client = current().client()
    query: dict[str, Any] = {"limit": limit}
    if state:
        query["state"] = list(state)
    if stuck:
        query["stuck"] = "true"
    given = {"chainID": chain_id, "eventID": event_id, "hash": hash_, "before": before}
    query |= {name: value for name, value in given.items() if value is not None}
    path = ["tx", project_name(client, project_)] if project_ else ["tx"]
    answer = client.call("GET", path, query=query)
    if current().json:
        show_json(answer)
        return
    show_rows(items(answer), _ROWS, "no transactions")
    if answer.get("next"):
        note(f"there are more: --before {answer['next']}")


@tx.command("show")
@click.argument("project_", metavar="PROJECT")
@click.argument("transaction")
@shared_options
def tx_show(project_: str, transaction: str) -> None:
    """Show a transaction and its signatures."""
    client = current().client()
    row = client.call("GET", ["tx", project_name(client, project_), transaction])
    _show(row)


@tx.command("state")
@click.argument("project_", metavar="PROJECT")
@shared_options
def tx_state(project_: str) -> None:
    """Show the number of transactions and the spending of a project, by chain."""
    client = current().client()
    answer = client.call("GET", ["tx", project_name(client, project_), "state"])
    if current().json:
        show_json(answer)
        return
    show_rows(items(answer), _CHAINS, "no chain has been used")
    if answer["weiPerDay"] is not None:
        note(f"it may spend {answer['weiPerDay']} wei a day")


@tx.command("limit")
@click.argument("project_", metavar="PROJECT")
@click.argument("wei", type=click.IntRange(0))
@shared_options
def tx_limit(project_: str, wei: int) -> None:
    """Limit the daily spending of a project, in wei, fees included."""
    client = current().client()
    path = ["project_config", "x", project_name(client, project_), "PROJECT_SPENDING"]
    client.call("POST", path, body={"weiPerDay": str(wei)})
    show_done(f"project {project_} may spend {wei} wei a day", project=project_, weiPerDay=str(wei))


@tx.command("retry")
@click.argument("project_", metavar="PROJECT")
@click.argument("transaction")
@shared_options
def tx_retry(project_: str, transaction: str) -> None:
    """Sign a transaction again with higher fees, as an administrator."""
    client = current().client()
    _show(client.call("POST", ["tx", project_name(client, project_), transaction, "retry"]))


@tx.command("cancel")
@click.argument("project_", metavar="PROJECT")
@click.argument("transaction")
@click.option("--yes", is_flag=True, help="Do not ask.")
@shared_options
def tx_cancel(project_: str, transaction: str, yes: bool) -> None:
    """Replace a transaction by one that does nothing, as an administrator.

    Only one of the two gets into a block. If that is the original, it was too late to cancel.
    """
    if not yes:
        click.confirm(f"Cancel transaction {transaction}?", abort=True, err=True)
    client = current().client()
    _show(client.call("POST", ["tx", project_name(client, project_), transaction, "cancel"]))


@tx.command("park")
@click.argument("chain_", metavar="CHAIN")
@shared_options
def tx_park(chain_: str) -> None:
    """Stop sending to a chain, as an administrator; committed transactions wait."""
    current().client().call("POST", ["chain", chain_, "park"])
    show_done(f"nothing more is sent to chain {chain_}", chain=chain_, parked=True)


@tx.command("resume")
@click.argument("chain_", metavar="CHAIN")
@shared_options
def tx_resume(chain_: str) -> None:
    """Resume sending to a parked chain, as an administrator, with the waiting transactions."""
    current().client().call("POST", ["chain", chain_, "resume"])
    show_done(f"transactions are sent to chain {chain_}", chain=chain_, parked=False)


@tx.command("release")
@click.argument("chain_", metavar="CHAIN")
@click.argument("project_", metavar="PROJECT")
@click.option("--yes", is_flag=True, help="Do not ask.")
@shared_options
def tx_release(chain_: str, project_: str, yes: bool) -> None:
    """Give up the nonces of a project whose store is lost, as an administrator.

    Other projects that sign with the same key wait for these nonces. If the store comes back,
    the transactions that the project had committed are still sent.
    """
    if not yes:
        click.confirm(f"Give up what project {project_} has open?", abort=True, err=True)
    client = current().client()
    client.call("POST", ["chain", chain_, "release", project_name(client, project_)])
    show_done(f"project {project_} has no nonce any more", chain=chain_, project=project_)


def _show(row: dict[str, Any]) -> None:
    if current().json:
        show_json(row)
        return
    show_fields(row, {key: name for key, name in _FIELDS.items() if row.get(key) not in (None, "")})
    show_rows(row["attempts"], _ATTEMPTS, "")
