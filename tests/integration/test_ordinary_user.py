"""A node runs without privileges and writes only to its data folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.applets import TALLY
from tests.support.brokers import Device
from tests.support.nodes import RunningNode, message, parts, strategies, until
from tests.support.tools import require_tool

_UID = 65_534  # nobody
_BECOME = ("setpriv", f"--reuid={_UID}", f"--regid={_UID}", "--clear-groups")
# For a Python that only root can read: the capability to read, not to write.
_READ = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
# Makes every file system read-only for the following command, except for the folder in the first
# argument.
_READ_ONLY = """
set -e
mount --bind "$1" "$1"
awk '{print $5}' /proc/self/mountinfo | while read -r place; do
    [ "$place" = "$1" ] || mount -o remount,bind,ro "$place" 2>/dev/null || true
done
cd /
shift
exec "$@"
"""


def _starts(*words: str) -> bool:
    # Checked inside, because the process may drop some of its first rights.
    code = "import subprocess as s, sys, lmdb; s.run([sys.executable, '-c', ''], check=True)"
    tried = [*_BECOME, *words, sys.executable, "-c", code]
    return not subprocess.run(
        tried, check=False, env=_environment(), stderr=subprocess.DEVNULL
    ).returncode


def _environment() -> dict[str, str]:
    """Return an environment without the tests' own variables, and without a folder for temporary
    files."""
    root = str(Path(__file__).parents[2])
    return {"PATH": os.environ["PATH"], "PYTHONPATH": root, "TMPDIR": "/nonexistent"}


class ConfinedNode(RunningNode):
    """A node of the user `nobody`, for which everything but its data folder is read-only."""

    environment = _environment()

    def __init__(self, data: Path, *flags: str) -> None:
        become = _BECOME if _starts() else (*_BECOME, *_READ)
        alone = ("unshare", "--mount", "--propagation", "private", "sh", "-c", _READ_ONLY)
        self.prefix = (*alone, "sh", str(data), *become)
        super().__init__(data, *flags)


@pytest.fixture
def data() -> Iterator[Path]:
    """A folder that belongs to the user `nobody`, and which that user can reach."""
    for tool in ("setpriv", "unshare", "mount"):
        require_tool(tool)
    if os.getuid() != 0:
        pytest.skip("only root can become somebody else")
    place = Path(tempfile.mkdtemp(prefix="fb"))
    place.chmod(0o755)
    made = place / "data"
    made.mkdir(mode=0o700)
    os.chown(made, _UID, _UID)
    yield made
    shutil.rmtree(place)


@pytest.mark.thorough
def test_a_node_of_an_ordinary_user_writes_nowhere_but_in_its_data_folder(data: Path) -> None:
    node = ConfinedNode(data)
    try:
        node.log_in()
        node.create_project("room")
        config = {"schemas": [{"schema": "public", "tables": []}]}
        assert node.call("POST", "/project_config/x/room/PROJECT_DATABASE", config).status == 201
        applet = node.deploy("room", TALLY, strategies=strategies(START="start"))["appletID"]
        publisher = node.add_publisher("room", "device-1")
        event = message(publisher, b"hi", "START")
        assert node.send("room", event).status == 201
        with Device(node.mqtt_port, "device-1") as device:
            device.publish("room", json.dumps(event).encode())
        until(lambda: node.count("room", applet) == 2, "both events are handled")
        for pid in node.processes():
            status = Path(f"/proc/{pid}/status").read_text()
            assert f"Uid:\t{_UID}\t{_UID}\t{_UID}\t{_UID}" in status, status
        node.stop()
        node.start()
        assert node.redeploy(applet, TALLY).status in (200, 201)
        assert node.send("room", message(publisher, b"after", "START")).status == 201
        assert node.count("room", applet) == 3
    finally:
        node.stop()
    assert node.process.returncode == 0
    for word in ("Read-only file system", "Permission denied", "Traceback"):
        assert word not in node.log
    strangers = [path for path in data.rglob("*") if path.lstat().st_uid != _UID]
    assert not strangers


def test_another_process_of_the_same_user_cannot_look_into_a_nodes_memory(data: Path) -> None:
    node = ConfinedNode(data)
    try:
        others = [pid for name, pid in parts(node).items() if name.startswith("fb-")]
        assert len(others) > 5
        for pid in others:
            for name in ("environ", "mem", "maps"):
                read = [*_BECOME, "head", "-c1", f"/proc/{pid}/{name}"]
                done = subprocess.run(read, capture_output=True, text=True, check=False)
                assert "Permission denied" in done.stderr, (pid, name, done)
    finally:
        node.stop()
