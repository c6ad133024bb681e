"""Archives that are truncated, damaged, or of another kind."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from fieldbrook.core.errors import StoreError
from fieldbrook.storage.backup import archive, backup
from fieldbrook.storage.backup.verify import verify


@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.3, 0.7, 0.99, 0.9999])
def test_an_archive_that_is_cut_short_restores_nothing(
    made: Path, tmp_path: Path, share: float
) -> None:
    whole = made.read_bytes()
    made.write_bytes(whole[: int(len(whole) * share)])
    before = set(tmp_path.iterdir())
    with pytest.raises(StoreError, match="not an archive"):
        backup.restore(made, tmp_path / "copy")
    assert set(tmp_path.iterdir()) == before


def test_an_archive_with_a_flipped_bit_restores_nothing(made: Path, tmp_path: Path) -> None:
    whole = made.read_bytes()
    # The last 8 bytes are gzip's own checksum, which is not needed because of the manifest.
    for place in range(20, len(whole) - 8, len(whole) // 23):
        damaged = bytearray(whole)
        damaged[place] ^= 0x10
        made.write_bytes(damaged)
        copy = tmp_path / f"copy{place}"
        try:
            backup.restore(made, copy)
        except StoreError:
            assert not copy.exists()
        else:  # a bit without a meaning, such as padding
            assert verify(copy).defects == []


@pytest.mark.parametrize(
    "content",
    [b"no JSON", b'{"made_by": "0.1\xe6"}', b'{"format": \xe6}', b'{"a": ' + b"[" * 99_999, b"{}"],
)
def test_a_manifest_that_is_none_is_a_damaged_archive(tmp_path: Path, content: bytes) -> None:
    damaged = tmp_path / "d.tar.gz"
    with tarfile.open(damaged, "w:gz") as tar:
        manifest = tarfile.TarInfo(archive.MANIFEST)
        manifest.size = len(content)
        tar.addfile(manifest, io.BytesIO(content))
    with pytest.raises(StoreError, match="truncated or damaged"):
        backup.restore(damaged, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_something_else_is_told_from_a_backup(made: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "f.tar.gz"
    with tarfile.open(foreign, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("hello"), io.BytesIO())
    with pytest.raises(StoreError, match="not an archive of fieldbrook"):
        backup.restore(foreign, tmp_path / "copy")
    foreign.unlink()
    folder = tmp_path / "f"
    folder.mkdir()
    archive.pack(folder, foreign, "project", {})
    with pytest.raises(StoreError, match="holds an exported project, not a backup"):
        backup.restore(foreign, tmp_path / "copy")
    with pytest.raises(StoreError, match="No such file"):
        backup.restore(tmp_path / "absent", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("name", ["../out", "/tmp/out", "a/../../out"])
def test_an_archive_writes_nowhere_else(tmp_path: Path, name: str) -> None:
    manifest = (
        b'{"kind":"backup","format":1,"made_by":"x","made_at":"x","files":{"%s":'
        b'{"size":0,"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}}}'
    ) % name.encode()
    foreign = tmp_path / "f.tar.gz"
    with tarfile.open(foreign, "w:gz") as tar:
        first = tarfile.TarInfo("manifest.json")
        first.size = len(manifest)
        tar.addfile(first, io.BytesIO(manifest))
        tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    with pytest.raises(StoreError, match="not a valid name of a file"):
        backup.restore(foreign, tmp_path / "d" / "copy")
    assert not list(tmp_path.rglob("out"))


def test_an_archive_of_a_newer_format_names_both(tmp_path: Path) -> None:
    manifest = b'{"kind":"backup","format":2,"made_by":"fieldbrook 9.0","contents":[]}'
    foreign = tmp_path / "f.tar.gz"
    with tarfile.open(foreign, "w:gz") as tar:
        first = tarfile.TarInfo("manifest.json")
        first.size = len(manifest)
        tar.addfile(first, io.BytesIO(manifest))
    with pytest.raises(StoreError, match=r"format 2 .* fieldbrook 9\.0; .* up to format 1"):
        backup.restore(foreign, tmp_path / "copy")
