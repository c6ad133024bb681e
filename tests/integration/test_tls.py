"""TLS on every port, with common clients."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.core.clock import now_ms, rfc3339
from fieldbrook.core.errors import SettingsError
from fieldbrook.core.settings import Settings
from fieldbrook.gateway.listening.tls import HANDSHAKES_LIMIT
from fieldbrook.security.certificates import Authority
from fieldbrook.security.tls import check
from tests.support import applets
from tests.support.nodes import (
    PREFIX,
    RunningNode,
    StartNode,
    message,
    parts,
    strategies,
    until,
)
from tests.support.tls import RawTls, TlsNode, make_files, shown_at
from tests.support.tools import LIMIT_S, free_port, require_tool
from tests.unit.gateway.management.sign_in.test_wallet import SAMPLE, signed


class World:
    """A node with TLS, a project, its applets and a publisher."""

    def __init__(self, folder: Path) -> None:
        self.node = TlsNode(folder, "--wallet-whitelist", "*")
        self.files = self.node.files
        self.node.log_in()
        self.node.create_project("room")
        self.applet_id: str = self.node.deploy(
            "room", applets.TALLY, "tally", strategies=strategies(START="start")
        )["appletID"]
        self.node.deploy("room", applets.SENDER, "sender", strategies=strategies(OUT="publish"))
        self.publisher = self.node.add_publisher("room", "device-1")

    def event(self, event_type: str = "START", payload: bytes = b"hi") -> str:
        return json.dumps(message(self.publisher, payload, event_type))

    def count(self) -> int:
        return self.node.count("room", self.applet_id)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("tls"))
    yield made
    made.node.stop()


def run(*command: str, given: str = "", **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, input=given, capture_output=True, text=True, timeout=LIMIT_S, check=False, **more
    )


@pytest.mark.thorough
def test_curl_sends_an_event_over_tls_and_refuses_a_node_nobody_vouches_for(world: World) -> None:
    curl = require_tool("curl")
    url = f"https://localhost:{world.node.http_port}{PREFIX}/event/room"
    before = world.count()
    sent = run(curl, "-sS", "--cacert", str(world.files.ca), "-d", world.event(), url)
    assert json.loads(sent.stdout)["results"][0]["code"] == 0, sent
    assert world.count() == before + 1
    assert run(curl, "-sS", "-d", world.event(), url).returncode == 60  # curl does not trust it


def test_one_tls_connection_carries_events_then_management_then_events(world: World) -> None:
    connection = world.node.connection(world.node.http_port)
    route = f"{PREFIX}/event/room"
    login = {"Authorization": f"Bearer {world.node.token}"}
    for method, path, body, headers, status in (
        ("POST", route, world.event(), {}, 201),
        ("POST", route, world.event(), {}, 201),
        ("GET", f"{PREFIX}/project", None, login, 200),
        ("POST", route, world.event(), {"Expect": ""}, 201),
        ("GET", "/version", None, {}, 200),
    ):
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == status, path
        assert connection.sock is not None, "the node closed the connection"
    connection.close()


def test_large_uploads_and_answers_pass_through_tls_whole(world: World) -> None:
    module = applets.TALLY + b"\n;; " + os.urandom(1 << 20).hex().encode()
    answer = world.node.upload("room", module, "large")
    assert answer.status == 201, answer
    path = f"/resource/data/{answer.json['resourceID']}"
    assert world.node.call("GET", path).body == module


def test_events_pipelined_over_tls_are_answered_in_order(world: World) -> None:
    body = world.event().encode()
    head = f"POST {PREFIX}/event/room HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    before = world.count()
    connection = world.node.connection(world.node.http_port)
    connection.connect()
    assert connection.sock is not None
    connection.sock.sendall((head.encode() + body) * 100)
    received = b""
    while received.count(b"HTTP/1.1 201 ") < 100:
        part = connection.sock.recv(1 << 16)
        assert part, received[-200:]
        received += part
    connection.close()
    assert world.count() == before + 100


def test_plain_http_on_a_tls_port_is_told_to_use_https(world: World) -> None:
    curl = require_tool("curl")
    url = f"http://127.0.0.1:{world.node.http_port}/version"
    answer = run(curl, "-sS", "-i", url)
    assert answer.stdout.startswith("HTTP/1.1 400 "), answer
    assert "https://" in answer.stdout


def test_browsers_are_told_to_stay_with_tls_and_to_run_embed_and_keep_nothing(
    world: World,
) -> None:
    for path in ("/project", "/srv-applet-mgr", "/srv-applet-mgr/docs", "/version", "/nowhere"):
        headers = world.node.call("GET", path, headers={"Host": "node.example.com:8888"}).headers
        assert headers["Strict-Transport-Security"] == "max-age=31536000", path
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert "default-src 'none'" in headers["Content-Security-Policy"]


def test_a_wallet_signs_in_over_tls_for_hosts_of_the_certificate_only(world: World) -> None:
    for host, status in ((f"127.0.0.1:{world.node.http_port}", 200), ("evil.example", 401)):
        nonce = world.node.call("GET", "/login/wallet/nonce").json["nonce"]
        text = SAMPLE.partition("\nIssued At")[0].replace("abcdEFGH1234", nonce)
        text = text.replace("localhost:3000 wants", f"{host} wants")
        text += f"\nIssued At: {rfc3339(now_ms())}"
        body = {"message": text, "signature": signed(text)}
        answer = world.node.call("PUT", "/login/wallet", body, headers={"Host": host})
        assert answer.status == status, answer
    assert "not in the node's certificate" in answer.json["desc"]


@pytest.mark.parametrize("host", ["localhost:8888", "127.0.0.1:8888", "[::1]:8888", "node.local"])
def test_a_browser_is_not_told_to_use_tls_for_every_port_of_the_own_machine(
    world: World, host: str
) -> None:
    for path in ("/project", "/version"):
        answer = world.node.call("GET", path, headers={"Host": host})
        assert "Strict-Transport-Security" not in answer.headers


def test_garbage_instead_of_a_handshake_harms_nobody(world: World) -> None:
    pids = world.node.processes()
    for sent in (b"\x16\x03\x01\x02\x00" + os.urandom(512), b"\x16" * 70_000, b"\x00", b""):
        with socket.create_connection(("127.0.0.1", world.node.http_port), LIMIT_S) as connection:
            connection.sendall(sent)
            with contextlib.suppress(OSError):  # the node may have ended the connection by now
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(4096):
                    pass
    assert world.node.call("GET", "/version").status == 200
    assert world.node.processes() == pids


def test_versions_and_suites_of_yesterday_are_refused(world: World) -> None:
    old = ssl.create_default_context(cafile=world.files.ca)
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.deprecated_call():
        old.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.deprecated_call():
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    weak = ssl.create_default_context(cafile=world.files.ca)
    weak.set_ciphers("AES128-SHA")  # no forward secrecy
    weak.maximum_version = ssl.TLSVersion.TLSv1_2
    for context in (old, weak):
        with (
            socket.create_connection(("127.0.0.1", world.node.http_port), LIMIT_S) as plain,
            pytest.raises(OSError, match="(?i)alert|protocol|eof|reset"),
        ):
            context.wrap_socket(plain, server_hostname="localhost")


def test_mosquitto_pub_sends_an_event_over_tls_and_not_without(world: World) -> None:
    publish = require_tool("mosquitto_pub")
    broker = ("-h", "localhost", "-p", str(world.node.mqtt_port), "--cafile", str(world.files.ca))
    before = world.count()
    sent = run(publish, *broker, "-q", "1", "-t", "room", "-s", given=world.event())
    assert sent.returncode == 0, sent
    until(lambda: world.count() == before + 1, "the event is handled")
    plain = run(publish, *broker[:4], "-q", "1", "-t", "room", "-m", "x")
    assert plain.returncode != 0


def test_a_renewed_certificate_is_shown_without_a_restart(world: World) -> None:
    pids, old = world.node.processes(), world.node.serves()
    world.files.certificate.write_bytes(b"half a certi")  # invalid: the old one is kept
    until(lambda: "the previous one stays in use" in world.node.log, "it is told")
    assert world.node.serves() == old
    before = world.node.log.count("the previous one stays in use")
    world.files.certificate.unlink()
    os.mkfifo(world.files.certificate)  # opening it would block until a writer opens it
    until(
        lambda: (
            world.node.log.count("the previous one stays in use") > before + 1
            and "not a regular file" in world.node.log
        ),
        "it is told for HTTP and MQTT",
    )
    assert world.node.serves() == old
    world.files.certificate.unlink()
    world.files.renew()
    new = until(lambda: world.node.serves() != old and world.node.serves(), "the new is shown")
    at_broker = until(
        lambda: shown_at(world.node.mqtt_port, world.files.ca) == new, "the broker shows it"
    )
    assert at_broker
    assert world.node.processes() == pids


def test_the_command_line_talks_https_to_a_node_whose_authority_it_is_given(world: World) -> None:
    server = f"https://localhost:{world.node.http_port}"
    environment = {**os.environ, "HOME": str(world.files.ca.parent)}
    environment.pop("XDG_CONFIG_HOME", None)
    program = (sys.executable, "-m", "fieldbrook", "--server", server)
    trusted = ("--ca", str(world.files.ca))
    unknown = run(*program, "status", env=environment)
    assert unknown.returncode == 3
    assert "--ca" in unknown.stderr
    assert run(*program, *trusted, "status", env=environment).returncode == 0
    login = ("login", "--username", "admin", "--password-stdin")
    done = run(*program, *trusted, *login, given="correct horse\n", env=environment)
    assert done.returncode == 0, done
    # The login stores the authority.
    listed = run(sys.executable, "-m", "fieldbrook", "project", "list", env=environment)
    assert "room" in listed.stdout, listed


def test_clients_without_a_certificate_of_the_authority_are_kept_out(
    start_node: StartNode, tmp_path: Path
) -> None:
    files = make_files(tmp_path / "tls")
    others = files.authority.issue(["device-1"], client=True)
    device = tmp_path / "device.pem"
    device.write_bytes(others.certificate + others.key)
    curl = require_tool("curl")
    node = start_node(*files.flags, "--tls-client-ca", str(files.ca), logged_in=False)
    url = f"https://localhost:{node.http_port}/version"
    let_in = run(curl, "-sS", "--cacert", str(files.ca), "--cert", str(device), url)
    assert let_in.stdout.startswith("fieldbrook@"), let_in
    assert run(curl, "-sS", "--cacert", str(files.ca), url).returncode != 0


@pytest.mark.thorough
def test_devices_without_a_certificate_of_the_authority_are_kept_out_of_the_broker(
    tmp_path: Path,
) -> None:
    authority = Authority("devices")
    ca = tmp_path / "devices.pem"
    ca.write_bytes(authority.certificate)
    publish = require_tool("mosquitto_pub")
    node = TlsNode(tmp_path, "--mqtt-client-ca", str(ca))
    try:
        node.log_in()
        node.create_project("room")
        applet_id = node.deploy(
            "room", applets.TALLY, "tally", strategies=strategies(START="start")
        )["appletID"]
        node.deploy("room", applets.SENDER, "sender", strategies=strategies(OUT="publish"))
        publisher = node.add_publisher("room", "device-1")
        event = json.dumps(message(publisher, b"hi", "START"))
        words = ("-h", "localhost", "-p", str(node.mqtt_port), "--cafile", str(node.files.ca))
        sent = (publish, *words, "-q", "1", "-t", "room", "-m", event)
        device = _client(tmp_path / "device", authority)
        assert run(*sent, *device).returncode == 0
        until(lambda: node.count("room", applet_id) == 1, "the device's event")
        assert run(*sent, *_client(tmp_path / "stranger", Authority())).returncode != 0
        assert run(*sent).returncode != 0
        out = message(publisher, b"x", "OUT")
        out["header"]["event_id"] = "out"
        assert node.send("room", out).status == 201

        def delivered() -> bool:
            effects = node.call("GET", "/event_log/room?eventID=out").json["effects"]
            return [effect["state"] for effect in effects] == ["delivered"]

        until(delivered, "the node's own messages are let in")
        assert node.count("room", applet_id) == 1
    finally:
        node.stop()


def _client(stem: Path, authority: Authority) -> tuple[str, ...]:
    """Return the flags with which mosquitto's tools use a certificate of an authority."""
    issued = authority.issue([stem.name], client=True)
    certificate, key = stem.with_suffix(".pem"), stem.with_suffix(".key")
    certificate.write_bytes(issued.certificate)
    key.write_bytes(issued.key)
    return "--cert", str(certificate), "--key", str(key)


