"""The list of hosts in the data folder, also one that somebody damaged."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fieldbrook.cluster import hosts_file
from fieldbrook.core.cluster.membership import Host, Membership
from fieldbrook.core.errors import SettingsError

LIST = Membership("1-ab", "one", (Host("one", "127.0.0.1", 1, 2),))


def test_a_list_that_was_saved_is_loaded(tmp_path: Path) -> None:
    assert hosts_file.load(tmp_path) is None
    hosts_file.save(tmp_path, LIST)
    assert hosts_file.load(tmp_path) == LIST


def written(data: Path, content: bytes) -> Path:
    path = data / hosts_file.FOLDER / "hosts.json"
    path.parent.mkdir()
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"cluster":' * 100_000,
        b"[" * 1_000_000,
        b" " * (2 << 20),
        json.dumps({"cluster": "c", "me": "one", "hosts": []}).encode(),
        json.dumps(
            {
                "cluster": "c",
                "me": "two",
                "hosts": [{"name": "one", "address": "a", "port": 1, "engine_port": 2}],
            }
        ).encode(),
    ],
    ids=("empty", "bytes", "array", "object", "deep", "deeper", "large", "no hosts", "others"),
)
def test_a_damaged_list_is_an_error_that_names_the_file(tmp_path: Path, content: bytes) -> None:
    path = written(tmp_path, content)
    with pytest.raises(SettingsError, match=str(path)):
        hosts_file.load(tmp_path)


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "circle"])
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, kind: str) -> None:
    path = written(tmp_path, b"")
    path.unlink()
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "device":
            path.symlink_to("/dev/zero")
        case _:
            path.symlink_to(path)
    with pytest.raises(SettingsError, match=str(path)):
        hosts_file.load(tmp_path)


def test_a_host_that_was_removed_still_has_its_list(tmp_path: Path) -> None:
    other = Host("two", "127.0.0.1", 3, 4)
    removed = Membership("1-ab", "one", (other,), formed=True, gone=("one",))
    hosts_file.save(tmp_path, removed)
    assert hosts_file.load(tmp_path) == removed
    with pytest.raises(SettingsError, match="was removed"):
        hosts_file.require_member(tmp_path)
