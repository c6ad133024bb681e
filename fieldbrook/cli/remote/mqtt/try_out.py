"""Commands that connect as an MQTT client: `mqtt pub`, `mqtt sub`."""

from __future__ import annotations

import base64
import math
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click

from fieldbrook.cli.console import current
from fieldbrook.cli.errors import WrongUsageError
from fieldbrook.cli.input import read_value
from fieldbrook.cli.options import SharedCommand
from fieldbrook.cli.output import note_unless_json, show_done
from fieldbrook.cli.remote.mqtt.connection import V3, V5, Connection, Target, properties_of
from fieldbrook.cli.text import as_json, printable

if TYPE_CHECKING:
    from paho.mqtt.client import MQTTMessage

F = TypeVar("F", bound=Callable[..., Any])

PASSWORD_VARIABLE = "FIELDBROOK_MQTT_PASSWORD"  # noqa: S105 - the name of a variable
_PORT, _TLS_PORT = 1883, 8883
_qos_option = click.option(
    "--qos", type=click.IntRange(0, 2), default=1, show_default=True, help="The QoS."
)


def _target_options(command: F) -> F:
    """Add the options for the server and the login."""
    for option in reversed(
        (
            click.option(
                "--host",
                envvar="FIELDBROOK_MQTT_HOST",
                help="The MQTT host [env: FIELDBROOK_MQTT_HOST; default: that of --server].",
            ),
            click.option(
                "--port",
                type=click.IntRange(1, 65_535),
                envvar="FIELDBROOK_MQTT_PORT",
                help="The MQTT port [env: FIELDBROOK_MQTT_PORT; default: 1883, 8883 with --tls, "
                "that of --server with --websocket].",
            ),
            click.option("--tls", is_flag=True, help="Use TLS; --ca names the authorities."),
            click.option("--websocket", is_flag=True, help="Use a WebSocket of the HTTP port."),
            click.option("--cert", "certificate", metavar="FILE", help="A client certificate."),
            click.option("--key", metavar="FILE", help="The key of the client certificate."),
            click.option("--client-id", default="", help="The client id [default: a new one]."),
            click.option("--username", help="The user name: a publisher, or PROJECT/PUBLISHER."),
            click.option(
                "--password",
                envvar=PASSWORD_VARIABLE,
                help=f"The password: the publisher's token [env: {PASSWORD_VARIABLE}].",
            ),
            click.option(
                "--mqtt",
                "version",
                type=click.Choice([V5, V3]),
                default=V5,
                show_default=True,
                help="The version of MQTT.",
            ),
            click.option(
                "--timeout",
                "timeout_s",
                type=click.FloatRange(0.1, 3_600),
                default=10.0,
                show_default=True,
                help="How many seconds to wait for each answer.",
            ),
        )
    ):
        command = option(command)
    return command


@click.command("pub", cls=SharedCommand)
@click.argument("topic")
@click.argument("payload", metavar="TEXT|@FILE")
@_qos_option
@click.option("--retain", is_flag=True, help="Retain the message; an empty one removes it.")
@click.option("--expiry", type=click.IntRange(0), metavar="SECONDS", help="When it expires.")
@click.option("--content-type", help="The content type.")
@click.option("--response-topic", help="The topic for a response.")
@click.option("--correlation", metavar="TEXT|@FILE", help="Correlation data of a request.")
@click.option(
    "--property",
    "properties",
    metavar="NAME=VALUE",
    multiple=True,
    help="A user property; may be repeated.",
)
@_target_options
def pub(
    topic: str,
    payload: str,
    qos: int,
    retain: bool,
    expiry: int | None,
    content_type: str | None,
    response_topic: str | None,
    correlation: str | None,
    properties: tuple[str, ...],
    **options: Any,
) -> None:
    """Publish a message as an MQTT client, and print how the node acknowledges it.

    @FILE stands for the content of a file, @- for standard input. The properties need MQTT 5, and
    so do reasons of refused messages.

    The exit code is 1 when the message or the client is refused, 4 when it is not authorized.
    """
    given = {
        "MessageExpiryInterval": expiry,
        "ContentType": content_type,
        "ResponseTopic": response_topic,
        "CorrelationData": None if correlation is None else read_value(correlation),
        "UserProperty": [_pair(each) for each in properties] or None,
    }
    message = {name: value for name, value in given.items() if value is not None}
    content = read_value(payload)
    with Connection(_target(**options)) as connection:
        reason = connection.publish(topic, content, qos, retain=retain, properties=message)
    if reason is None:
        show_done("sent; the node does not acknowledge QoS 0", topic=topic, qos=qos)
    else:
        show_done(
            f"acknowledged: {reason}",
            topic=topic,
            qos=qos,
            reasonCode=reason.code,
            reason=reason.name,
            reasonString=reason.text,
        )


