"""Commands on monitors of chains: `monitor`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from fieldbrook.cli.client import Client, items
from fieldbrook.cli.errors import WrongUsageError
from fieldbrook.cli.options import CommandGroup, event_type_option, ids_argument, project_argument
from fieldbrook.cli.output import show_done, show_fields, show_rows
from fieldbrook.cli.remote.chain.abis import read_abi
from fieldbrook.cli.remote.lookup import ALL, open_project
from fieldbrook.cli.text import counted

# The kinds of monitors, with the words for them in routes and in answers.
_KINDS = {"log": "contract_log", "tx": "chain_tx", "height": "chain_height"}
_IDS = {"log": "contractlogID", "tx": "chaintxID", "height": "chainHeightID"}
_COLUMNS = {
    "kind": "KIND",
    "chainID": "CHAIN",
    "what": "SUBJECT",
    "eventType": "EVENT TYPE",
    "state": "STATE",
    "blockCurrent": "NEXT BLOCK",
    "lag": "LAG",
    "events": "EVENTS",
    "removedEvents": "REMOVED",
    "lastError": "ERROR",
    "id": "ID",
}


@click.group(cls=CommandGroup)
def monitor() -> None:
    """Manage monitors, which turn chain activity into events."""


def _shared_by_add(command: Any) -> Any:
    """Add the arguments and options that all `monitor add-...` commands share."""
    for option in (
        click.option("--paused", is_flag=True, help="Wait for `monitor start`."),
        event_type_option,
        click.option("--chain", "chain_id", type=int, required=True, help="The chain's id."),
        project_argument,
    ):
        command = option(command)
    return command


@monitor.command("add-log")
@_shared_by_add
@click.argument("address")
@click.option("--from", "first", type=click.IntRange(min=1), required=True, help="The first block.")
@click.option(
    "--to", "last", type=click.IntRange(min=0), default=0, help="The last block; 0: none."
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="HASH",
    help='A topic of the log, up to four; "" for any.',
)
@click.option(
    "--event",
    "event_",
    default="",
    help='The contract event, by name or as "Ping(uint256 indexed n)".',
)
@click.option("--abi-name", default="", help="An ABI that `abi add` has stored.")
@click.option(
    "--abi",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="JSON ABI of the contract, or compiler output with an `abi` field.",
)
def monitor_add_log(
    project: str,
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
        raise WrongUsageError("a log has at most four topics")
    body: dict[str, Any] = {
        "contractAddress": address,
        "blockStart": first,
        "blockEnd": last,
        **{f"topic{n}": topic for n, topic in enumerate(topics)},
        **({"event": event_} if event_ else {}),
        **({"abi": _event_entries(read_abi(abi))} if abi else {}),
        **({"abiName": abi_name} if abi_name else {}),
    }
    _add("log", project, chain_id, event_type, paused, body)


@monitor.command("add-tx")
@_shared_by_add
@click.argument("tx_hash", metavar="HASH")
def monitor_add_tx(
    project: str, tx_hash: str, chain_id: int, event_type: str, paused: bool
) -> None:
    """Send an event when a block includes a transaction."""
    _add("tx", project, chain_id, event_type, paused, {"txAddress": tx_hash})


@monitor.command("add-height")
@_shared_by_add
@click.argument("height", type=click.IntRange(min=1))
def monitor_add_height(
    project: str, height: int, chain_id: int, event_type: str, paused: bool
) -> None:
    """Send an event when the chain reaches a height."""
    _add("height", project, chain_id, event_type, paused, {"height": height})


@monitor.command("list")
@project_argument
def monitor_list(project: str) -> None:
    """List the monitors of a project and their progress."""
    client, project = open_project(project)
    rows = []
    for row in _monitors(client, project):
        what = row.get("contractAddress") or row.get("txAddress") or str(row.get("height"))
        rows.append({**row, "what": what})
    show_rows(rows, _COLUMNS, "no monitors yet: `fieldbrook monitor add-log PROJECT ADDRESS`")


@monitor.command("pause")
@project_argument
@ids_argument
def monitor_pause(project: str, ids: tuple[str, ...]) -> None:
    """Pause monitors."""
    _control(project, ids, "PAUSE")
    show_done(f"{counted(len(ids), 'monitor')} paused", paused=list(ids))


@monitor.command("start")
@project_argument
@ids_argument
def monitor_start(project: str, ids: tuple[str, ...]) -> None:
    """Start paused monitors; they continue where they stopped."""
    _control(project, ids, "START")
    show_done(f"{counted(len(ids), 'monitor')} started", started=list(ids))


@monitor.command("rewind")
@project_argument
@click.argument("monitor_id", metavar="ID")
@click.argument("block", type=click.IntRange(min=0))
def monitor_rewind(project: str, monitor_id: str, block: int) -> None:
    """Begin a monitor of contract logs again at a block.

    A monitor with the same filter takes its place, with an id of its own. Logs that were sent
    before are sent again, as new events.
    """
    client, project = open_project(project)
    path = ["monitor", "x", project, _KINDS["log"], monitor_id, "rewind"]
    made = client.call("POST", path, body={"blockStart": block})
    show_fields(made, {_IDS["log"]: "monitor", "blockStart": "first block", "state": "state"})


@monitor.command("delete")
@project_argument
@ids_argument
def monitor_delete(project: str, ids: tuple[str, ...]) -> None:
    """Delete monitors."""
    client, project = open_project(project)
    kinds = _kinds(client, project)
    for monitor_id in ids:
        route = _KINDS[kinds.get(monitor_id, "log")]
        client.call("DELETE", ["monitor", "x", project, route, monitor_id])
    show_done(f"{counted(len(ids), 'monitor')} deleted", deleted=list(ids))


def _add(
    kind: str, project: str, chain_id: int, event_type: str, paused: bool, body: dict[str, Any]
) -> None:
    client, project = open_project(project)
    body |= {"chainID": chain_id, "eventType": event_type, "paused": paused}
    made = client.call("POST", ["monitor", "x", project, _KINDS[kind]], body=body)
    fields = {_IDS[kind]: "monitor", "eventType": "event type", "event": "event", "state": "state"}
    show_fields(made, {key: word for key, word in fields.items() if key in made})


def _control(project: str, ids: tuple[str, ...], command: str) -> None:
    client, project = open_project(project)
    kinds = _kinds(client, project)
    by_route: dict[str, list[str]] = {}
    for monitor_id in ids:
        by_route.setdefault(_KINDS[kinds.get(monitor_id, "log")], []).append(monitor_id)
    for route, route_ids in by_route.items():
        client.call("PUT", ["monitor", "x", project, route, command], body={"ids": route_ids})


def _monitors(client: Client, project: str) -> Iterator[dict[str, Any]]:
    """Yield the monitors of a project, each with its kind and id under the same keys."""
    for kind, route in _KINDS.items():
        answer = client.call("GET", ["monitor", "x", project, route, "datalist"], query=ALL)
        yield from ({**row, "kind": kind, "id": row[_IDS[kind]]} for row in items(answer))


def _kinds(client: Client, project: str) -> dict[str, str]:
    return {row["id"]: row["kind"] for row in _monitors(client, project)}


def _event_entries(abi: list[Any]) -> list[Any]:
    """Return the entries of an ABI that a monitor needs, which are its events."""
    return [entry for entry in abi if isinstance(entry, dict) and entry.get("type") == "event"]
