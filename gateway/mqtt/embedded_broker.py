"""The embedded MQTT broker: nats-server with its MQTT listener, as a process of its own.

`main` writes the configuration, creates the credentials at the first start and then becomes
the server. Devices speak MQTT 3.1.1 without credentials. They may only publish to ingress topics,
and subscribe below `ack/` and to the topics of a setting. The node speaks the server's own
protocol on a loopback port that the server chooses, with credentials that only the node's system
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
import signal
import socket
import sys
import time
from pathlib import Path
from typing import NoReturn

from fieldbrook.core.errors import NodeError, SettingsError, StoreError, UnavailableError
from fieldbrook.core.settings import Settings
from fieldbrook.gateway.mqtt.broker_logins import DENIED, PUBLISH, Logins
from fieldbrook.gateway.mqtt.old_broker import server, store
from fieldbrook.gateway.mqtt.old_broker.nats_wire import Endpoint
from fieldbrook.security import node_secrets
from fieldbrook.security.tls import Identity, identity_of
from fieldbrook.system.process import die_with_parent, module_command

# No firmware is configured with these names: a client with another name is a device.
NODE_USER, _DEVICE_USER = "fieldbrook-node", "fieldbrook-device"
NODE_CONSUMER = "fieldbrook"  # the node's durable consumer of the stream of messages
CANNOT_START = os.EX_CONFIG  # 78; a Go program that panics or is out of memory ends with 2

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


def command(settings: Settings) -> list[str]:
    """The command line of the embedded broker's process for these settings.

    The process ends with `CANNOT_START` and a line on stderr when its address is taken.
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
    return module_command("fieldbrook.gateway.mqtt.embedded_broker", *arguments)


def main(arguments: list[str]) -> NoReturn:
    """Replace this process by the broker.

    Args:
        arguments: `<data folder> <address> <port> <message limit in bytes> <topics> <sync>
            <logins> <memory in bytes>`; for TLS also `<certificate> <key>`, and `<authorities>`
            when clients need a certificate of one of these.
    """
    die_with_parent()  # stays in force after the exec
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
        # Nobody drops messages under a running server. The program inherits the lock.
        os.set_inheritable(store.lock(data, _BIND_WAIT_S), True)
    except NodeError as error:
        sys.stderr.write(f"the broker cannot start: {error}\n")
        sys.exit(CANNOT_START)
    os.environ.setdefault("GOMAXPROCS", str(cores()))
    limit_memory(int(arguments[7]))
    os.execv(program, [str(program), "-c", str(config)])  # noqa: S606


def limit_memory(limit_bytes: int) -> None:
    """Limit the memory of the program that this process becomes.

    A device that connects may send a user name and a password of 64 KiB each, and the server makes
    several copies of both before it refuses them. From three quarters of the limit on, the server
    collects garbage more often. At the limit it ends, and `fieldbrook up` starts it again.
    Acknowledged messages are on the disk by then.
    """
    os.environ.setdefault("GOMEMLIMIT", str(limit_bytes * 3 // 4))
    resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))


