"""Which files of modules may be removed."""

from __future__ import annotations

import os
from pathlib import Path

from fieldbrook.storage.registry.module_files import GRACE_S, collect

OLD_S = 2 * GRACE_S


def written(folder: Path, name: str, age_s: float) -> Path:
    path = folder / name
    path.write_bytes(b"x")
    os.utime(path, (path.stat().st_mtime - age_s,) * 2)
    return path


def test_files_nobody_owns_go_with_everything_made_from_them(tmp_path: Path) -> None:
    kept = [written(tmp_path, f"{'a' * 64}.{kind}", OLD_S) for kind in ("wasm", "t1.cwasm")]
    for kind in ("wasm", "t1.cwasm", "wasm.tmp"):
        written(tmp_path, f"{'b' * 64}.{kind}", OLD_S)
    assert collect(tmp_path, {"a" * 64}) == 0
    assert sorted(tmp_path.iterdir()) == sorted(kept)


def test_a_file_that_was_just_written_waits_for_its_owner(tmp_path: Path) -> None:
    young = written(tmp_path, f"{'b' * 64}.wasm", 0)
    assert collect(tmp_path, set()) == 1
    assert young.exists()
    assert collect(tmp_path, set(), grace_s=-1) == 0
    assert not young.exists()


def test_an_empty_folder_has_nothing_to_remove(tmp_path: Path) -> None:
    assert collect(tmp_path, set()) == 0
