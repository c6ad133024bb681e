"""The command `event trace`, and the host calls of traced events."""

from __future__ import annotations

from typing import Any

import click

from fieldbrook.cli.console import current
from fieldbrook.cli.options import SharedCommand, project_argument
from fieldbrook.cli.output import show_done, show_json, show_rows
from fieldbrook.cli.remote.lookup import open_project
from fieldbrook.cli.text import counted, printable

_SHOWN = 100  # characters of a value
_COLUMNS = {"function": "CALL", "subject": "OF", "result": "RESULT", "at": "AT", "us": "TOOK"}


@click.command("trace", cls=SharedCommand)
@project_argument
@click.option(
    "--events", type=click.IntRange(1, 1_000), help="Trace so many events [default: 100]."
)
@click.option("--minutes", type=float, help="End after this time, at most 60 [default: 10].")
@click.option("--type", "event_type", default="", help="Trace only events of this type.")
@click.option("--publisher", default="", help="Trace only events of this publisher, by key or id.")
@click.option(
    "--source",
    type=click.Choice(("http", "mqtt", "cron", "api", "chain")),
    help="Trace only events from this source.",
)
@click.option("--show", is_flag=True, help="Start nothing, show the present trace.")
@click.option("--stop", is_flag=True, help="End the present trace.")
def trace(
    project: str,
    events: int | None,
    minutes: float | None,
    event_type: str,
    publisher: str,
    source: str | None,
    show: bool,
    stop: bool,
) -> None:
    """Record the host calls of the handlers of the next events.

    For each of these events the node keeps the keys that its handlers read and wrote, their SQL
    statements, messages, calls, variables and log lines, in order. `event show PROJECT EVENT`
    prints them. A trace replaces the one before. It ends after its events, after its time, and when
    the project stops, moves to another worker or starts again.
    """
    client, project = open_project(project)
    path = ["event_log", project, "trace"]
    if stop:
        client.call("DELETE", path)
        show_done(f"trace of project {project} ended", stopped=project)
        return
    if show:
        state = client.call("GET", path)
    else:
        selected = {"type": event_type, "publisher": publisher, "source": source}
        body: dict[str, Any] = {"filter": {key: text for key, text in selected.items() if text}}
        body |= {} if events is None else {"events": events}
        body |= {} if minutes is None else {"minutes": minutes}
        state = client.call("POST", path, body=body)
    if current().json:
        show_json(state)
        return
    if state["remaining"]:
        click.echo(f"{counted(state['remaining'], 'event')} will be traced, until {state['until']}")
    else:
        click.echo("no event will be traced")
    click.echo(f"{counted(state['kept'], 'trace')} kept")


def show_calls(event: Any) -> None:
    """Print the runs and host calls of an event that has a trace."""
    traced = event.get("trace")
    if not traced:
        return
    for run in traced["runs"]:
        memory = f", {run['memoryBytes'] >> 10} KiB of memory" if "memoryBytes" in run else ""
        click.echo(f"strategy {run['strategyID']} ran for {run['us']} us{memory}")
    show_rows([_row(each) for each in traced["calls"]], _COLUMNS, "no host calls")
    if traced["omitted"]:
        click.echo(f"{counted(traced['omitted'], 'more call')} not kept")


def _row(call: Any) -> dict[str, Any]:
    if call.get("error"):
        result = f"refused: {call['error']}"
    else:
        result = _text(call["result"]) if "result" in call else "nothing"
        if call["function"] == "ws_set_db":
            before = _text(call["before"]) if "before" in call else "nothing"
            result = f"{before} -> {result}"
    return {
        **call,
        "subject": _text(call["subject"]),
        "result": printable(result),
        "at": f"{call['atUs']} us",
        "us": f"{call['us']} us" if call["us"] else "",
    }


def _text(value: Any) -> str:
    text = str(value["value"])
    if value["encoding"] == "base64":
        text = f"base64:{text}"
    return printable(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