def cores() -> int:
    """The number of cores that the server may use at once: half of the machine's.

    The other half is for the gateways and the projects. On a machine with two cores, a message
    costs the server a fifth less when it uses one core, because its threads do not hand each
    message over to one another.
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
    """Write the server's configuration, and create the credentials when there are none.

    Args:
        data: the node's data folder.
        mqtt_host: the address of the MQTT listener for devices.
        mqtt_port: the port of the MQTT listener for devices.
        message_limit_bytes: the largest payload in bytes. The server accepts 64 KiB more, and at
            least 1 MiB, and disconnects a device that sends a larger message.
        device_topics: MQTT topic filters, separated by commas, to which devices may subscribe
            besides their acknowledgements. Ingress topics stay closed to them.
        logins: whether devices may send any user name and password.
        sync_interval: the interval between fsyncs of stored messages. A power cut loses at most
            the messages that were PUBACKed within one interval. `always` syncs each message and
            loses none; docs/decisions/0003-embedded-broker.md has the cost.
        identity: with it, devices are served over TLS only; with its authorities, only devices
            that show a certificate are served.

    Raises:
        StoreError: a file cannot be written, or the credentials cannot be read.
    """
    folder = data.absolute() / "broker"
    quoted = {
        "folder": str(folder),
        "pid_file": str(folder / "nats.pid"),
        "log_file": str(folder / "nats.log"),
        "store": str(folder / "store"),
        "sync": sync_interval,
        "host": mqtt_host,
        "session_limit": _SESSION_LIMIT,
        "user": NODE_USER,
        "password": password(data),
        "device": _DEVICE_USER,
        "publish": PUBLISH,
        "subscribe": subjects_of(device_topics),
        "denied": DENIED,
        "device_password": secrets.token_urlsafe(24),
    }
    text = _CONFIG.format(
        # A JSON string is a valid quoted string of the configuration language.
        **{name: json.dumps(value) for name, value in quoted.items()},
        store_limit=_STORE_LIMIT_BYTES,
        max_payload=max(1 << 20, message_limit_bytes + (64 << 10)),
        port=mqtt_port,
        tls="" if identity is None else _tls(data, identity),
        logins=_logins(data) if logins else "",
    )
    return _write_file(folder, text)


def _write_file(folder: Path, text: str) -> Path:
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


def _tls(data: Path, identity: Identity) -> str:
    return _TLS.format(
        certificate=json.dumps(str(identity.certificate)),
        key=json.dumps(str(identity.key)),
        verify=_verify(data, identity.client_ca),
    )


def _logins(data: Path) -> str:
    issuer, user, device = map(json.dumps, (Logins.of(data, ()).issuer, NODE_USER, _DEVICE_USER))
    return _LOGINS.format(issuer=issuer, user=user, device=device)


def own_identity(settings: Settings) -> Identity | None:
    """The embedded broker's certificate and the authorities of devices; None without TLS."""
    identity = identity_of(settings) if settings.mqtt_tls else None
    ca = settings.mqtt_client_ca
    return identity and identity._replace(client_ca=ca and ca.absolute())


def own_client(data: Path) -> Path:
    """The file with the client certificate and key of the node's own MQTT client."""
    return data.absolute() / "secrets" / "mqtt-client.pem"


def _verify(data: Path, client_ca: Path | None) -> str:
    """Configure the server to ask devices for a certificate.

    The node's own client gets a new certificate at each start, from an authority that issues no
    other.
    """
    if client_ca is None:
        return ""
    from fieldbrook.security.certificates import Authority  # rarely needed and slow to load

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
    """Find the server program: the one of the wheel, else one on the PATH.

    Raises:
        SettingsError: there is neither.
    """
    found = server.find_program()
    if found is None:
        raise SettingsError(reason="no nats-server for the embedded broker")
    return found


def read_endpoint(data: Path) -> Endpoint:
    """Read the address of the running broker and the node's credentials.

    Raises:
        UnavailableError: the broker is not listening yet.
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
    """Kill the running server; its supervisor starts it again.

    Returns:
        False when the server does not run, or belongs to another user.
    """
    folder = data.absolute() / "broker"
    try:
        pid = int((folder / "nats.pid").read_text())
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if os.fsencode(folder / "nats.conf") not in words:
            return False  # another process has this pid by now
        # SIGKILL: the server has nothing to finish, and might hang while it tries.
        os.kill(pid, signal.SIGKILL)
    except (OSError, ValueError):
        return False
    return True


def wait_ready(data: Path, limit_s: float = 5.0) -> Endpoint:
    """Wait until the broker accepts connections.

    Raises:
        UnavailableError: it does not within `limit_s`.
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
    """The NATS subjects to which devices may subscribe.

    These are the acknowledgements and `device_topics`, MQTT topic filters separated by commas.
    """
    return [each for topic in ("ack/#", *_split(device_topics)) for each in _subjects(topic)]


def _subjects(topic_filter: str) -> list[str]:
    """Translate an MQTT topic filter into NATS subjects.

    A filter that ends with `#` includes the level above, which the server checks as a subject of
    its own.
    """
    subject = topic_filter.replace("/", ".").replace("+", "*").replace("#", ">")
    return [subject, subject.removesuffix(".>")] if subject.endswith(".>") else [subject]


def password(data: Path) -> str:
    """The node's password at the embedded broker, created at first use."""
    return node_secrets.load_or_create_key(data / "secrets", "broker.key").hex()


def _check_address(host: str, port: int) -> None:
    """Check that the broker can listen on its address, because the server would only log a failure.

    The check is retried for 1 second, because the previous broker may be about to end.

    Raises:
        SettingsError: the broker cannot listen on the address.
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
