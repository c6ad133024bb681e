"""Imports of hostile archives are refused, and the memory of the gateway does not grow."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.core.errors import BadRequestError
from fieldbrook.core.model import Applet, Project, Resource
from fieldbrook.gateway.management.framework.temporary_files import new_path, remove_leftovers
from fieldbrook.gateway.management.routes.projects.project_files import ProjectFile
from fieldbrook.storage.backup.transfer import Exported, ReadLimits
from fieldbrook.storage.lmdb.codec import encode_record
from tests import bombs
from tests.support.applets import TALLY
from tests.support.nodes import Answer, RunningNode, parts, until

# A process is started for each archive.
pytestmark = pytest.mark.timeout(400)

# An upload is in memory several times: as received, as parsed, as written.
GROWTH_BYTES = 48 << 20
HEAVY = (
    '(module (memory (export "memory") 1) (func (export "start") (param i32) (result i32) '
    "local.get 0 " + "i32.const 7 i32.mul i32.load i32.eqz " * 100_000 + "))"
).encode()


def send(node: RunningNode, archive: bytes) -> Answer:
    return node._send_form("POST", "/project/import", {}, archive)


def uploads(node: RunningNode) -> list[Path]:
    return list((node.data / "uploads").iterdir())


@pytest.mark.thorough
def test_an_archive_bomb_is_answered_400_and_the_gateway_does_not_grow(node: RunningNode) -> None:
    gateway = parts(node)["fb-http:0"]
    assert send(node, b"no archive").status == 400
    before = bombs.peak_bytes(gateway)
    for name, archive in bombs.bombs_for_a_gateway():
        answer = send(node, archive)
        assert answer.status in (400, 403), (name, answer)
        if answer.status == 400:
            (field,) = answer.json["fields"]
            assert field["field"] == "file", name
            assert str(node.data) not in field["msg"], name
        else:
            assert answer.json["key"] == "UploadFileDiskLimit", name
        assert uploads(node) == [], name
    assert parts(node)["fb-http:0"] == gateway
    assert bombs.peak_bytes(gateway) - before < GROWTH_BYTES
    assert node.call("GET", "/project").json["total"] == 0
    assert list((node.data / "projects").iterdir()) == []


@pytest.mark.thorough
def test_reading_an_archive_ends_at_the_limit_of_memory(tmp_path: Path) -> None:
    archive = dict(bombs.bombs())["millions of event types"]
    (tmp_path / "archive").write_bytes(archive)
    limits = ReadLimits(200 << 20, 10 << 20)
    with pytest.raises(BadRequestError) as refused:
        ProjectFile(tmp_path).read(limits, memory_bytes=96 << 20)
    (field,) = refused.value.fields() or []
    assert field.msg == "it takes more than 96 MiB of memory"


def _slow_project() -> bytes:
    """Return a project with a module that takes seconds to compile."""
    times: Any = {"created_at": 1, "updated_at": 1}
    sha256 = hashlib.sha256(HEAVY).hexdigest()
    module = Resource(
        resource_id=2, account_id=1, sha256=sha256, md5="", size=1, filename="m",
        handlers=["start"], **times,
    )  # fmt: skip
    applet = Applet(
        applet_id=3, project_id=1, resource_id=2, name="a", wasm_name="a", instance_id=4,
        sha256=sha256, **times,
    )  # fmt: skip
    project = Project(project_id=1, account_id=1, name="slow", **times)
    whole = Exported(project, [], [applet], [module], [], [], [], [], [], False, [])
    return bombs.project({"project.bin": encode_record(whole), f"modules/{sha256}.wasm": HEAVY})


def test_files_of_a_killed_import_are_private_and_are_removed_at_the_next_start(
    node: RunningNode,
) -> None:
    archive = _slow_project()

    def ask() -> None:
        with suppress(OSError, ValueError):
            send(node, archive)

    asking = threading.Thread(target=ask)
    asking.start()
    gateway = parts(node)["fb-http:0"]
    until(lambda: list((node.data / "uploads").glob("*/unpacked/modules/*")), "it is unpacked")
    os.kill(gateway, signal.SIGKILL)
    asking.join()
    left = [path for folder in uploads(node) for path in (folder, *folder.rglob("*"))]
    assert all(path.stat().st_mode & 0o077 == 0 for path in left if path.exists())
    until(lambda: parts(node).get("fb-http:0", gateway) != gateway, "another gateway")
    until(lambda: not uploads(node), "what it left is removed")
    until(lambda: _serves(node), "it serves")


def _serves(node: RunningNode) -> bool:
    try:
        return node.call("GET", "/project").status == 200
    except OSError:
        return False


@pytest.mark.thorough
def test_an_account_that_uploads_slow_modules_does_not_keep_others_from_uploading(
    node: RunningNode,
) -> None:
    root, greedy = node.token, "greedy"
    body = {"username": greedy, "password": "correct horse", "role": "DEVELOPER"}
    assert node.call("POST", "/register/admin", body).status == 201
    node.create_project("quick")
    node.log_in(greedy)
    node.create_project("slow")
    answers: list[Answer] = []

    def upload(number: int) -> None:
        answers.append(node.upload("slow", HEAVY + b";;%d" % number, f"a{number}"))

    asking = [threading.Thread(target=upload, args=(n,)) for n in range(3)]
    for thread in asking:
        thread.start()
    until(lambda: uploads(node), "a module is compiled")
    node.token = root
    assert node.upload("quick", TALLY).status == 201
    assert len(answers) <= 1
    for thread in asking:
        thread.join()
    assert [answer.status for answer in answers] == [201] * 3


def test_a_gateway_starts_although_it_cannot_remove_what_was_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "uploads"
    path = new_path(folder, "http:0", ".parts")
    try:
        for depth in range(200, 1_700, 100):  # of nested folders: rmtree fails
            (path / "/".join(["a"] * depth)).mkdir(parents=True)
        new_path(folder, "http:0", ".wasm").touch()
        assert remove_leftovers(folder, "http:0", ["http:0"]) == 1
        assert "a temporary file of a killed request" in caplog.text
    finally:  # pytest cannot remove it either, and would fail at the end of every later run
        subprocess.run(["rm", "-rf", str(path)], check=True)


def test_an_upload_of_another_gateway_is_left_alone_at_a_start(tmp_path: Path) -> None:
    folder = tmp_path / "uploads"
    parts_ = ["http:0", "http:1"]
    for part in parts_:
        new_path(folder, part, ".parts").mkdir()
        new_path(folder, part, ".wasm").touch()
    (folder / ("0" * 32 + ".parts")).mkdir()
    assert remove_leftovers(folder, "http:1", parts_) == 2
    assert remove_leftovers(folder, "http:1", parts_) == 0
    assert len(list(folder.iterdir())) == 3
    assert remove_leftovers(folder, "http:0", parts_) == 3
    assert list(folder.iterdir()) == []
