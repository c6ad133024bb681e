"""The last host of a cluster, whose other hosts are permanently lost, becomes a single node."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.cluster import engine_files
from fieldbrook.cluster.engine import Address, Engine
from fieldbrook.storage.data_lock import acquire_data_lock
from tests.support.applets import TALLY
from tests.support.hosts import Cluster, Host, Senders
from tests.support.nodes import RunningNode, message, named, until

PROJECT = "room"
UNUSED = "zone"  # a project without events since the cluster formed


class Lost:
    """A cluster of which one host is left: its data folder, and what had been acknowledged."""

    def __init__(self, folder: Path) -> None:
        cluster = Cluster(folder, self._prepare)
        hosts = cluster.hosts
        owner = cluster.owner(self.project)
        left = cluster.others(owner)[0]  # it has never run the project
        if left is hosts[0]:  # nor has it been a node before the cluster
            left = cluster.others(owner)[1]
        with Senders(hosts, PROJECT, self.publisher) as senders:
            senders.await_more(50)
            hosts[0].create_project("late")
            hosts[0].deploy("late", TALLY)
            self.late_publisher = hosts[0].add_publisher("late", "sensor")
            senders.await_more(50)
        assert senders.refused == []
        self.acknowledged = len(senders.acknowledged)
        until(lambda: self._is_level(left), "it has all records")
        for host in hosts:
            host.kill()
        self.data = left.data

    def _prepare(self, host: Host) -> None:
        self.project: Any = host.create_project(PROJECT)
        self.applet: str = host.deploy(PROJECT, TALLY)["appletID"]
        self.publisher: Any = host.add_publisher(PROJECT, "sensor")
        host.create_project(UNUSED)
        self.unused_applet: str = host.deploy(UNUSED, TALLY)["appletID"]
        publisher = host.add_publisher(UNUSED, "sensor")
        for _ in range(3):
            assert host.send(UNUSED, message(publisher)).status == 201

    @staticmethod
    def _is_level(host: Host) -> bool:
        rows = host.call("GET", "/cluster").json["data"]
        return all(row.get("lagRecords") == 0 and row.get("registryLag") == 0 for row in rows)


def rescue(data: Path, *, yes: bool = True) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fieldbrook", "--json", "rescue", "--data", str(data)]
    return subprocess.run(
        [*command, "--yes"] if yes else command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Lost:
    return Lost(tmp_path_factory.mktemp("lost"))


def copied(lost: Lost, folder: Path) -> Path:
    """A copy of the data folder of the host that is left."""
    shutil.copytree(lost.data, folder / "data", ignore=shutil.ignore_patterns("run"))
    return folder / "data"


def test_the_last_host_becomes_a_node_with_all_that_was_acknowledged(
    lost: Lost, tmp_path: Path
) -> None:
    data = copied(lost, tmp_path)
    done = rescue(data)
    assert done.returncode == 0, done
    told = json.loads(done.stdout)
    assert [project["name"] for project in told["projects"]] == ["late", PROJECT, UNUSED]
    assert told["projects"][1]["batches"] > 0
    assert told["missing"] == []
    assert not (data / "cluster").exists()
    assert (Path(told["kept"]) / "engine").is_dir()
    node = RunningNode(data)
    try:
        node.log_in()
        assert node.count(PROJECT, lost.applet) == lost.acknowledged
        assert node.count(UNUSED, lost.unused_applet) == 3
        assert node.send(PROJECT, named(message(lost.publisher), "afterwards")).status == 201
        assert node.send("late", named(message(lost.late_publisher), "late")).status == 201
        assert node.call("GET", "/cluster").status == 404
    finally:
        node.kill()
    again = rescue(data)
    assert again.returncode == 1
    assert "is not that of a host of a cluster" in again.stderr


def test_a_rescued_node_founds_a_new_cluster(lost: Lost, tmp_path: Path) -> None:
    data = copied(lost, tmp_path)
    assert rescue(data).returncode == 0
    cluster = Cluster.of_node(Host(data, "h1"), tmp_path)
    try:
        counts = {host.count(PROJECT, lost.applet) for host in cluster.hosts}
        assert counts == {lost.acknowledged}
        last = cluster.hosts[2]
        assert last.send(PROJECT, named(message(lost.publisher), "afterwards")).status == 201
        assert {host.count(PROJECT, lost.applet) for host in cluster.hosts} == {
            lost.acknowledged + 1
        }
    finally:
        cluster.kill()


def test_a_rescue_that_was_interrupted_is_repeated(lost: Lost, tmp_path: Path) -> None:
    data = copied(lost, tmp_path)
    (data / "cluster" / "rescue" / "streams").mkdir(parents=True)
    (data / "cluster" / "rescue" / "streams" / "half").write_bytes(b"half a copy")
    assert rescue(data).returncode == 0


def test_streams_of_an_unknown_form_are_left_alone(lost: Lost, tmp_path: Path) -> None:
    data = copied(lost, tmp_path)
    (meta, *_) = sorted((data / "cluster" / "engine").rglob("meta.inf"))
    meta.write_bytes(meta.read_bytes().replace(b"limits", b"limitz"))
    done = rescue(data)
    assert done.returncode == 1
    assert "does not match its checksum" in done.stderr
    assert (data / "cluster" / "hosts.json").exists()


def with_index(data: Path) -> None:
    """Make the engine write the index of its streams, which it otherwise does every two minutes."""
    streams, copy = data / "cluster" / "engine" / "streams", data.with_name("copy")
    shutil.copytree(streams, copy / "streams")
    engine_files.make_single(copy / "streams")
    room = 2 * sum(path.stat().st_size for path in copy.rglob("*.blk"))
    address = Address("127.0.0.1", 0)
    engine = Engine(copy, "h", "c", address, others=(), tls=None, file_bytes=room)
    engine.start()
    engine.stop()
    written = list(copy.glob("streams/jetstream/NODE/streams/*/msgs/index.db"))
    assert written
    for path in written:
        shutil.copy(path, streams / path.relative_to(copy / "streams"))


def without_index(data: Path) -> None:
    for path in data.glob("cluster/engine/streams/jetstream/NODE/streams/*/msgs/index.db"):
        path.unlink()


def damaged(data: Path, pattern: str, place: float | re.Pattern[bytes] = 0.5) -> None:
    """Change a byte of the largest of some files of the replication engine.

    Args:
        data: the data folder of a host.
        pattern: the names of the files.
        place: a fraction of the file's length, or the bytes with which the last changed record
            begins.
    """
    files = (data / "cluster" / "engine").rglob(pattern)
    largest = max(files, key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    if isinstance(place, float):
        at = int(len(content) * place)
    else:
        *_, found = place.finditer(content)
        at = found.end()
    content[at] ^= 0xFF
    largest.write_bytes(content)


# The end of a file is the checksum of its last record.
@pytest.mark.parametrize("part", [0.5, 0.9999])
@pytest.mark.parametrize("index", [with_index, without_index])
def test_records_behind_damage_are_told_and_those_before_it_are_there(
    lost: Lost, tmp_path: Path, index: Callable[[Path], None], part: float
) -> None:
    data = copied(lost, tmp_path)
    index(data)
    damaged(data, "J*/msgs/*.blk", part)
    done = rescue(data)
    assert done.returncode == 1
    told = json.loads(done.stdout)["projects"][1]
    assert told["name"] == PROJECT
    assert told["batches"] > 0
    assert told["damage"], done
    assert "newer events of 1 project may be lost" in done.stderr
    node = RunningNode(data)
    try:
        node.log_in()
        assert 0 < node.count(PROJECT, lost.applet) < lost.acknowledged
        assert node.send(PROJECT, named(message(lost.publisher), "afterwards")).status == 201
    finally:
        node.kill()


@pytest.mark.parametrize("index", [with_index, without_index])
def test_the_host_has_its_copy_of_the_registry_although_the_stream_is_damaged(
    lost: Lost, tmp_path: Path, index: Callable[[Path], None]
) -> None:
    data = copied(lost, tmp_path)
    index(data)
    damaged(data, "R/msgs/*.blk")
    done = rescue(data)
    told = json.loads(done.stdout)
    if index is without_index:  # the engine leaves out all that is behind the damage
        assert done.returncode == 1
        assert told["registry_damage"]
        assert "newer changes of accounts and projects may be lost" in done.stderr
    else:
        assert done.returncode == 0, done
    assert [project["damage"] for project in told["projects"]] == ["", "", ""]
    node = RunningNode(data)
    try:
        node.log_in()
        assert node.count(PROJECT, lost.applet) == lost.acknowledged
    finally:
        node.kill()


def test_the_last_change_of_the_registry_is_damaged(lost: Lost, tmp_path: Path) -> None:
    data = copied(lost, tmp_path)
    with_index(data)
    damaged(data, "R/msgs/*.blk", re.compile(rb"fb\.registry....NATS", re.DOTALL))
    shutil.rmtree(data / "registry")  # all comes from the stream
    done = rescue(data)
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert "cannot read the last record" in told["registry_damage"]
    assert [project["name"] for project in told["projects"]] == ["late", PROJECT, UNUSED]


def test_a_folder_on_which_a_node_runs_is_left_alone(lost: Lost, tmp_path: Path) -> None:
    data = copied(lost, tmp_path)
    lock = acquire_data_lock(data)
    try:
        done = rescue(data)
    finally:
        os.close(lock)
    assert done.returncode == 1
    assert "another node runs on the data folder" in done.stderr
    assert (data / "cluster" / "hosts.json").exists()


@pytest.mark.parametrize("yes", [True, False])
def test_a_node_of_no_cluster_needs_no_rescue_and_no_question(tmp_path: Path, yes: bool) -> None:
    done = rescue(tmp_path, yes=yes)
    assert done.returncode == 1
    assert f"the data folder {tmp_path} is not that of a host of a cluster" in done.stderr
    assert "make a single node" not in done.stderr