@click.command("sub", cls=SharedCommand)
@click.argument("filters", metavar="FILTER...", nargs=-1, required=True)
@_qos_option
@click.option("--count", "-n", type=click.IntRange(1), help="End after so many messages.")
@click.option("--for", "seconds", type=click.FloatRange(0), help="End after so many seconds.")
@click.option("--no-local", is_flag=True, help="Leave out messages of this client.")
@click.option("--retain-as-published", is_flag=True, help="Keep the retain flag of messages.")
@click.option(
    "--retain-handling",
    type=click.IntRange(0, 2),
    default=0,
    show_default=True,
    help="Retained messages: 0 send them, 1 for a new subscription, 2 never.",
)
@click.option(
    "--session-expiry",
    "session_expiry_s",
    type=click.IntRange(0, 0xFFFFFFFF),
    default=0,
    metavar="SECONDS",
    help="Continue the session of --client-id, and keep it for this time [default: a new session].",
)
@_target_options
def sub(
    filters: tuple[str, ...],
    qos: int,
    count: int | None,
    seconds: float | None,
    no_local: bool,
    retain_as_published: bool,
    retain_handling: int,
    session_expiry_s: int,
    **options: Any,
) -> None:
    """Subscribe as an MQTT client, and print each message: its topic and payload.

    Control characters are printed as escapes. With --json each message is an object on a line of
    its own, with its properties.

    The exit code is 1 when a subscription is refused, 4 when it is not authorized.
    """
    if session_expiry_s and not options["client_id"]:
        raise WrongUsageError("--session-expiry needs --client-id")
    if options["version"] == V3 and (no_local or retain_as_published or retain_handling):
        raise WrongUsageError("MQTT 3.1.1 has no options of subscriptions but --qos")
    target = _target(**options, session_expiry_s=session_expiry_s)
    until = math.inf if seconds is None else time.monotonic() + seconds
    left = math.inf if count is None else count
    with Connection(target) as connection:
        connection.subscribe(
            filters,
            qos,
            no_local=no_local,
            retain_as_published=retain_as_published,
            retain_handling=retain_handling,
        )
        note_unless_json(f"subscribed to {', '.join(filters)} at {target}")
        for message in connection.messages(until):
            _show(message)
            left -= 1
            if not left:
                break


def _target(
    host: str | None, port: int | None, *, tls: bool, websocket: bool, **others: Any
) -> Target:
    server = urlsplit(current().server)
    if port is None:
        port = _TLS_PORT if tls else _PORT
        if websocket:
            port = server.port or (443 if server.scheme == "https" else 80)
    return Target(
        host=host or str(server.hostname),
        port=port,
        tls=tls or (websocket and host is None and server.scheme == "https"),
        websocket=websocket,
        authorities=current().authorities,
        **others,
    )


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign:
        raise WrongUsageError(f"--property {text}: expected NAME=VALUE")
    return name, value


def _show(message: MQTTMessage) -> None:
    try:
        text, encoding = message.payload.decode(), "text"
    except UnicodeDecodeError:
        text, encoding = base64.b64encode(message.payload).decode(), "base64"
    if current().json:
        shown = {
            "topic": message.topic,
            "payload": text,
            "encoding": encoding,
            "qos": message.qos,
            "retain": bool(message.retain),
            "properties": properties_of(message.properties),
        }
        click.echo(as_json(shown))
    else:
        click.echo(f"{printable(message.topic)}  {printable(text)}")
    sys.stdout.flush()
