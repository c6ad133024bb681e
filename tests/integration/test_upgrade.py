"""`fieldbrook upgrade`, with and without `--check`, on the data of every released version: to a
future version with its command line, and back with this version."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fieldbrook import __version__
from fieldbrook.storage.backup.backup import restore
from fieldbrook.storage.backup.space import bytes_to_copy
from tests.integration.test_stores import STORES, VERSIONS
from tests.support.applets import TALLY
from tests.support.disks import MIB, fill, small_disk
from tests.support.nodes import RunningNode, StartNode, message, strategies
from tests.support.tools import LIMIT_S
from tests.unit.storage.backup.data_folder import project_folder
from tests.unit.storage.test_upgrade import mark

ROOT = Path(__file__).parents[2]
THIS, NEXT = "fieldbrook", "tests.support.next_version"
CONVERTS, RUNS, CANNOT = 5, 6, 1


class Ended(NamedTuple):
    """The result of a command."""

    code: int
    out: str
    complaint: str


def run(program: str, data: Path, *arguments: str) -> Ended:
    command = [sys.executable, "-m", program, *arguments, "--data", str(data)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=LIMIT_S, cwd=ROOT
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def check(program: str, data: Path, code: int) -> dict[str, Any]:
    """Return the findings of `upgrade --check`, by the names of its checks."""
    ended = run(program, data, "--json", "upgrade", "--check")
    assert ended.code == code, ended
    answer = json.loads(ended.out)
    assert answer["canStart"] is (code != CANNOT)
    assert answer["running"] is (code == RUNS)
    return {row["check"]: row for row in answer["checks"]}


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def data(version: str, tmp_path: Path) -> Path:
    restore(STORES / f"{version}.tar.gz", tmp_path / "n")
    return tmp_path / "n"


def content(data: Path) -> dict[str, bytes]:
    """Return all files of a data folder, without LMDB's lock files."""
    files = (path for path in data.rglob("*") if path.is_file() and path.name != "lock.mdb")
    return {str(path.relative_to(data)): path.read_bytes() for path in files}


def test_a_check_names_the_schemas_and_versions_of_all_stores_and_changes_nothing(
    version: str, data: Path
) -> None:
    before = content(data)
    found = check(THIS, data, 0)
    assert content(data) == before
    assert found["this version"]["facts"] == {"version": __version__}
    for kind in ("registry", "project stores"):
        assert found[kind]["facts"]["versions"] == {version: 1}
        assert found[kind]["facts"]["schemas"] == {"1": 1}
        assert found[kind]["facts"]["reads"] == [1, 1]
    assert found["modules"]["facts"] == {"modules": 3, "compiled_again": 3}
    assert found["start"]["facts"] == {"converts": 0, "stores": 2}
    assert found["copy"]["facts"]["need"] == bytes_to_copy(data)
    assert found["copy"]["facts"]["free"] > 0


def test_people_get_a_table_and_a_sentence(data: Path) -> None:
    ended = run(THIS, data, "upgrade", "--check")
    assert ended.out.startswith("CHECK ")
    assert ended.complaint == "the next start converts nothing\n"


def test_the_data_of_a_release_goes_to_a_later_schema_and_back_with_all_that_it_had(
    version: str, data: Path, tmp_path: Path
) -> None:
    found = check(NEXT, data, CONVERTS)
    assert found["registry"]["facts"]["reads"] == [1, 2]
    assert found["start"]["facts"] == {"converts": 2, "stores": 2}
    ended = run(NEXT, data, "--json", "upgrade")
    assert ended.code == 0, ended
    done = json.loads(ended.out)
    assert done["stores"] == 2
    assert check(NEXT, data, 0)["registry"]["facts"]["schemas"] == {"2": 1}
    assert json.loads(run(NEXT, data, "--json", "upgrade").out) == {"stores": 0, "copy": None}

    # This version reports the stores that it cannot read, in the check and at the start of a node.
    found = check(THIS, data, CANNOT)
    assert "with schema 2" in found["registry"]["text"]
    assert f"fieldbrook {__version__} reads up to 1" in found["registry"]["text"]
    refused = RunningNode(data, command="node", ready=False)
    assert refused.process.wait(LIMIT_S) == 2
    assert "with schema 2" in refused.log

    known = json.loads((STORES / f"{version}.json").read_text())
    back = tmp_path / "back"
    assert run(THIS, back, "restore", done["copy"]).code == 0
    node = RunningNode(back)
    try:
        node.log_in(known["username"], known["password"])
        assert node.count(known["project"], known["tally"]) == 3
    finally:
        node.stop()


