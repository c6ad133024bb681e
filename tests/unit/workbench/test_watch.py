"""Watching a folder: which files are watched, and which events are changes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fieldbrook.workbench import scaffold, watch
from fieldbrook.workbench.scaffold import Recipe, ScaffoldError


def names(folder: Path, *ignored: str) -> set[str]:
    return {str(path.relative_to(folder)) for path in watch.look(folder, ignored)}


def write(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_build_output_hidden_files_and_copies_of_editors_are_not_watched(tmp_path: Path) -> None:
    for name in ("applet.c", "src/lib.rs", "events.jsonl"):
        write(tmp_path / name)
    for name in (
        *("build/m.wasm", "target/debug/a.rs", "node_modules/a/index.js", ".git/HEAD"),
        *("m.wasm", ".applet.c.swp", "applet.c~", "#applet.c#", "4913", "applet.o"),
    ):
        write(tmp_path / name)
    assert names(tmp_path) == {"applet.c", "src/lib.rs", "events.jsonl"}
    assert names(tmp_path, "*.jsonl", "src") == {"applet.c"}


def test_files_that_are_added_removed_or_changed_are_told(tmp_path: Path) -> None:
    kept, gone, edited = (write(tmp_path / name) for name in ("a.c", "b.c", "c.c"))
    before = watch.look(tmp_path)
    gone.unlink()
    edited.write_text("y")
    added = write(tmp_path / "d.c")
    after = watch.look(tmp_path, known=before)
    assert watch.changed(before, after) == [gone, edited, added]
    assert kept in after
    assert watch.changed(after, watch.look(tmp_path, known=after)) == []


def test_a_file_that_is_written_with_the_same_content_has_not_changed(tmp_path: Path) -> None:
    path = write(tmp_path / "package-lock.json")
    before = watch.look(tmp_path)
    path.unlink()
    write(path)
    assert watch.changed(before, watch.look(tmp_path, known=before)) == []


def test_a_second_change_at_the_same_time_and_of_the_same_size_is_seen(tmp_path: Path) -> None:
    path = write(tmp_path / "a.c", "1")
    before = watch.look(tmp_path)
    times = (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    path.write_text("2")
    os.utime(path, ns=times)
    assert watch.changed(before, watch.look(tmp_path, known=before)) == [path]


def test_an_older_file_is_not_read_again(tmp_path: Path) -> None:
    path = write(tmp_path / "a.c")
    os.utime(path, (1, 1))
    before = watch.look(tmp_path)
    assert watch.look(tmp_path, known=before)[path] is before[path]


def test_files_elsewhere_are_watched_and_may_be_missing(tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    folder = write(tmp_path / "meter" / "a.c").parent
    before = watch.look(folder, others=[events])
    assert set(before) == {folder / "a.c"}
    write(events)
    assert watch.changed(before, watch.look(folder, others=[events])) == [events]


def test_pipes_and_links_to_folders_are_left_out(tmp_path: Path) -> None:
    write(tmp_path / "a.c")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "dangling").symlink_to("nowhere")
    assert names(tmp_path) == {"a.c"}


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "FILES_LIMIT", 3)
    for number in range(4):
        write(tmp_path / f"{number}.c")
    with pytest.raises(ScaffoldError, match="more than 3 files to watch") as caught:
        watch.look(tmp_path)
    assert "`ignore`" in caught.value.hint


@pytest.mark.parametrize(
    ("recipe", "files", "said"),
    [
        (Recipe("a.wasm", "", (), {}, ""), ("a.c",), "applet.toml has no build command"),
        (Recipe("a.wasm", "a.wat", (), {}, ""), ("b.wat",), "a.wat does not exist"),
        (
            Recipe("a.wasm", "", (("cc",),), {}, ""),
            ("applet.toml", "README.md", "events.jsonl", "device.sh"),
            "has no sources",
        ),
    ],
)
def test_a_folder_without_what_a_build_needs_is_refused(
    recipe: Recipe, files: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    for name in files:
        write(tmp_path / name)
    with pytest.raises(ScaffoldError, match=said):
        watch.require_sources(tmp_path, recipe, watch.look(tmp_path))


@pytest.mark.parametrize("template", scaffold.TEMPLATES)
def test_every_template_has_what_a_build_needs(template: str, tmp_path: Path) -> None:
    folder = tmp_path / "meter"
    scaffold.create("meter", template, folder)
    watch.require_sources(folder, scaffold.read_recipe(folder), watch.look(folder))
