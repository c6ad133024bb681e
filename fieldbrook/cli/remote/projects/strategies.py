"""Commands on strategies: `strategy`."""

from __future__ import annotations

import click

from fieldbrook.cli.client import Client, items
from fieldbrook.cli.errors import WrongUsageError
from fieldbrook.cli.options import CommandGroup, event_type_option, ids_argument, project_argument
from fieldbrook.cli.output import show_done, show_rows, show_warnings
from fieldbrook.cli.remote.lookup import ALL, Object, find_applet, not_found, open_project
from fieldbrook.cli.text import counted

_COLUMNS = {
    "eventType": "EVENT TYPE",
    "appletName": "APPLET",
    "handler": "HANDLER",
    "dead": "DEAD",
    "strategyID": "ID",
}


@click.group(cls=CommandGroup)
def strategy() -> None:
    """Manage strategies: which handler runs for which event type."""


@strategy.command("add")
@project_argument
@click.option("--applet", "applet_name", required=True, help="The applet of the handler.")
@event_type_option
@click.option("--handler", default="start", show_default=True, help="The handler that runs.")
def strategy_add(project: str, applet_name: str, event_type: str, handler: str) -> None:
    """Run a handler for a type of event.

    Events of a type without a strategy of its own go to the strategies of type DEFAULT.
    """
    client, project = open_project(project)
    applet_id = str(find_applet(client, project, applet_name)["appletID"])
    rule = {"appletID": applet_id, "eventType": event_type, "handler": handler}
    client.call("POST", ["strategy", project], body={"strategies": [rule]})
    made = [
        row
        for row in _strategies(client, project)
        if (str(row["appletID"]), row["eventType"], row["handler"]) == tuple(rule.values())
    ]
    show_rows(made, _COLUMNS, "the strategy was deleted meanwhile")
    show_warnings(*made)


@strategy.command("list")
@project_argument
def strategy_list(project: str) -> None:
    """List the strategies of a project."""
    rows = _strategies(*open_project(project))
    show_rows(rows, _COLUMNS, "no strategies yet: `fieldbrook strategy add PROJECT --applet NAME`")
    show_warnings(*rows)


@strategy.command("update")
@project_argument
@click.argument("strategy_id", metavar="ID")
@click.option("--applet", "applet_name", help="The applet of the handler [default: unchanged].")
@click.option("--type", "event_type", help="The type of the events [default: unchanged].")
@click.option("--handler", help="The handler that runs [default: unchanged].")
def strategy_update(
    project: str,
    strategy_id: str,
    applet_name: str | None,
    event_type: str | None,
    handler: str | None,
) -> None:
    """Change a strategy."""
    if applet_name is event_type is handler is None:
        raise WrongUsageError("nothing to change", "give --applet, --type or --handler")
    client, project = open_project(project)
    known = {str(row["strategyID"]): row for row in _strategies(client, project)}
    if strategy_id not in known:
        raise not_found("strategy", strategy_id, list(known))
    before = known[strategy_id]
    applet = find_applet(client, project, applet_name) if applet_name is not None else before
    body = {
        "appletID": str(applet["appletID"]),
        "eventType": event_type or before["eventType"],
        "handler": handler or before["handler"],
    }
    client.call("PUT", ["strategy", project, strategy_id], body=body)
    found = client.call("GET", ["strategy", project, strategy_id])
    warnings = {key: found[key] for key in ("warnings",) if key in found}
    show_done(f"strategy {strategy_id} updated", strategyID=strategy_id, **body, **warnings)
    show_warnings(found)


@strategy.command("delete")
@project_argument
@ids_argument
def strategy_delete(project: str, ids: tuple[str, ...]) -> None:
    """Delete strategies."""
    client, project = open_project(project)
    known = [str(row["strategyID"]) for row in _strategies(client, project)]
    for strategy_id in ids:
        if strategy_id not in known:
            raise not_found("strategy", strategy_id, known)
    client.call("DELETE", ["strategy", project], query={"strategyID": list(ids)})
    show_done(f"{counted(len(ids), 'strategy')} deleted", deleted=list(ids))


def _strategies(client: Client, project: str) -> list[Object]:
    """Return all strategies of a project, without the route's grouping by applet."""
    groups = items(client.call("GET", ["strategy", project], query=ALL))
    return [row for group in groups for row in group.get("strategies") or []]
