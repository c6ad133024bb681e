"""Commands for administrators: `mqtt retained`, `mqtt publish`."""

from __future__ import annotations

import base64
from typing import Any

import click

from fieldbrook.cli.console import current
from fieldbrook.cli.errors import WrongUsageError
from fieldbrook.cli.input import read_value
from fieldbrook.cli.options import SharedCommand, confirm, limit_option, yes_option
from fieldbrook.cli.output import show_done, show_fields, show_rows
from fieldbrook.cli.remote.mqtt.clients import listed
from fieldbrook.cli.text import counted

_LIST = {"topic": "TOPIC", "qos": "QOS", "size": "SIZE", "expiresAt": "EXPIRES"}
_MESSAGE = {
    "topic": "topic",
    "qos": "qos",
    "size": "size",
    "expiresAt": "expires",
    "encoding": "encoding",
    "payload": "payload",
}


@click.command("retained", cls=SharedCommand)
@click.argument("topic", required=False)
@click.option("--remove", is_flag=True, help="Remove the message of TOPIC.")
@limit_option(default=100, largest=100_000)
@yes_option
def retained(topic: str | None, remove: bool, limit: int, yes: bool) -> None:
    """List the retained messages, or show or remove that of TOPIC, for administrators."""
    if topic is None:
        if remove:
            raise WrongUsageError("--remove needs a TOPIC")
        show_rows(listed(["mqtt", "retained"], limit), _LIST, "no message is retained")
        return
    path, query = ["mqtt", "retained", "message"], {"topic": topic}
    if remove:
        confirm(f"remove the retained message of {topic}?", yes)
        current().client().call("DELETE", path, query=query)
        show_done(f"removed the message of {topic}", topic=topic, change="removed")
        return
    found: dict[str, Any] = current().client().call("GET", path, query=query)
    show_fields(found, _MESSAGE)


@click.command("publish", cls=SharedCommand)
@click.argument("topic")
@click.argument("payload", metavar="TEXT|@FILE")
@click.option("--qos", type=click.IntRange(0, 2), default=0, show_default=True, help="The QoS.")
@click.option("--retain", is_flag=True, help="Retain the message; an empty one removes it.")
def publish(topic: str, payload: str, qos: int, retain: bool) -> None:
    """Publish a message as the node, for administrators; `mqtt pub` publishes as a client.

    @FILE stands for the content of a file, @- for standard input. Topics of events are refused:
    `fieldbrook send` sends an event, and so does `mqtt pub`.
    """
    body = {
        "topic": topic,
        "payload": base64.b64encode(read_value(payload)).decode(),
        "encoding": "base64",
        "qos": qos,
        "retain": retain,
    }
    answer: dict[str, Any] = current().client().call("POST", ["mqtt", "publish"], body=body)
    receivers = counted(answer["receivers"], "receiver")
    show_done(f"published {counted(answer['size'], 'byte')} to {topic}: {receivers}", **answer)