def _refusal(**given: Any) -> str:
    with pytest.raises(SettingsError) as raised:
        check(Settings(**given))
    return str(raised.value)


def test_files_that_cannot_work_are_named_before_anything_starts(tmp_path: Path) -> None:
    files = make_files(tmp_path / "good")
    expired, other = make_files(tmp_path / "old", days=-1), make_files(tmp_path / "other")
    empty, missing = tmp_path / "empty.pem", tmp_path / "missing.pem"
    empty.touch(0o600)
    both: dict[str, Any] = {"tls_certificate": files.certificate, "tls_key": files.key}
    assert check(Settings(**both)) is not None
    assert f"{missing}: No such file" in _refusal(**{**both, "tls_certificate": missing})
    assert f"key {missing}: No such file" in _refusal(**{**both, "tls_key": missing})
    assert f"certificate {empty}: contains no" in _refusal(**{**both, "tls_certificate": empty})
    assert f"key {empty}: contains no private key" in _refusal(**{**both, "tls_key": empty})
    assert f"key {other.key} does not belong to" in _refusal(**{**both, "tls_key": other.key})
    old = {"tls_certificate": expired.certificate, "tls_key": expired.key}
    assert f"{expired.certificate}: expired on" in _refusal(**old)
    assert "tls_key is not" in _refusal(tls_certificate=files.certificate)
    assert f"authorities {empty}" in _refusal(**both, tls_client_ca=empty)
    assert f"authorities {empty}" in _refusal(**both, mqtt_client_ca=empty)
    assert "does not use TLS" in _refusal(mqtt_client_ca=files.ca)
    assert "does not use TLS" in _refusal(**both, mqtt_client_ca=files.ca, mqtt_tls=False)
    assert f"authorities {empty}" in _refusal(mqtt_broker_tls=True, mqtt_broker_ca=empty)


