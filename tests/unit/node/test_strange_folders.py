"""Commands that look at a data folder in which something else is in the place of a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fieldbrook.core.errors import StoreError
from fieldbrook.node import upgrade
from fieldbrook.node.doctor import folder
from fieldbrook.security.node_secrets import load_or_create_key, problems_in
from fieldbrook.storage import data_lock
from fieldbrook.storage.backup import backup
from fieldbrook.storage.usage import measure
from tests.unit.storage.backup.data_folder import SHA256, write


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write(tmp_path / "data")
    return tmp_path / "data"


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def circle(path: Path) -> None:
    path.symlink_to(path)


def large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize("make", [os.mkfifo, device, circle, large])
def test_a_key_that_is_no_short_file_is_named(data: Path, make: Callable[[Path], None]) -> None:
    key = data / "secrets" / "operator.key"
    key.unlink(missing_ok=True)
    make(key)
    assert any("operator.key" in problem for problem in problems_in(key.parent))
    assert folder.secrets(data).state == "failed"
    with pytest.raises(StoreError, match=r"operator\.key"):
        load_or_create_key(key.parent, key.name)


@pytest.mark.parametrize("place", ["rollback", "refused", "uploads"])
def test_a_link_to_itself_is_measured_as_a_link(data: Path, place: str) -> None:
    circle(data / place)
    assert measure(data).folders[place] <= 4096


def test_a_lock_file_of_another_form_is_a_store_that_cannot_be_read(data: Path) -> None:
    (data / "registry" / "lock.mdb").write_bytes(b'\xff\xfe{"a":' * 10)
    found = {finding.check: finding for finding in upgrade.examine(data).findings}
    assert found["registry"].state == "failed"
    assert str(data / "registry") in found["registry"].text


def test_a_pipe_in_the_place_of_the_lock_is_not_waited_for(data: Path) -> None:
    (data / data_lock.RUN).mkdir(exist_ok=True)
    (data / data_lock.RUN / data_lock.OWNER).unlink(missing_ok=True)
    os.mkfifo(data / data_lock.RUN / data_lock.OWNER)
    assert data_lock.holder(data) == ""


@pytest.mark.parametrize("make", [os.mkfifo, device, circle])
def test_a_module_that_is_no_file_is_missing_in_a_backup(
    data: Path, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    module = data / "modules" / f"{SHA256}.wasm"
    module.unlink()
    make(module)
    assert backup.back_up(data, tmp_path / "b.tar.gz").missing == [SHA256]
    backup.back_up_stopped(data, tmp_path / "c.tar.gz")


def test_a_pipe_in_the_place_of_a_journal_is_not_waited_for(data: Path, tmp_path: Path) -> None:
    folder = data / "journal" / "9"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "0.segment")
    found = {finding.check: finding for finding in upgrade.examine(data).findings}
    assert found["journals"].state == "failed"
    assert "not a regular file" in found["journals"].text.lower()
    with pytest.raises(StoreError, match="(?i)not a regular file"):
        backup.back_up(data, tmp_path / "b.tar.gz")
