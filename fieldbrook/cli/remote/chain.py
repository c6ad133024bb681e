"""Commands on chains, their monitors and contract ABIs: `chain`, `monitor`, `abi`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from fieldbrook.cli.console import (
    current,
    items,
    shared_options,
    show_done,
    show_fields,
    show_json,
    show_rows,
)
from fieldbrook.cli.remote.objects import ALL, project_name

_KINDS = {"log": "contract_log", "tx": "chain_tx", "height": "chain_height"}
_IDS = {"log": "contractlogID", "tx": "chaintxID", "height": "chainHeightID"}
_MONITORS = {
    "kind": "KIND",
    "chainID": "CHAIN",
    "what": "WHAT",
    "eventType": "EVENT TYPE",
    "state": "STATE",
    "blockCurrent": "NEXT BLOCK",
    "lag": "LAG",
    "events": "EVENTS",
    "removedEvents": "REMOVED",
    "lastError": "ERROR",
    "id": "ID",
}
_ABIS = {"name": "NAME", "sizeBytes": "BYTES", "events": "EVENTS", "createdAt": "CREATED"}
_CHAINS = {
    "chainID": "ID",
    "name": "NAME",
    "state": "STATE",
    "head": "HEAD",
    "headAt": "SEEN",
    "confirmations": "CONFIRMATIONS",
    "reorganisations": "REORGANISATIONS",
    "greatestLag": "LAG",
    "failures": "FAILURES",
}
_ENDPOINTS = {"endpoint": "ENDPOINT", "head": "HEAD", "failures": "FAILURES", "state": "STATE"}


@click.group()
def chain() -> None:
    """Chains that the settings of the node define."""


@chain.command("list")
@shared_options
def chain_list() -> None:
    """List the chains, each with its state and the newest block that the node has seen."""
    answer = current().client().call("GET", ["chain"])
    if current().json:
        show_json(answer)
        return
    rows = [{**row, "greatestLag": row["monitors"]["greatestLag"]} for row in items(answer)]
    show_rows(rows, _CHAINS, "no chains: they are named by the setting `chains`")


@chain.command("show")
@click.argument("chain_", metavar="CHAIN")
@shared_options
def chain_show(chain_: str) -> None:
    """Show a chain, given by id or name, and its monitors; administrators see its endpoints."""
    row = current().client().call("GET", ["chain", chain_])
    if current().json:
        show_json(row)
        return
    fields = {key: key for key in row if key not in ("monitors", "endpoints")}
    show_fields({**row, **row["monitors"]}, {**fields, **{key: key for key in row["monitors"]}})
    if "endpoints" in row:
        show_rows(row["endpoints"], _ENDPOINTS, "")


@click.group()
def monitor() -> None:
    """Monitors: turn activity on a chain into events of a project."""


def _adds(command: Any) -> Any:
    """Add the arguments and options that all `monitor add-...` commands share."""
    for option in (
        shared_options,
        click.option("--paused", is_flag=True, help="Begin when it is started."),
        click.option("--type", "event_type", default="DEFAULT", show_default=True),
        click.option("--chain", "chain_id", type=int, required=True, help="The chain's id."),
        click.argument("project_", metavar="PROJECT"),
    ):
        command = option(command)
    return command


@monitor.command("add-log")
@_adds
@click.argument("address")
@click.option("--from", "first", type=click.IntRange(min=1), required=True, help="First block.")
@click.option("--to", "last", type=click.IntRange(min=0), default=0, help="Last block; 0: none.")
@click.option("--topic", "topics", multiple=True, metavar="HASH", help='Up to four; "" for any.')
@click.option("--event", "event_", default="", help='Name, or e.g. "Ping(uint256 indexed n)".')
@click.option("--abi-name", default="", help="An ABI that the project keeps: `abi add`.")
@click.option(
    "--abi",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="JSON ABI of the contract, or what a compiler wrote with `abi` in it.",
)
def monitor_add_log(
    project_: str,
    address: str,
    chain_id: int,
    event_type: str,
    paused: bool,
    first: int,
    last: int,
    topics: tuple[str, ...],
    event_: str,
    abi: Path | None,
    abi_name: str,
) -> None:
    """Send an event for each log of a contract, from a block on."""
    if len(topics) > 4:
        raise click.UsageError("a log has no more than four topics")
    body: dict[str, Any] = {
        "contractAddress": address,
        "blockStart": first,
        "blockEnd": last,
        **{f"topic{n}": topic for n, topic in enumerate(topics)},
        **({"event": event_} if event_ else {}),
        **({"abi": _events(_read_abi(abi))} if abi else {}),
        **({"abiName": abi_name} if abi_name else {}),
    }
    _add("log", project_, chain_id, event_type, paused, body)


@monitor.command("add-tx")
@_adds
@click.argument("tx_hash", metavar="HASH")
def monitor_add_tx(
    project_: str, tx_hash: str, chain_id: int, event_type: str, paused: bool
) -> None:
    """Send an event when a transaction is in a block."""
    _add("tx", project_, chain_id, event_type, paused, {"txAddress": tx_hash})


@monitor.command("add-height")
@_adds
@click.argument("height", type=click.IntRange(min=1))
def monitor_add_height(
    project_: str, height: int, chain_id: int, event_type: str, paused: bool
) -> None:
    """Send an event when the chain has reached a height."""
    _add("height", project_, chain_id, event_type, paused, {"height": height})


@monitor.command("list")
@click.argument("project_", metavar="PROJECT")
@shared_options
def monitor_list(project_: str) -> None:
    """List the monitors of a project, each with its next block and its last error."""
    client = current().client()
    name = project_name(client, project_)
    rows = []
    for kind, word in _KINDS.items():
        answer = client.call("GET", ["monitor", "x", name, word, "datalist"], query=ALL)
        for row in items(answer):
            what = row.get("contractAddress") or row.get("txAddress") or str(row.get("height"))
            rows.append({**row, "kind": kind, "id": row[_IDS[kind]], "what": what})
    show_rows(rows, _MONITORS, "no monitors yet: `fieldbrook monitor add-log PROJECT ADDRESS`")


@monitor.command("pause")
@click.argument("project_", metavar="PROJECT")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@shared_options
def monitor_pause(project_: str, ids: tuple[str, ...]) -> None:
    """Pause monitors."""
    _control(project_, ids, "PAUSE")
    show_done(f"{len(ids)} paused", paused=list(ids))


@monitor.command("start")
@click.argument("project_", metavar="PROJECT")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@shared_options
def monitor_start(project_: str, ids: tuple[str, ...]) -> None:
    """Start paused monitors; they continue where they stopped."""
    _control(project_, ids, "START")
    show_done(f"{len(ids)} started", started=list(ids))


@monitor.command("delete")
@click.argument("project_", metavar="PROJECT")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@shared_options
def monitor_delete(project_: str, ids: tuple[str, ...]) -> None:
    """Delete monitors."""
    client = current().client()
    name = project_name(client, project_)
    kinds = _kinds_of(name)
    for monitor_id in ids:
        word = _KINDS[kinds.get(monitor_id, "log")]
        client.call("DELETE", ["monitor", "x", name, word, monitor_id])
    show_done(f"{len(ids)} deleted", deleted=list(ids))


@click.group()
def abi() -> None:
    """Contract ABIs that a project keeps for its monitors."""


@abi.command("add")
@click.argument("project_", metavar="PROJECT")
@click.argument("name")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@shared_options
def abi_add(project_: str, name: str, file: Path) -> None:
    """Store a JSON ABI under a name. FILE may also be compiler output with an `abi` field."""
    client = current().client()
    body = {"name": name, "abi": _read_abi(file)}
    made = client.call("POST", ["contract_abi", project_name(client, project_)], body=body)
    show_fields({**made, "events": "  ".join(made["events"])}, {"name": "ABI", "events": "events"})


@abi.command("list")
@click.argument("project_", metavar="PROJECT")
@shared_options
def abi_list(project_: str) -> None:
    """List the ABIs that a project keeps, and the events of each."""
    client = current().client()
    path = ["contract_abi", project_name(client, project_)]
    answer = client.call("GET", path, query=ALL)
    if current().json:
        show_json(answer["data"])
        return
    rows = [{**row, "events": "  ".join(row["events"])} for row in items(answer)]
    show_rows(rows, _ABIS, "no ABIs yet: `fieldbrook abi add PROJECT NAME FILE`")


@abi.command("show")
@click.argument("project_", metavar="PROJECT")
@click.argument("name")
@shared_options
def abi_show(project_: str, name: str) -> None:
    """Print an ABI as it was uploaded."""
    client = current().client()
    show_json(client.call("GET", ["contract_abi", project_name(client, project_), name])["abi"])


@abi.command("delete")
@click.argument("project_", metavar="PROJECT")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@shared_options
def abi_delete(project_: str, names: tuple[str, ...]) -> None:
    """Delete ABIs; monitors that were made with them continue."""
    client = current().client()
    project = project_name(client, project_)
    for name in names:
        client.call("DELETE", ["contract_abi", project, name])
    show_done(f"{len(names)} deleted", deleted=list(names))


def _add(
    kind: str, project_: str, chain_id: int, event_type: str, paused: bool, body: dict[str, Any]
) -> None:
    client = current().client()
    path = ["monitor", "x", project_name(client, project_), _KINDS[kind]]
    body |= {"chainID": chain_id, "eventType": event_type, "paused": paused}
    made = client.call("POST", path, body=body)
    fields = {_IDS[kind]: "monitor", "eventType": "event type", "event": "event", "state": "state"}
    show_fields(made, {key: word for key, word in fields.items() if key in made})


def _control(project_: str, ids: tuple[str, ...], command: str) -> None:
    client = current().client()
    name = project_name(client, project_)
    kinds = _kinds_of(name)
    by_kind: dict[str, list[str]] = {}
    for monitor_id in ids:
        by_kind.setdefault(_KINDS[kinds.get(monitor_id, "log")], []).append(monitor_id)
    for word, own in by_kind.items():
        client.call("PUT", ["monitor", "x", name, word, command], body={"ids": own})


def _kinds_of(name: str) -> dict[str, str]:
    """The kind of each monitor of a project, by id."""
    client = current().client()
    return {
        row[_IDS[kind]]: kind
        for kind, word in _KINDS.items()
        for row in items(client.call("GET", ["monitor", "x", name, word, "datalist"], query=ALL))
    }


def _read_abi(path: Path) -> list[Any]:
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise click.UsageError(f"{path}: {error}") from None
    abi = value.get("abi") if isinstance(value, dict) else value
    if not isinstance(abi, list):
        raise click.UsageError(f"{path}: neither a JSON ABI nor something with `abi` in it")
    return abi


def _events(abi: list[Any]) -> list[Any]:
    """Return the entries of an ABI that a monitor needs: its events."""
    return [entry for entry in abi if isinstance(entry, dict) and entry.get("type") == "event"]
