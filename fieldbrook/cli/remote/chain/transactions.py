"""Commands on the transactions that projects send to chains: `tx`."""

from __future__ import annotations

from typing import Any

import click

from fieldbrook.cli.client import items
from fieldbrook.cli.console import current
from fieldbrook.cli.options import CommandGroup, confirm, limit_option, project_argument, yes_option
from fieldbrook.cli.output import note, show_done, show_fields, show_json, show_rows
from fieldbrook.cli.remote.lookup import open_project

_STATES = ("INIT", "PENDING", "IN_BLOCK", "CONFIRMED", "FAILED")
_COLUMNS = {
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
_ATTEMPT_COLUMNS = {
    "nonce": "NONCE",
    "hash": "HASH",
    "maxFeePerGas": "MAX FEE PER GAS",
    "signedAt": "SIGNED",
    "why": "REASON",
}
_CHAIN_COLUMNS = {
    "chainID": "CHAIN",
    "init": "INIT",
    "pending": "PENDING",
    "in_block": "IN BLOCK",
    "confirmed": "CONFIRMED",
    "failed": "FAILED",
    "gasUsed": "GAS USED",
    "feesWei": "FEES IN WEI",
    "spentTodayWei": "SPENT TODAY IN WEI",
}
_chain_argument = click.argument("chain", metavar="CHAIN")


@click.group(cls=CommandGroup)
def tx() -> None:
    """Show and control transactions that projects send."""


@tx.command("list")
@click.argument("project", metavar="[PROJECT]", required=False)
@click.option(
    "--state",
    type=click.Choice(_STATES, case_sensitive=False),
    multiple=True,
    help="List only transactions in this state; repeatable.",
)
@click.option("--chain", "chain_id", type=int, help="List only transactions of this chain id.")
@click.option("--stuck", is_flag=True, help="List only refused ones that hold up others.")
@click.option("--event", "event_id", help="List only transactions of this event.")
@click.option("--hash", "hash_", help="List only the transaction that has or had this hash.")
@click.option("--from", "sender", metavar="ADDRESS", help="List only those that it signs.")
@click.option("--before", metavar="TRANSACTION", help="List only transactions before this one.")
@limit_option()
def tx_list(
    project: str | None,
    state: tuple[str, ...],
    stuck: bool,
    chain_id: int | None,
    event_id: str | None,
    hash_: str | None,
    sender: str | None,
    before: str | None,
    limit: int,
) -> None:
    """List transactions, the newest first. Administrators may leave out the project."""
    query = {
        "limit": limit,
        "state": list(state),
        "stuck": "true" if stuck else None,
        "chainID": chain_id,
        "eventID": event_id,
        "hash": hash_,
        "from": sender,
        "before": before,
    }
    if project:
        client, name = open_project(project)
        answer = client.call("GET", ["tx", name], query=query)
    else:
        answer = current().client().call("GET", ["tx"], query=query)
    if current().json:
        show_json(answer)
        return
    show_rows(items(answer), _COLUMNS, "no transactions")
    if answer.get("next"):
        note(f"there are more transactions: --before {answer['next']}")


@tx.command("show")
@project_argument
@click.argument("transaction")
def tx_show(project: str, transaction: str) -> None:
    """Show a transaction and its signatures."""
    client, project = open_project(project)
    _show(client.call("GET", ["tx", project, transaction]))


@tx.command("state")
@project_argument
def tx_state(project: str) -> None:
    """Show transactions and spending of a project, by chain."""
    client, project = open_project(project)
    answer = client.call("GET", ["tx", project, "state"])
    if current().json:
        show_json(answer)
        return
    show_rows(items(answer), _CHAIN_COLUMNS, "no transactions")
    if answer["weiPerDay"] is not None:
        note(f"the project may spend {answer['weiPerDay']} wei per day")


@tx.command("limit")
@project_argument
@click.argument("wei", type=click.IntRange(0))
def tx_limit(project: str, wei: int) -> None:
    """Limit the daily spending of a project, in wei, fees included."""
    client, name = open_project(project)
    path = ["project_config", "x", name, "PROJECT_SPENDING"]
    client.call("POST", path, body={"weiPerDay": str(wei)})
    show_done(f"project {name} may spend {wei} wei per day", project=project, weiPerDay=str(wei))


@tx.command("unavailable")
@project_argument
@click.argument("answer", type=click.Choice(["code", "retry"]))
def tx_unavailable(project: str, answer: str) -> None:
    """Set what events of a project are answered while a chain is unavailable.

    With `code` the handler gets -1 and its own code is the answer. With `retry` the answer is 503,
    nothing of the event stays, and the sender tries again.
    """
    client, name = open_project(project)
    path = ["project_config", "x", name, "PROJECT_CHAINS"]
    client.call("POST", path, body={"unavailable": answer.upper()})
    done = f"project {name} answers with {'503' if answer == 'retry' else 'the handler code'}"
    show_done(f"{done} while a chain is unavailable", project=project, unavailable=answer.upper())


@tx.command("retry")
@project_argument
@click.argument("transaction")
def tx_retry(project: str, transaction: str) -> None:
    """Sign a transaction again with higher fees, for administrators."""
    client, project = open_project(project)
    _show(client.call("POST", ["tx", project, transaction, "retry"]))


@tx.command("cancel")
@project_argument
@click.argument("transaction")
@yes_option
def tx_cancel(project: str, transaction: str, yes: bool) -> None:
    """Replace a transaction by one that does nothing.

    This is for administrators. Only one of the two gets into a block. If that is the original,
    it was too late to cancel.
    """
    confirm(f"Cancel transaction {transaction}?", yes)
    client, project = open_project(project)
    _show(client.call("POST", ["tx", project, transaction, "cancel"]))


@tx.command("park")
@_chain_argument
def tx_park(chain: str) -> None:
    """Stop sending transactions to a chain, for administrators.

    Committed transactions wait.
    """
    current().client().call("POST", ["chain", chain, "park"])
    show_done(f"sending to chain {chain} is stopped", chain=chain, parked=True)


@tx.command("resume")
@_chain_argument
def tx_resume(chain: str) -> None:
    """Resume sending to a parked chain, for administrators."""
    current().client().call("POST", ["chain", chain, "resume"])
    show_done(f"sending to chain {chain} is resumed", chain=chain, parked=False)


@tx.command("release")
@_chain_argument
@project_argument
@yes_option
def tx_release(chain: str, project: str, yes: bool) -> None:
    """Give up the nonces of a project whose store is lost.

    This is for administrators. Other projects that sign with the same key wait for these
    nonces. If the store comes back, the transactions that the project had committed are still
    sent.
    """
    confirm(f"Give up all nonces of project {project} on chain {chain}?", yes)
    client, name = open_project(project)
    client.call("POST", ["chain", chain, "release", name])
    show_done(f"nonces of project {name} on chain {chain} given up", chain=chain, project=project)


def _show(row: dict[str, Any]) -> None:
    if current().json:
        show_json(row)
        return
    show_fields(row, {key: name for key, name in _FIELDS.items() if row.get(key) not in (None, "")})
    show_rows(row["attempts"], _ATTEMPT_COLUMNS, "")