def test_an_encrypted_key_is_refused_and_nobody_is_asked_for_its_password(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization as s

    files = make_files(tmp_path / "tls")
    key: Any = s.load_pem_private_key(files.key.read_bytes(), None)
    sealed = s.BestAvailableEncryption(b"word")
    files.key.write_bytes(key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, sealed))
    reason = _refusal(tls_certificate=files.certificate, tls_key=files.key)
    assert f"key {files.key} is encrypted" in reason


def test_a_node_whose_certificate_does_not_work_ends_and_says_why(tmp_path: Path) -> None:
    flags = ("--tls-certificate", str(tmp_path / "no.pem"), "--tls-key", str(tmp_path / "no.key"))
    node = RunningNode(tmp_path / "n", *flags, ready=False)
    assert node.process.wait(LIMIT_S) == 2
    assert f"certificate {tmp_path / 'no.pem'}: No such file" in node.log


def test_the_trial_certificate_of_the_command_line_works(tmp_path: Path) -> None:
    program = (sys.executable, "-m", "fieldbrook", "cert", "--folder", str(tmp_path / "tls"))
    made = run(*program, "localhost", "127.0.0.1")
    assert made.returncode == 0, made
    certificate, key = tmp_path / "tls" / "certificate.pem", tmp_path / "tls" / "key.pem"
    assert key.stat().st_mode & 0o077 == 0
    assert check(Settings(tls_certificate=certificate, tls_key=key)) is not None
    again = run(*program, "localhost")
    assert again.returncode == 1
    assert "exists" in again.stderr


