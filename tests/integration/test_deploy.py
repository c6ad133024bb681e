"""Deployments under load: a new module replaces the old one, and no event is lost or fails."""

from __future__ import annotations

import http.client
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.applets import TALLY, UNLINKABLE
from tests.support.nodes import PREFIX, RunningNode, StartNode, message, until
from tests.support.tools import LIMIT_S

# Many processes are started, which takes a minute with a fifth of a core.
pytestmark = pytest.mark.timeout(240)

REDEPLOYMENTS = 12
SENDERS = 4


def counting(key: bytes) -> bytes:
    """Return the tally applet with another key of five letters."""
    return TALLY.replace(b'"count"', b'"%b"' % key)


class Flood:
    """Sends events as fast as they are answered, over several connections, until stopped."""

    def __init__(self, port: int, project: str, publisher: Any) -> None:
        self.acknowledged = 0
        self.wrong: list[object] = []
        self._port = port
        self._path = f"{PREFIX}/event/{project}"
        self._body = json.dumps(message(publisher, b"x"))
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._send) for _ in range(SENDERS)]
        for thread in self._threads:
            thread.start()

    def wait_for_more(self, count: int) -> None:
        before = self.acknowledged
        until(
            lambda: self.wrong or self.acknowledged >= before + count,
            "events are acknowledged",
        )

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _send(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=LIMIT_S)
        while not self._stopped.is_set():
            try:
                connection.request("POST", self._path, self._body)
                answer = connection.getresponse()
                content = answer.read()
                results = json.loads(content)["results"] if answer.status == 201 else []
                good = [(r["code"], r["errMsg"]) for r in results] == [(0, "")]
            except (OSError, http.client.HTTPException) as error:
                content, good = repr(error).encode(), False
            with self._lock:
                self.acknowledged += good
                if not good:
                    self.wrong.append(content)
                    return
        connection.close()


@pytest.mark.parametrize("isolation", ["EVENT", "BATCH"])
@pytest.mark.thorough("BATCH")
def test_no_event_is_lost_or_fails_while_modules_take_over_from_each_other(
    node: RunningNode, isolation: str
) -> None:
    project = f"hot_{isolation}"
    node.create_project(project)
    modules = [counting(b"aaaaa"), counting(b"bbbbb")]
    applet_id = node.deploy(project, modules[0], isolation=isolation)["appletID"]
    publisher = node.add_publisher(project, "p")

    def counted(key: bytes) -> int:
        return int.from_bytes(node.kv(project, applet_id, key), "little")

    flood = Flood(node.http_port, project, publisher)
    try:
        for number in range(1, REDEPLOYMENTS + 1):
            flood.wait_for_more(20)  # each module handles some of the events
            answer = node.redeploy(applet_id, modules[number % 2])
            assert (answer.status, answer.json["version"]) == (200, number + 1), answer
            assert not flood.wrong
        refused = node.redeploy(applet_id, UNLINKABLE)
        assert refused.status == 500
        back = node.call("PUT", f"/applet/data/{applet_id}/versions/{REDEPLOYMENTS}")
        assert (back.status, back.json["version"]) == (200, REDEPLOYMENTS)
        flood.wait_for_more(20)
    finally:
        flood.stop()
    assert flood.wrong == []
    assert counted(b"aaaaa") > 0
    assert counted(b"bbbbb") > 0
    assert counted(b"aaaaa") + counted(b"bbbbb") == flood.acknowledged


def test_an_event_after_the_answer_meets_the_new_module(node: RunningNode) -> None:
    node.create_project("next")
    applet_id = node.deploy("next", counting(b"aaaaa"))["appletID"]
    publisher = node.add_publisher("next", "p")
    for number in range(1, 6):
        key = b"%05d" % number
        assert node.redeploy(applet_id, counting(key)).status == 200
        assert node.send("next", message(publisher)).status == 201
        assert node.kv("next", applet_id, key) == (1).to_bytes(8, "little")


def test_an_export_leaves_the_disk_its_reserve(start_node: StartNode) -> None:
    node = start_node("--disk-reserve-bytes", str(1 << 50))
    node.create_project("full")
    refused = node.call("POST", "/project/x/full/export", {})
    assert (refused.status, refused.json["key"]) == (403, "UploadFileDiskLimit")
    assert not list((node.data / "uploads").iterdir())


def test_an_upload_leaves_the_disk_its_reserve(start_node: StartNode) -> None:
    node = start_node("--disk-reserve-bytes", str(1 << 50))
    node.create_project("full")
    refused = node.upload("full", TALLY)
    assert (refused.status, refused.json["key"]) == (403, "UploadFileDiskLimit")
    assert refused.json["code"] == 403_999_006
    assert not list((node.data / "uploads").iterdir())


def test_applets_with_the_same_cache_prefix_share_their_pairs(node: RunningNode) -> None:
    node.create_project("shared")
    ids = [node.deploy("shared", TALLY, name)["appletID"] for name in ("one", "two", "own")]
    for applet_id in ids[:2]:
        cache = {"cache": {"mode": "REDIS", "prefix": "both"}}
        assert node.call("POST", f"/deploy/applet/{applet_id}", cache).status == 201
    publisher = node.add_publisher("shared", "p")
    for _ in range(3):
        assert node.send("shared", message(publisher)).status == 201
    assert [node.count("shared", applet_id) for applet_id in ids] == [6, 6, 3]


def old_files(node: RunningNode, applet: Any) -> list[Path]:
    """Return the files of an applet's module, with times so old that they may be removed."""
    files = list((node.data / "modules").glob(f"{applet['resource']['path']}.*"))
    assert files
    for file in files:
        os.utime(file, (1, 1))
    return files


def test_the_file_of_a_module_goes_with_its_last_owner(node: RunningNode) -> None:
    node.create_project("files")
    made = node.deploy("files", counting(b"files"))
    files = old_files(node, made)
    assert node.call("DELETE", "/project/files").status == 204
    assert all(file.exists() for file in files)
    assert node.call("DELETE", f"/resource/{made['resourceID']}").status == 204
    until(lambda: not any(file.exists() for file in files), "the files are removed")


def test_the_file_of_a_deleted_resource_stays_while_an_applet_runs_it(node: RunningNode) -> None:
    node.create_project("running")
    made = node.deploy("running", counting(b"doomed"), "doomed")
    spare = node.deploy("running", counting(b"spare"), "spare")
    files, spares = old_files(node, made), old_files(node, spare)
    publisher = node.add_publisher("running", "p")
    assert node.call("DELETE", f"/resource/{made['resourceID']}").status == 204
    # After a removal, the registry looks for files that nobody owns.
    assert node.call("DELETE", f"/applet/{spare['appletID']}").status == 204
    assert node.call("DELETE", f"/resource/{spare['resourceID']}").status == 204
    until(lambda: not any(file.exists() for file in spares), "other files are removed")
    assert all(file.exists() for file in files)
    node.stop()
    node.start()
    assert node.send("running", message(publisher)).json["results"][0]["code"] == 0
    assert node.call("DELETE", f"/applet/{made['appletID']}").status == 204
    until(lambda: not any(file.exists() for file in files), "the files are removed")
