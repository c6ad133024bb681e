"""Command that runs a handler on a node without effect: `applet dry-run`."""

from __future__ import annotations

import base64
from typing import Any

import click

from fieldbrook.cli.console import current
from fieldbrook.cli.errors import EXIT_REFUSED
from fieldbrook.cli.input import read_value
from fieldbrook.cli.options import event_type_option, project_argument
from fieldbrook.cli.output import show_json
from fieldbrook.cli.remote.lookup import find_applet, open_project
from fieldbrook.cli.remote.projects.applets import applet
from fieldbrook.cli.text import printable

_SHOWN = 200  # characters of a value


@applet.command("dry-run")
@project_argument
@click.argument("name")
@click.option("--handler", default="start", show_default=True, help="The handler that runs.")
@click.option(
    "--payload",
    default="",
    metavar="TEXT|@FILE",
    help="The event's payload; @FILE is the content of a file, @- standard input [default: none].",
)
@event_type_option
@click.option("--version", type=int, help="A stored version [default: the present one].")
@click.option("--without-state", is_flag=True, help="Start without keys and rows.")
@click.pass_context
def applet_dry_run(
    context: click.Context,
    project: str,
    name: str,
    handler: str,
    payload: str,
    event_type: str,
    version: int | None,
    without_state: bool,
) -> None:
    """Run a handler on the node over one event, without any effect.

    The handler sees the project's keys, variables and SQL tables. Nothing that it writes is kept,
    and nothing that it sends leaves the node. The exit code is 1 when the handler failed.
    """
    client, project = open_project(project)
    body = {
        "handler": handler,
        "eventType": event_type,
        "payload": base64.b64encode(read_value(payload)).decode(),
        "withState": not without_state,
        **({} if version is None else {"version": version}),
    }
    applet_id = find_applet(client, project, name)["appletID"]
    report = client.call("POST", ["applet", "data", applet_id, "run"], body=body)
    if current().json:
        show_json(report)
    else:
        for line in _lines(report):
            click.echo(printable(line))
    if report["error"] or report["code"] < 0:
        context.exit(EXIT_REFUSED)


def _lines(report: Any) -> list[str]:
    """Return the report for users, in the form of `applet run`."""
    lines = [f"trap     {report['error']}" if report["error"] else f"code     {report['code']}"]
    lines += [f"log      {each['level']}: {each['text']}" for each in report["logs"]]
    for each in report["writes"]:
        before = "nothing" if each["before"] is None else _cut(each["before"])
        lines.append(f"write    {_cut(each['key'])} = {_cut(each['after'])} (before: {before})")
    for each in report["statements"]:
        outcome = f"error: {each['error']}" if each["error"] else _cut(each["result"]) or "no rows"
        lines.append(f"sql      {_cut(each['request'])}: {outcome}")
    for each in report["effects"]:
        lines.append(f"effect   {each['kind']} {each['target']}: {_cut(each['body'])}")
    lines += [f"note     {text}" for text in report["notes"]]
    memory_kib = report["memoryBytes"] >> 10
    return [*lines, f"time     {report['elapsedUs'] / 1_000:.2f} ms, {memory_kib} KiB"]


def _cut(value: Any) -> str:
    text = str(value["value"])
    if value["encoding"] == "base64":
        text = f"base64:{text}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