@pytest.mark.thorough
def test_events_and_answers_pass_an_external_broker_over_tls_with_a_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, folder, port = make_files(tmp_path / "tls"), tmp_path / "broker", free_port()
    folder.mkdir()
    passwords, config = folder / "passwords", folder / "mosquitto.conf"
    made = run(require_tool("mosquitto_passwd"), "-c", "-b", str(passwords), "node", "broker word")
    assert made.returncode == 0, made
    config.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous false\npassword_file {passwords}\n"
        f"certfile {files.certificate}\nkeyfile {files.key}\ntls_version tlsv1.2\n"
        f"set_tcp_nodelay true\nlog_type error\nuser root\n"
    )
    monkeypatch.setenv("FIELDBROOK_MQTT_PASSWORD", "broker word")
    at = ("--mqtt-broker", f"localhost:{port}")
    flags = (*at, "--mqtt-username", "node", "--mqtt-broker-tls", "true")
    stranger = make_files(tmp_path / "stranger")
    with subprocess.Popen([require_tool("mosquitto"), "-c", str(config)]) as mosquitto:
        try:
            node = RunningNode(tmp_path / "n", *flags, "--mqtt-broker-ca", str(files.ca))
            try:
                node.log_in()
                node.create_project("room")
                applet = node.deploy(
                    "room", applets.TALLY, "tally", strategies=strategies(START="start")
                )
                publisher = node.add_publisher("room", "device-1")
                sent = json.dumps(message(publisher, b"hi", "START"))
                login = ("-u", "node", "-P", "broker word", "--cafile", str(files.ca))
                to = ("-h", "localhost", "-p", str(port), "-q", "1", "-t", "room", "-s")
                until(lambda: "connected to the broker" in node.log, "the connection")
                program = require_tool("mosquitto_pub")

                def counted() -> int:
                    assert run(program, *login, *to, given=sent).returncode == 0
                    return node.count("room", applet["appletID"])

                until(counted, "an event is handled")
            finally:
                node.stop()
            assert node.process.returncode == 0
            node = RunningNode(tmp_path / "m", *flags, "--mqtt-broker-ca", str(stranger.ca))
            try:
                until(lambda: "CERTIFICATE_VERIFY_FAILED" in node.log, "it is not trusted")
                assert "broker word" not in node.log
            finally:
                node.stop()
        finally:
            mosquitto.terminate()


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) << 10


