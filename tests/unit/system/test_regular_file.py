"""Bounded reading of files that another user may have made."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from fieldbrook.system.regular_file import read_regular_file


def test_a_file_is_read_up_to_its_limit_and_through_a_link(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_bytes(b"1234")
    link.symlink_to(file)
    assert read_regular_file(link, 4) == b"1234"
    with pytest.raises(OSError, match="more than 3 bytes"):
        read_regular_file(file, 3)


def test_what_is_no_regular_file_is_refused_unread(tmp_path: Path) -> None:
    pipe, loop, link = (tmp_path / name for name in ("pipe", "loop", "link"))
    os.mkfifo(pipe)
    loop.symlink_to(loop)
    link.symlink_to("/dev/zero")
    for path in (pipe, link, Path("/dev/zero")):
        with pytest.raises(OSError, match="not a regular file"):
            read_regular_file(path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        with pytest.raises(OSError, match="No such device"):
            read_regular_file(tmp_path / "socket")
    with pytest.raises(OSError, match="symbolic links"):
        read_regular_file(loop)
    with pytest.raises(IsADirectoryError):
        read_regular_file(tmp_path)
