"""The dashboard's files: which are read from a folder, and their addresses."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from pathlib import Path

import pytest

from fieldbrook.core.errors import SettingsError
from fieldbrook.gateway.http.site.dashboard import (
    DASHBOARD_PATHS,
    Dashboard,
    accepts_gzip,
    is_page,
)


def write(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    names = {"index": "index.html", "app": "app.js", "page": "pages/one.js"}
    for name, text in files.items():
        path = folder / names[name]
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return folder


PAGE = '<script type="module" src="/ui/app.js"></script><p>/ui/ is a path</p>'


def address_of(dashboard: Dashboard) -> str:
    """Return the address of app.js in the page."""
    match = re.search(rb'src="(/ui/[0-9a-f]{12}/)app\.js"', dashboard.page().body)
    assert match is not None
    return match[1].decode()


def test_every_file_is_served_below_the_digest_of_all_that_the_page_names(tmp_path: Path) -> None:
    folder = write(tmp_path, index=PAGE, app="1;", page="2;")
    dashboard = Dashboard.of(folder)
    prefix = address_of(dashboard)
    app, page = dashboard.file(f"{prefix}app.js"), dashboard.file(f"{prefix}pages/one.js")
    assert app is not None
    assert page is not None
    assert app.kind == "text/javascript; charset=utf-8"
    assert app.body.startswith(b"1;\n")
    assert gzip.decompress(page.gzipped) == b"2;"
    assert b"<p>/ui/ is a path</p>" in dashboard.page().body
    for path in ("app.js", f"{prefix}", f"{prefix}index.html", f"{prefix}../app.js", "/ui/app.js"):
        assert dashboard.file(path) is None


def test_a_change_of_any_file_changes_all_addresses(tmp_path: Path) -> None:
    first = address_of(Dashboard(write(tmp_path, index=PAGE, app="1;", page="2;")))
    assert address_of(Dashboard(tmp_path)) == first
    second = address_of(Dashboard(write(tmp_path, page="3;")))
    third = address_of(Dashboard(write(tmp_path, index=PAGE + " ")))
    assert len({first, second, third}) == 3


def test_files_that_browsers_do_not_need_are_not_served(tmp_path: Path) -> None:
    folder = write(tmp_path, index=PAGE, app="1;")
    (folder / "api.d.ts").write_text("types")
    (folder / "vendor.toml").write_text("table")
    (folder / "tsconfig.json").write_text("{}")
    (folder / ".git").mkdir()
    (folder / ".git" / "hidden.js").write_text("hidden")
    (folder / "node_modules").mkdir()
    (folder / "node_modules" / "tool.js").write_text("tool")
    assert list(Dashboard(folder)._site.files) == [f"{address_of(Dashboard(folder))}app.js"]


def test_scripts_and_sheets_that_the_page_names_are_part_of_it_and_no_others_may_be(
    tmp_path: Path,
) -> None:
    sheet, script = "p > b { color: red }\n", "const asked = 1 < 2;\n"
    elements = '<script src="/ui/first.js"></script><link rel="stylesheet" href="/ui/a/b.css">'
    folder = write(tmp_path, index=f"{elements}{PAGE}", app="1;")
    without = Dashboard(folder)
    assert "script-src 'self'; style-src 'self'; " in without.policy
    assert elements.replace("/ui/", address_of(without)).encode() in without.page().body
    (folder / "first.js").write_text(script)
    (folder / "a").mkdir()
    (folder / "a" / "b.css").write_text(sheet)
    dashboard = Dashboard(folder)
    whole = f"<script>{script}</script><style>{sheet}</style>"
    assert whole.encode() in dashboard.page().body
    for name in ("first.js", "a/b.css"):
        assert dashboard.file(f"{address_of(dashboard)}{name}") is None
    assert (
        f"script-src 'self' 'sha256-{sha256(script)}'; "
        f"style-src 'self' 'sha256-{sha256(sheet)}'; " in dashboard.policy
    )
    (folder / "first.js").write_text("'</script>'")
    with pytest.raises(SettingsError, match=r"first\.js has '</'"):
        Dashboard(folder)


def sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_a_developers_folder_is_read_again_for_each_page_and_the_packages_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write(tmp_path, index=PAGE, app="1;")
    followed, read_once = Dashboard.of(folder), Dashboard(folder)
    before = address_of(read_once)
    write(tmp_path, app="2;")
    assert address_of(followed) != before
    assert address_of(read_once) == before
    (folder / "index.html").unlink()
    assert address_of(followed) != before
    assert "cannot be read" in caplog.text


@pytest.mark.parametrize("names", [[], ["app.js"]])
def test_a_folder_without_a_page_is_refused(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).write_text("1;")
    with pytest.raises(SettingsError, match=r"index\.html"):
        Dashboard(tmp_path)


def test_a_folder_that_is_too_large_for_memory_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, index=PAGE)
    (folder / "large.js").write_bytes(b" " * (8 << 20))
    with pytest.raises(SettingsError, match="8 MiB"):
        Dashboard(folder)


def test_the_set_of_page_addresses_is_explicit() -> None:
    pages = ("/", "/setup", "/signin", "/projects", "/projects/room/events", "/node/health")
    others = ("//", "/setup/", "/setups", "/projectsx", "/version", "/liveness", "/docs", "/uix")
    for path in pages:
        assert is_page(path)
        assert re.fullmatch(DASHBOARD_PATHS, path)
    for path in others:
        assert not is_page(path)
        assert not re.fullmatch(DASHBOARD_PATHS, path)
    assert not is_page("/ui/x/app.js")
    assert re.fullmatch(DASHBOARD_PATHS, "/ui/x/app.js")


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("gzip", True),
        ("br, GZIP;q=0.5, *", True),
        ("deflate, gzip; q=1.0", True),
        ("gzip;q=0", False),
        ("gzip;q=0.000", False),
        ("", False),
        ("br", False),
        ("identity", False),
    ],
)
def test_gzip_is_sent_to_those_who_take_it(header: str, accepted: bool) -> None:
    assert accepts_gzip(header) is accepted
