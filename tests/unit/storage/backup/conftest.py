"""A data folder, and a backup of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fieldbrook.storage.backup import backup
from tests.unit.storage.backup.data_folder import (
    write,
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write(tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def made(data: Path, tmp_path: Path) -> Path:
    backup.back_up(data, tmp_path / "b.tar.gz")
    return tmp_path / "b.tar.gz"