@pytest.mark.thorough
def test_a_running_node_is_named_and_keeps_an_upgrade_away(start_node: StartNode) -> None:
    node = start_node()
    found = check(THIS, node.data, RUNS)
    assert found["node"]["state"] == "warning"
    assert f"(process {node.process.pid})" in found["node"]["text"]
    assert found["journals"]["facts"]["workers"] >= 1
    ended = run(THIS, node.data, "upgrade")
    assert ended.code == 1
    assert "another node runs on the data folder" in ended.complaint
    node.stop()
    assert check(THIS, node.data, 0)["journals"]["facts"]["waiting"] == 0
    assert check(NEXT, node.data, CONVERTS)["MQTT store"]["facts"]["schemas"] == {"1": 1}


@pytest.mark.thorough
def test_batches_of_a_killed_node_are_counted_and_left_to_its_version(
    start_node: StartNode,
) -> None:
    node = start_node()
    node.create_project("room")
    node.deploy("room", TALLY, "tally", strategies=strategies("start"))
    publisher = node.add_publisher("room", "d")
    assert node.send("room", message(publisher, b"1", "START")).status == 201
    node.kill()
    assert check(THIS, node.data, 0)["journals"]["facts"]["waiting"] >= 1
    found = check(NEXT, node.data, CANNOT)["journals"]
    assert f"start fieldbrook {__version__} on the folder once more and stop it" in found["text"]
    node.start()
    node.stop()
    assert check(NEXT, node.data, CONVERTS)["journals"]["facts"]["waiting"] == 0


def test_an_upgrade_without_room_for_its_copy_is_refused_before_it_changes_anything(
    version: str, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "disk", 16 * MIB) as disk:
        data = disk / "n"
        restore(STORES / f"{version}.tar.gz", data)
        check(NEXT, data, CONVERTS)  # creates the lock files of the stores, which take space
        filler = fill(disk)
        found = check(NEXT, data, CANNOT)["copy"]
        assert found["state"] == "failed"
        assert found["facts"]["need"] > found["facts"]["free"]
        ended = run(NEXT, data, "upgrade")
        assert ended.code == 1
        assert "the copy before the upgrade needs" in ended.complaint
        assert check(THIS, data, 0)["start"]["facts"]["converts"] == 0
        # The disk space that the check requires is enough.
        filler.unlink()
        spare = shutil.disk_usage(disk).free - found["facts"]["need"]
        (disk / "other").write_bytes(bytes(spare - MIB // 8))  # locks of the node have a block each
        assert run(NEXT, data, "upgrade").code == 0


def test_a_damaged_project_is_named_and_hinders_no_other(data: Path) -> None:
    whole = (project_folder(data) / "data.mdb").read_bytes()
    (data / "projects" / "77").mkdir()
    (data / "projects" / "77" / "data.mdb").write_bytes(whole[:8192])
    found = check(NEXT, data, CONVERTS)["project stores"]
    assert found["state"] == "warning"
    assert "projects/77: the store is truncated" in found["text"]


@pytest.mark.thorough("0.1.0")
def test_a_truncated_project_keeps_neither_the_upgrade_nor_the_node_from_starting(
    data: Path,
) -> None:
    store = project_folder(data) / "data.mdb"
    whole = store.read_bytes()
    store.write_bytes(whole[:8192])
    done = json.loads(run(NEXT, data, "--json", "upgrade").out)
    assert done["stores"] == 1, "the registry"
    assert store.read_bytes() == whole[:8192]
    back = data.parent / "back"
    restored = run(THIS, back, "restore", done["copy"])
    assert restored.code == 1, "the copy has the damage, too"
    assert "the store is truncated or damaged" in restored.complaint
    assert (project_folder(back) / "data.mdb").read_bytes() == whole[:8192]
    node = RunningNode(back)
    try:
        assert node.call("GET", "/readiness").status == 200
    finally:
        node.stop()


@pytest.mark.parametrize("place", ["registry", "project"])
def test_a_store_of_a_later_version_is_refused_with_its_name(data: Path, place: str) -> None:
    folder = data / "registry" if place == "registry" else project_folder(data)
    mark(folder, 7, "9.1.0")
    texts = [row["text"] for row in check(THIS, data, CANNOT).values() if row["state"] == "failed"]
    assert len(texts) == 1
    assert "written by fieldbrook 9.1.0 with schema 7" in texts[0]


def test_a_folder_that_is_no_data_folder_is_refused(tmp_path: Path) -> None:
    for arguments in (("upgrade", "--check"), ("upgrade",)):
        ended = run(THIS, tmp_path, *arguments)
        assert ended.code == 1
        assert "is not the data folder of a node" in ended.complaint
