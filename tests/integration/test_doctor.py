"""`fieldbrook doctor` reports what a node lacks on this machine, and how to fix it."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fieldbrook.security.node_secrets import KEY_BYTES
from fieldbrook.storage.stores import FORMS
from tests.support.disks import MIB, small_disk
from tests.support.nodes import StartNode
from tests.support.tools import LIMIT_S, free_port
from tests.unit.storage.backup.data_folder import project_folder, write
from tests.unit.storage.test_upgrade import mark

Report = dict[str, tuple[str, str]]


def examine(
    data: Path, *flags: str, code: int = 0, before: Callable[[], None] | None = None
) -> Report:
    """Return state and text of each check; `before` runs in the program's process."""
    ports = [f"--{name}-port={free_port()}" for name in ("http", "mqtt", "dashboard")]
    program = [sys.executable, "-m", "fieldbrook", "--json", "doctor", "--data", str(data)]
    done = subprocess.run(
        [*program, "--bind", "127.0.0.1", *ports, *flags],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
        preexec_fn=before,
    )
    assert done.returncode == code, done.stderr + done.stdout
    answer = json.loads(done.stdout)
    assert answer["usable"] is (code == 0)
    return {row["check"]: (row["state"], row["text"]) for row in answer["checks"]}


def test_a_new_folder_on_a_good_machine_fails_no_check(tmp_path: Path) -> None:
    report = examine(tmp_path / "data")
    assert not [check for check, (state, _) in report.items() if state == "failed"]
    assert report["data folder"] == ("ok", f"{tmp_path / 'data'} will be created")
    assert report["stores"] == ("ok", "none yet")
    assert report["http_port"][1].endswith("free")
    assert not (tmp_path / "data").exists()


@pytest.mark.thorough
def test_a_running_node_is_told_and_its_ports_are_looked_at(start_node: StartNode) -> None:
    node = start_node()
    names = {"http": node.http_port, "mqtt": node.mqtt_port, "dashboard": node.dashboard_port}
    flags = [f"--{name}-port={port}" for name, port in names.items()]
    report = examine(node.data, *flags)
    assert report["data folder"] == ("ok", f"{node.data}, a node runs on it")
    assert report["mqtt_port"] == ("ok", f"{node.mqtt_port}, the node listens")
    assert report["secrets"][0] == "ok"
    assert report["stores"][1].startswith("2, of this version")
    state, text = examine(node.data, *flags, f"--event-port={free_port()}", code=1)["event_port"]
    assert state == "failed"
    assert "a node runs" in text


def test_a_port_of_another_program_is_named_with_the_flag_that_helps(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        report = examine(tmp_path, f"--mqtt-port={port}", code=1)
    state, text = report["mqtt_port"]
    assert state == "failed"
    assert f"another program uses {port}" in text
    assert "--mqtt-port" in text


def limited(kind: int, value: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(kind, (value, value))


def test_limits_of_the_process_are_told_with_what_raises_them(tmp_path: Path) -> None:
    few = examine(tmp_path, before=limited(resource.RLIMIT_NOFILE, 256))
    assert few["open files"][0] == "warning"
    assert "LimitNOFILE" in few["open files"][1]
    small = examine(tmp_path, before=limited(resource.RLIMIT_AS, 8 << 30), code=1)
    assert small["address space"][0] == "failed"
    assert "ulimit -v" in small["address space"][1]


def test_a_disk_without_space_and_one_that_forgets_are_told(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 64 * MIB) as disk:
        report = examine(disk / "data", code=1)
    assert report["disk space"][0] == "failed"
    assert report["file system"] == (
        "warning",
        "tmpfs forgets its files: put the data folder on a disk or a volume",
    )


def test_a_file_in_the_place_of_the_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    state, text = examine(tmp_path / "data", code=1)["data folder"]
    assert (state, text) == ("failed", f"{tmp_path / 'data'} is not a folder")


def test_stores_of_a_newer_version_are_told(tmp_path: Path) -> None:
    write(tmp_path)
    assert examine(tmp_path)["stores"][0] == "ok"
    mark(project_folder(tmp_path), FORMS.project.schema + 1, "9.1.0")
    state, text = examine(tmp_path, code=1)["stores"]
    assert state == "failed"
    assert "9.1.0" in text


def test_a_certificate_without_its_key_is_told(tmp_path: Path) -> None:
    certificate = tmp_path / "node.pem"
    certificate.write_text("-----BEGIN CERTIFICATE-----\n")
    report = examine(tmp_path, f"--tls-certificate={certificate}", code=1)
    assert report["certificate"] == ("failed", "tls_certificate is set, but tls_key is not")


def test_secrets_that_others_can_read_are_told(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir(mode=0o755)
    (tmp_path / "secrets" / "token.key").write_bytes(bytes(KEY_BYTES))
    state, text = examine(tmp_path)["secrets"]
    assert state == "warning"
    assert "chmod 700" in text


def test_people_get_a_table_and_a_summary(tmp_path: Path) -> None:
    ports = [f"--{name}-port={free_port()}" for name in ("http", "mqtt", "dashboard")]
    command = [sys.executable, "-m", "fieldbrook", "doctor", "--data", str(tmp_path), *ports]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert done.returncode == 0
    assert done.stdout.startswith("CHECK ")
    assert "0 failed," in done.stderr
