"""Folders whose names are synced, and folders whose content is never synced."""

from __future__ import annotations

from pathlib import Path

import pytest

from fieldbrook.system import fsync


def test_a_folder_is_made_with_those_above_it_and_making_it_again_is_nothing(
    tmp_path: Path,
) -> None:
    made = tmp_path / "a" / "b" / "c"
    fsync.make_folder(made)
    (made / "f").touch()
    fsync.make_folder(made)
    fsync.sync_folders_below(tmp_path)
    assert (made / "f").exists()
    assert made.stat().st_mode & 0o777 == 0o700


def test_syncing_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        fsync.sync_folder(tmp_path / "absent")


def test_what_is_never_synced_is_kept_while_the_system_runs(tmp_path: Path) -> None:
    folder = tmp_path / "refused"
    fsync.start_unsynced(folder)
    (folder / "f").touch()
    fsync.start_unsynced(folder)
    assert (folder / "f").exists()
    assert fsync.is_of_this_boot(folder)


def test_what_is_never_synced_is_removed_after_the_system_was_down(tmp_path: Path) -> None:
    folder = tmp_path / "refused"
    fsync.start_unsynced(folder)
    (folder / "f").touch()
    (folder / ".boot").write_text("another")
    assert not fsync.is_of_this_boot(folder)
    fsync.start_unsynced(folder)
    assert not (folder / "f").exists()
    assert fsync.is_of_this_boot(folder)


def test_a_mark_that_a_power_cut_damaged_is_none(tmp_path: Path) -> None:
    folder = tmp_path / "refused"
    fsync.start_unsynced(folder)
    (folder / ".boot").write_bytes(b"\xff\x00\xff")
    assert not fsync.is_of_this_boot(folder)
