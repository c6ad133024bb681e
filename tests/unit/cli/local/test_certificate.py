"""`fieldbrook cert`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fieldbrook.cli.main import run
from fieldbrook.security.local_certificate import AUTHORITY_FILE, local_identity


def test_trust_names_the_file_of_the_node_and_makes_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    local_identity(tmp_path / "data" / "secrets")
    file = str(tmp_path / "data" / "secrets" / AUTHORITY_FILE)
    assert run(["--data", str(tmp_path / "data"), "cert", "trust"]) == 0
    shown = capsys.readouterr().out
    assert f"certutil -d sql:$HOME/.pki/nssdb -A -t C,, -n fieldbrook -i {file}" in shown
    assert run(["--data", str(tmp_path / "data"), "cert", "trust", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"ca": file}
    assert not (tmp_path / "tls").exists()


def test_files_are_written_into_the_data_folder_unless_another_one_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["--data", "there", "cert", "localhost", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ca"] == "there/tls/ca.pem"
    assert run(["cert", "localhost", "--folder", "here"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"there", "here"}


def test_trust_without_a_nodes_certificate_says_who_makes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--data", str(tmp_path), "cert", "trust"]) != 0
    assert "localhost-ca.pem does not exist" in capsys.readouterr().err
