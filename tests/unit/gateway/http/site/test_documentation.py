"""The site's files: only files in the manifest are read, and only if they are unchanged."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from fieldbrook.gateway.http.site.documentation import Manifest, Site


def write_site(folder: Path, files: dict[str, bytes], scripts: tuple[str, ...] = ()) -> None:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    draft = folder / "draft"
    draft.write_text(json.dumps({"files": digests, "scripts": list(scripts)}))
    draft.replace(folder / "manifest.json")


def test_a_folder_without_a_manifest_is_no_site(tmp_path: Path) -> None:
    site = Site(tmp_path / "site")
    assert site.manifest() is None
    (tmp_path / "site").mkdir()
    assert site.manifest() is None


def test_a_new_build_is_noticed_and_so_is_its_removal(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_site(tmp_path, {"index.html": b"one"})
    first = site.manifest()
    assert first is not None
    assert site.manifest() is first
    write_site(tmp_path, {"index.html": b"two", "more/index.html": b"x"})
    second = site.manifest()
    assert second is not None
    assert set(second.files) == {"index.html", "more/index.html"}
    (tmp_path / "manifest.json").unlink()
    assert site.manifest() is None


def test_a_file_is_read_only_while_it_is_as_it_was_built(tmp_path: Path) -> None:
    site = Site(tmp_path)
    write_site(tmp_path, {"index.html": b"built", "a/b.css": b"x"})
    manifest = site.manifest()
    assert manifest is not None
    assert site.read("index.html", manifest.files["index.html"]) == b"built"
    (tmp_path / "index.html").write_bytes(b"another")
    assert site.read("index.html", manifest.files["index.html"]) is None
    (tmp_path / "a" / "b.css").unlink()
    assert site.read("a/b.css", manifest.files["a/b.css"]) is None


def test_a_link_to_a_file_outside_of_the_site_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    folder = tmp_path / "site"
    write_site(folder, {"index.html": b"built"})
    (folder / "index.html").unlink()
    (folder / "index.html").symlink_to(secret)
    site = Site(folder)
    manifest = site.manifest()
    assert manifest is not None
    assert site.read("index.html", manifest.files["index.html"]) is None


@pytest.mark.parametrize("name", ["/etc/passwd", "../secret", "a/../../b", "a//b", "a/./b", ""])
def test_a_manifest_that_names_a_file_outside_of_the_site_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not a path inside the site"):
        Manifest.parse(json.dumps({"files": {name: "0"}, "scripts": []}).encode())


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"files": [], "scripts": []} x', "null"])
def test_a_manifest_that_cannot_be_read_is_logged_once(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "manifest.json").write_text(text)
    site = Site(tmp_path)
    assert site.manifest() is None
    assert site.manifest() is None
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert "manifest.json" in caplog.text


def test_the_policy_allows_the_listed_scripts_and_no_other_server() -> None:
    text = json.dumps({"files": {}, "scripts": ["sha256-AAAA", "sha256-BBBB"]})
    policy = Manifest.parse(text.encode()).policy
    assert "script-src 'self' 'sha256-AAAA' 'sha256-BBBB';" in policy
    assert policy.startswith("default-src 'none';")
    assert "http" not in policy
    assert "*" not in policy