@pytest.mark.parametrize("port", ["http", "mqtt"])
def test_a_silent_connection_over_tls_takes_little_memory(world: World, port: str) -> None:
    node, count = world.node, 300
    number = node.http_port if port == "http" else node.mqtt_port
    pid = parts(node)[f"fb-{port}:0"]
    context = ssl.create_default_context(cafile=world.files.ca)
    with ExitStack() as stack:

        def open_all() -> int:
            for _ in range(count):
                plain = stack.enter_context(socket.create_connection(("127.0.0.1", number), 30))
                wrapped = context.wrap_socket(plain, server_hostname="localhost")
                stack.enter_context(wrapped)
            return resident_bytes(pid)

        first = open_all()  # the free memory of the allocator is used up
        assert open_all() - first < count * (128 << 10)


def test_connections_that_send_nothing_make_room_for_others(world: World) -> None:
    before = evicted(world)
    with ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", world.node.http_port)))
            for _ in range(HANDSHAKES_LIMIT + 100)
        ]
        silent[0].settimeout(LIMIT_S)
        assert silent[0].recv(1) == b"", "the oldest one is closed"
        assert evicted(world) > before


def evicted(world: World) -> float:
    figures = world.node.call("GET", "/metrics").body.decode().splitlines()
    (found,) = (each for each in figures if each.startswith("fieldbrook_http_connections_evicted"))
    return float(found.split()[1])


@pytest.mark.parametrize("port", ["http", "mqtt"])
def test_a_client_that_only_changes_its_keys_is_disconnected(
    world: World, tmp_path: Path, port: str
) -> None:
    number = world.node.http_port if port == "http" else world.node.mqtt_port
    client = RawTls(number, world.files, tmp_path / "keys")
    with client.socket:
        client.socket.sendall(client.key_updates(100))
        assert client.is_disconnected()


def test_a_client_that_changes_its_keys_now_and_then_is_served(
    world: World, tmp_path: Path
) -> None:
    client = RawTls(world.node.http_port, world.files, tmp_path / "keys")
    with client.socket:
        client.socket.sendall(client.key_updates(10))
        assert not client.is_disconnected()


def test_an_event_in_records_of_one_byte_is_handled(world: World, tmp_path: Path) -> None:
    before = world.count()
    body = world.event(payload=b"x" * 3_000)
    head = f"POST {PREFIX}/event/room HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    client = RawTls(world.node.http_port, world.files, tmp_path / "keys")
    with client.socket:
        client.socket.sendall(client.records((head + body).encode(), 1))
        until(lambda: world.count() == before + 1, "the event is handled")
