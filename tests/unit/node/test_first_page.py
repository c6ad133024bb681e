"""The addresses and the next command that a node prints at its start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fieldbrook.core.settings import Settings
from fieldbrook.node.first_page import (
    dashboard_address,
    event_addresses,
    next_command,
    ready_line,
)
from fieldbrook.security.certificates import Authority

EVERYWHERE = "0.0.0.0"  # noqa: S104 - no test binds it


@pytest.mark.parametrize(
    ("bind", "address"),
    [
        ("127.0.0.1", "http://localhost:3000"),
        ("::1", "http://localhost:3000"),
        ("localhost", "http://localhost:3000"),
        (EVERYWHERE, "http://localhost:3000"),
        ("192.0.2.7", "http://192.0.2.7:3000"),
        ("2001:db8::7", "http://[2001:db8::7]:3000"),
    ],
)
def test_it_is_one_that_a_browser_can_open(bind: str, address: str) -> None:
    assert dashboard_address(Settings(dashboard_bind=bind)) == address


@pytest.mark.parametrize(
    ("bind", "line"),
    [
        (EVERYWHERE, "listen on :8888"),
        ("::", "listen on :8888"),
        ("127.0.0.1", "listen on :8888 (127.0.0.1 only)"),
        ("node.example", "listen on :8888 (node.example only)"),
    ],
)
def test_the_line_of_a_ready_node_has_its_address(bind: str, line: str) -> None:
    assert ready_line(bind, 8888) == line


def test_beyond_the_loopback_it_is_the_name_that_the_certificate_has(tmp_path: Path) -> None:
    issued = Authority().issue(["*.farm.example", "node.example"])
    (tmp_path / "certificate.pem").write_bytes(issued.certificate)
    (tmp_path / "key.pem").write_bytes(issued.key)
    files: dict[str, Any] = {
        "tls_certificate": tmp_path / "certificate.pem",
        "tls_key": tmp_path / "key.pem",
    }
    beyond = Settings(dashboard_bind=EVERYWHERE, dashboard_port=3443, **files)
    assert dashboard_address(beyond) == "https://node.example:3443"
    named = beyond.changed(dashboard_hosts="Studio.example")
    assert dashboard_address(named) == "https://studio.example:3443"
    local = beyond.changed(dashboard_bind="127.0.0.1")
    assert dashboard_address(local) == "http://localhost:3443"


def test_plain_http_is_kept_where_nothing_else_is_configured(tmp_path: Path) -> None:
    path = tmp_path / "any.pem"
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"dashboard_bind": EVERYWHERE}, "serve"),
        ({"tls_certificate": path}, "serve"),
        ({"tls_certificate": path, "dashboard_bind": EVERYWHERE}, "redirect"),
        ({"tls_certificate": path, "tls_client_ca": path}, "redirect"),
        ({"tls_certificate": path, "dashboard_plain": "refuse"}, "refuse"),
    )
    for given, plain in cases:
        assert Settings(**given).plain_dashboard == plain


def test_devices_are_told_how_the_ports_are_protected(tmp_path: Path) -> None:
    assert event_addresses(Settings()) == ["http://localhost:8888", "mqtt://localhost:1883"]
    assert event_addresses(Settings(bind="192.0.2.7", mqtt_broker="192.0.2.8:1883")) == [
        "http://192.0.2.7:8888",
        "mqtt://192.0.2.8:1883",
    ]
    issued = Authority().issue(["node.example"])
    (tmp_path / "certificate.pem").write_bytes(issued.certificate)
    secure = Settings(tls_certificate=tmp_path / "certificate.pem", mqtt_tls=False)
    assert event_addresses(secure)[0] == "https://node.example:8888"
    assert event_addresses(secure)[1].startswith("mqtt://")


def test_the_next_command_names_only_what_is_not_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    here = Settings(data=tmp_path / "data")
    assert next_command(here, needs_setup=True).endswith("fieldbrook admin create")
    assert next_command(here, needs_setup=False).endswith("fieldbrook project list")
    other = Settings(data=tmp_path / "my data", http_port=8080)
    assert next_command(other, needs_setup=True).endswith(
        "fieldbrook --data 'my data' admin create --server http://localhost:8080"
    )
