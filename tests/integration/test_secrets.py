"""Secrets in a node that fails in many ways: no log, answer, process list or file shows them."""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.applets import TALLY
from tests.support.brokers import Device
from tests.support.nodes import PROGRAM, RunningNode, alive, message, parts, strategies, until

# Many processes are started, which takes a minute with a fifth of a core.
pytestmark = pytest.mark.timeout(240)

PASSWORD, OTHER_PASSWORD = "planted password 1f0c", "planted password 2a9e"
OPERATOR_KEY = "4c0883a69102937d6231471b5dbb6204fe5129617082792ae468d01a3f362318"
BROKER_PASSWORD, CHAIN_KEY = "planted-broker-3b7d", "planted-chain-4e21"
DATABASE_PASSWORD = "planted-database-5c90"
CONFIG = f"""
mqtt_username = "node"
mqtt_password = "{BROKER_PASSWORD}"
postgres_dsn = "postgresql://node:{DATABASE_PASSWORD}@127.0.0.1:9/fieldbrook"
[[chains]]
id = 4690
name = "iotex-testnet"
endpoint = "http://127.0.0.1:9/{CHAIN_KEY}"
"""


class _Node(RunningNode):
    program = PROGRAM  # a process with arguments, an environment and limits of its own


class Planted:
    """A node with its most verbose log, and with every kind of secret."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        config = folder / "node.toml"
        config.touch(0o600)
        config.write_text(CONFIG)
        flags = ("--config", str(config), "--log-level", "DEBUG", "--deadline-ms", "300")
        self.node = node = _Node(folder / "n", *flags)
        self.secrets = {
            "password": PASSWORD,
            "other password": OTHER_PASSWORD,
            "operator key": OPERATOR_KEY,
            "setup code": node.setup_code(),
            "external broker's password": BROKER_PASSWORD,
            "chain's key": CHAIN_KEY,
            "database's password": DATABASE_PASSWORD,
            "token key": (node.data / "secrets" / "token.key").read_bytes().hex(),
        }
        self.answers: list[bytes] = []
        node.log_in(password=PASSWORD)
        node.log_in(password=PASSWORD)  # which asks the node, now that it has an administrator
        self.secrets["login"] = node.token
        node.create_project("room")
        self.applet_id = node.deploy("room", TALLY, strategies=strategies("start", "fail", "spin"))[
            "appletID"
        ]
        self.publisher = node.add_publisher("room", "device-1")
        self.secrets["publisher's token"] = self.publisher["token"]
        named = {"name": "op", "privateKey": "0x" + OPERATOR_KEY}
        assert node.call("POST", "/operator", named).status == 201
        body = {"name": "ci", "expirationDays": 1, "privileges": []}
        made = node.call("POST", "/account_access_key", body)
        self.secrets["access key"] = made.json["accessKey"]
        other = {"username": "eve", "password": OTHER_PASSWORD, "role": "DEVELOPER"}
        assert node.call("POST", "/register/admin", other).status == 201
        login = {"username": "eve", "password": OTHER_PASSWORD}
        self.eve = node.call("PUT", "/login", login).json["token"]
        self.secrets["other login"] = self.eve

    def ask(self, method: str, path: str, body: object = None, **more: Any) -> None:
        """Send a request; its answer, if there is one, must contain no secret."""
        with suppress(OSError):
            answer = self.node.call(method, path, body, **more)
            self.answers.append(repr(answer.headers).encode() + answer.body)

    def break_everything(self) -> None:
        """Cause refusals, faults of handlers, deaths of processes, and a restart."""
        node, token = self.node, self.publisher["token"]
        self._be_refused()
        for kind in ("FAIL", "SPIN", "NONE"):
            self.ask("POST", "/event/room", message(self.publisher, b"x", kind), token="")
        with Device(node.mqtt_port, "leaky") as device:
            for topic in ("room", f"room/push/{token}/FAIL", f"room/push/{token}x/START"):
                device.publish(topic, json.dumps(message(self.publisher, b"x", "FAIL")).encode())
            device.publish("room", token.encode())
        for part in ("fb-registry", "project", "fb-mqtt:0"):
            with suppress(ProcessLookupError):
                os.kill(parts(node)[part], signal.SIGKILL)
            self._be_refused()
            self.ask("POST", "/event/room", message(self.publisher, b"x", "START"), token="")
            until(partial(self._has, part), f"{part} is back")
        node.stop()
        node.start()
        self._be_refused()

    def _has(self, part: str) -> bool:
        return part in parts(self.node)

    def _be_refused(self) -> None:
        token = self.publisher["token"]
        self.ask("PUT", "/login", {"username": "admin", "password": OTHER_PASSWORD})
        self.ask("PUT", "/login", {"username": PASSWORD, "password": 1})
        self.ask("PUT", "/account/password", {"oldPassword": OTHER_PASSWORD, "password": "x"})
        self.ask("POST", "/operator", {"name": "o", "privateKey": OPERATOR_KEY + "0"})
        self.ask("GET", "/project", token=token)
        self.ask("GET", f"/project?authorization={self.secrets['access key']}", token="")
        self.ask("GET", f"/project?authorization={self.node.token}x", token="")
        forged = message({**self.publisher, "token": token[:-2] + "xx"})
        self.ask("POST", "/event/room", forged, token="")
        self.ask("POST", "/event/none", message(self.publisher), token="")
        self.ask("POST", "/event/room", json.dumps({"header": {"token": [token]}}).encode())
        # Neither the chain nor the database server is reachable.
        monitor = {"contractAddress": "0x" + "1" * 40, "chainID": 4690, "blockStart": 1}
        monitor |= {"topic0": "0x" + "2" * 64, "eventType": "START"}
        self.ask("POST", "/monitor/x/room/contract_log", monitor)
        config = {"schemas": [{"schema": "public", "tables": []}]}
        self.ask("POST", "/project_config/x/room/PROJECT_DATABASE", config)
        for path in ("/operator", "/project/room", "/publisher/room", "/audit", "/monitor/x/room"):
            self.ask("GET", path, token=self.eve)
        for path in ("/audit", "/operator", "/account_access_key", "/event_log/room"):
            self.ask("GET", path)
        for path in ("/liveness", "/version", "/srv-applet-mgr"):
            self.ask("GET", path, token="")


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))  # as who debugs would set it
    made = Planted(tmp_path_factory.mktemp("secrets"))
    try:
        made.break_everything()
        yield made
    finally:
        made.node.stop()
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))


def found(secrets: dict[str, str], content: bytes) -> list[str]:
    return [name for name, value in secrets.items() if value.encode() in content]


def test_no_log_has_a_secret_in_it(planted: Planted) -> None:
    logs = [planted.node.log_path, *planted.node.data.rglob("*.log")]
    assert logs
    assert b" DEBUG " in planted.node.log_path.read_bytes()
    for path in logs:
        assert not found(planted.secrets, path.read_bytes()), path


def test_no_answer_shows_a_secret_to_another_account(planted: Planted) -> None:
    assert len(planted.answers) > 100
    for answer in planted.answers:
        # Eve may list her own objects, and an owner sees the tokens of their publishers.
        assert not found(planted.secrets, answer), answer


def test_no_process_shows_a_secret_in_its_arguments_or_environment(planted: Planted) -> None:
    seen = 0
    for pid in planted.node.processes():
        for name in ("cmdline", "environ"):
            content = Path(f"/proc/{pid}/{name}").read_bytes()
            seen += len(content)
            assert not found(planted.secrets, content), (pid, name)
    assert seen > 1_000


def test_at_rest_passwords_and_keys_are_hashed_or_sealed(planted: Planted) -> None:
    kept = {"publisher's token", "setup code"}
    secrets = {name: value for name, value in planted.secrets.items() if name not in kept}
    for path in planted.node.data.rglob("*"):
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            assert not found(secrets, content), path
            assert bytes.fromhex(OPERATOR_KEY) not in content, path


def test_what_is_kept_as_it_is_can_be_read_by_the_nodes_user_alone(planted: Planted) -> None:
    data = planted.node.data
    for path in (data / "secrets", data / "registry", data / "projects", data / "mqtt"):
        assert path.stat().st_mode & 0o077 == 0, path
    for path in (data / "secrets").iterdir():
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_process_that_crashes_leaves_no_core(planted: Planted) -> None:
    node = planted.node
    for pid in node.processes():
        limits = Path(f"/proc/{pid}/limits").read_text()
        (line,) = (line for line in limits.splitlines() if line.startswith("Max core file size"))
        assert line.split()[4:6] == ["0", "0"], (pid, line)
    places = (node.data, Path(f"/proc/{node.process.pid}/cwd").resolve())
    before = {place: set(place.iterdir()) for place in places}
    pid = parts(node)["fb-http:0"]
    os.kill(pid, signal.SIGABRT)
    until(lambda: not alive(pid), "it has ended")
    until(lambda: "fb-http:0" in parts(node), "it is back")
    for place in places:
        assert not [new for new in set(place.iterdir()) - before[place] if "core" in new.name]
