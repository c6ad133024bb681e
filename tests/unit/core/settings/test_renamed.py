"""Old names of settings: they work for one more version."""

from __future__ import annotations

from pathlib import Path

import pytest

from fieldbrook.core.errors import SettingsError
from fieldbrook.core.settings import (
    REMOVED,
    RENAMED,
    load,
    settings_fields,
)


def test_the_old_name_of_a_setting_works_everywhere_and_a_warning_names_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "node.toml"
    file.write_text('prover = "http://prover.example"\n')
    monkeypatch.setenv("FIELDBROOK_SQL_ROWS", "7")
    settings = load(config=file, idle_s="9")
    assert (settings.project_idle_s, settings.sql_result_rows) == (9, 7)
    assert settings.prover_url == "http://prover.example"
    assert settings.warnings == (
        "--idle-s was renamed and will stop working in the next version; use --project-idle-s",
        (
            "FIELDBROOK_SQL_ROWS was renamed and will stop working in the next version; "
            "use FIELDBROOK_SQL_RESULT_ROWS"
        ),
        (
            f"prover in {file} was renamed and will stop working in the next version; "
            f"use prover_url in {file}"
        ),
    )
    assert load(project_idle_s="9", sql_result_rows="7").sql_result_rows == 7


def test_a_removed_setting_is_accepted_everywhere_and_a_warning_says_what_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "node.toml"
    file.write_text("spare_projects = 4\nshards = 3\n")
    monkeypatch.setenv("FIELDBROOK_SPARE_PROJECTS", "none at all")
    settings = load(config=file, spare_projects="1")
    assert settings.handler_threads == 3
    removed = "was removed and has no effect: projects start in running processes, see the setting"
    assert settings.warnings == (
        f"--spare-projects {removed} workers",
        f"FIELDBROOK_SPARE_PROJECTS {removed} workers",
        (
            f"shards in {file} was renamed and will stop working in the next version; "
            f"use handler_threads in {file}"
        ),
        f"spare_projects in {file} {removed} workers",
    )


def test_both_names_of_a_setting_in_one_source_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "node.toml"
    file.write_text("idle_s = 1\nproject_idle_s = 2\n")
    with pytest.raises(SettingsError, match=r"idle_s in .*node.toml is the old name of proj"):
        load(config=file)
    with pytest.raises(SettingsError, match="both are given; remove --sql-rows"):
        load(sql_rows="1", sql_result_rows="1")
    monkeypatch.setenv("FIELDBROOK_PROVER", "http://old")
    monkeypatch.setenv("FIELDBROOK_PROVER_URL", "http://new")
    with pytest.raises(SettingsError, match="FIELDBROOK_PROVER is the old name of"):
        load()


def test_an_error_names_a_setting_as_the_user_wrote_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "node.toml"
    file.write_text('idle_s = "long"\n')
    with pytest.raises(SettingsError, match=r"idle_s = 'long' \(from .*node.toml\): must") as info:
        load(config=file)
    assert "project_idle_s" not in str(info.value)
    monkeypatch.setenv("FIELDBROOK_SQL_ROWS", "many")
    with pytest.raises(
        SettingsError, match=r"sql_rows = 'many' \(from FIELDBROOK_SQL_ROWS\): must"
    ):
        load()
    with pytest.raises(SettingsError, match=r"idle_s = 'x' \(from --idle-s\): must"):
        load(idle_s="x")
    monkeypatch.setenv("FIELDBROOK_PROJECT_IDLE_S", "y")
    with pytest.raises(SettingsError, match="project_idle_s = 'y'"):
        load(config=file)


def test_a_source_that_overrides_another_does_so_under_either_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "node.toml"
    file.write_text("idle_s = 1\nsql_result_rows = 1\n")
    monkeypatch.setenv("FIELDBROOK_PROJECT_IDLE_S", "2")
    monkeypatch.setenv("FIELDBROOK_SQL_ROWS", "2")
    settings = load(config=file)
    assert (settings.project_idle_s, settings.sql_result_rows) == (2, 2)


def test_every_new_name_is_a_setting_and_no_old_name_is() -> None:
    assert set(RENAMED.values()) <= settings_fields().keys()
    assert not {*RENAMED, *REMOVED} & settings_fields().keys()
