"""Archives that need more resources than allowed: they are refused before they use them."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from fieldbrook.core.errors import StoreError, UploadFileDiskLimitError
from fieldbrook.storage.backup import archive, transfer
from fieldbrook.storage.backup.transfer import ReadLimits
from tests.bombs import archive_of, bombs, project

# Python itself takes 30; a manifest of the largest allowed size takes most of the rest.
PEAK_BYTES = 176 << 20
LIMITS = ReadLimits(200 << 20, 10 << 20)


@pytest.mark.thorough
def test_no_archive_takes_memory_that_it_was_not_allowed(tmp_path: Path) -> None:
    folder = tmp_path / "bombs"
    folder.mkdir()
    for name, data in bombs():
        (folder / name).write_bytes(data)
    command = [sys.executable, "-m", "tests.bombs", str(folder)]
    done = subprocess.run(command, capture_output=True, check=True, timeout=120)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == len(list(folder.iterdir()))
    assert max(peak for _, _, peak in rows) < PEAK_BYTES, rows
    assert [path.name for path in tmp_path.iterdir()] == ["bombs"]
    said = {name: error for name, error, _ in rows}
    for name, words in (
        ("a hard link", "it contains a hard link; only regular files are allowed"),
        ("a GNU long name", "it contains a GNU long name; only"),
        ("a long pax header", "an extended header has 104857600 bytes"),
        ("a manifest of blanks", "its manifest.json has 104857600 bytes, the limit is 33554432"),
        ("a manifest that promises exabytes", "the file has 4611686018427387904 bytes"),
        ("zeros after the end", "data follows after its end"),
        ("a negative size", "a member has a negative size"),
        ("folders in folders", "is nested in more than 64 folders"),
        ("a thousand short paths of 60 folders", "its files are in more than 4064 folders"),
    ):
        assert words in said[name], (name, said[name])


def test_every_archive_that_is_no_project_says_what_is_wrong_with_it(tmp_path: Path) -> None:
    for number, (name, data) in enumerate(bombs()):
        if len(data) > 1 << 21 or "million" in name:
            continue  # these need a process of their own: tests/integration/test_import_bombs.py
        path, folder = tmp_path / f"{number}", tmp_path / f"{number}.unpacked"
        path.write_bytes(data)
        folder.mkdir()
        if "pair" in name:
            exported = transfer.read(path, folder, LIMITS)
            with pytest.raises(StoreError):
                transfer.build_store(exported, folder, tmp_path / "store", {}, 1 << 24)
            assert not (tmp_path / "store").exists()
        else:
            with pytest.raises(StoreError):
                transfer.read(path, folder, LIMITS)


def test_a_project_file_with_files_of_other_names_is_refused_before_any_is_written(
    tmp_path: Path,
) -> None:
    for number, name in enumerate(("other.bin", "a/b/c", "modules/a/b.wasm", "modules/b")):
        path, folder = tmp_path / f"{number}", tmp_path / f"{number}.unpacked"
        path.write_bytes(project({name: b"x"}))
        folder.mkdir()
        with pytest.raises(StoreError, match="is not a file of such an archive"):
            transfer.read(path, folder, LIMITS)
        assert list(folder.iterdir()) == []


def test_what_a_file_says_of_itself_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    escape, other = "\x1b]0;owned\x07", {"size": 0, "sha256": "0" * 64}
    about = {"kind": escape, "format": 1, "made_by": escape, "made_at": ""}
    (tmp_path / "target").mkdir()
    for changed in (
        {},
        {"format": 9},
        {"kind": "backup", "files": {escape: other}},
        {"kind": "backup", "files": {f"../{escape}": other}},
    ):
        (tmp_path / "file").write_bytes(archive_of({**about, "files": {}, **changed}))
        with pytest.raises(StoreError) as refused:
            archive.unpack(tmp_path / "file", tmp_path / "target", "backup")
        assert str(refused.value).isprintable()


def test_a_file_with_a_long_name_and_one_with_a_long_size_come_through(tmp_path: Path) -> None:
    source = tmp_path / "source"
    names = [f"{'a' * 90}/{'b' * 90}/{'c' * 200}", "\u00e4" * 60, "plain"]
    for name in names:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(name.encode())
    archive.pack(source, tmp_path / "a.tar.gz", "backup", {"projects": 0})
    with gzip.open(tmp_path / "a.tar.gz") as stream, tarfile.open(fileobj=stream) as tar:
        assert any(member.pax_headers for member in tar)
    (tmp_path / "target").mkdir()
    archive.unpack(tmp_path / "a.tar.gz", tmp_path / "target", "backup")
    for name in names:
        assert (tmp_path / "target" / name).read_bytes() == name.encode()


def test_an_archive_larger_than_the_disk_is_refused_before_it_fills_it(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    (source / "x").write_bytes(bytes(1000))
    archive.pack(source, tmp_path / "a", "backup", {})
    with pytest.raises(UploadFileDiskLimitError, match="are reserved"):
        archive.unpack(tmp_path / "a", target, "backup", reserve_bytes=1 << 60)
    assert list(target.iterdir()) == []


def test_a_manifest_that_no_restore_would_read_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MANIFEST_LIMIT_BYTES", 100)
    (tmp_path / "source").mkdir()
    with pytest.raises(StoreError, match="too many for an archive"):
        archive.pack(tmp_path / "source", tmp_path / "a", "backup", {})
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_tar_of_another_program_is_read_as_one(tmp_path: Path) -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        tar.addfile(tarfile.TarInfo("a"), io.BytesIO())
    (tmp_path / "a").write_bytes(gzip.compress(content.getvalue()))
    with pytest.raises(StoreError, match="not an archive of fieldbrook"):
        archive.unpack(tmp_path / "a", tmp_path, "backup")


def test_a_project_file_without_records_is_refused_without_a_path_of_the_node(
    tmp_path: Path,
) -> None:
    given, inside = tmp_path / "given", tmp_path / "inside"
    given.mkdir()
    inside.mkdir()
    (given / "pairs.bin").write_bytes(b"x")
    archive.pack(given, tmp_path / "file", transfer.KIND, {})
    with pytest.raises(StoreError, match=r"project\.bin: No such file") as refused:
        transfer.read(tmp_path / "file", inside, ReadLimits(1 << 20, 1 << 20))
    assert str(inside) not in str(refused.value)
