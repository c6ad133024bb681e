"""Where settings come from, and how invalid ones are refused."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fieldbrook.core import settings
from fieldbrook.core.errors import SettingsError


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("FIELDBROOK_"):
            monkeypatch.delenv(name)


def test_chains_come_from_a_file_or_as_json_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "node.toml"
    endpoint = "https://user:hunter22@babel.example"
    file.write_text(f'[[chains]]\nid = 4690\nname = "iotex-testnet"\nendpoint = "{endpoint}"\n')
    loaded = settings.load(config=file)
    assert [(c.id, c.name, c.endpoints) for c in loaded.chains] == [
        (4690, "iotex-testnet", (endpoint,))
    ]
    assert "hunter22" not in repr(loaded)
    assert "hunter22" not in repr(loaded.chains)
    chains = [{"id": 4690, "name": "iotex-testnet", "endpoint": endpoint}]
    monkeypatch.setenv("FIELDBROOK_CHAINS", json.dumps(chains))
    assert settings.load().chains == loaded.chains
    settings.clean_environment()
    assert settings.load().chains == ()


@pytest.mark.parametrize(
    "value",
    [
        "4690",
        "nonsense",
        "[" * 100_000,
        "{}",
        "[5]",
        '[{"id": 4690}]',
        '[{"id": 0, "name": "n", "endpoint": "https://e"}]',
        '[{"id": 1, "name": "n", "endpoint": "ftp://hunter22"}]',
        '[{"id": 1, "name": "n", "endpoint": "https://e", "key": "hunter22"}]',
        (
            '[{"id": 1, "name": "n", "endpoint": "https://e"}, '
            '{"id": 1, "name": "m", "endpoint": "https://e"}]'
        ),
        (
            '[{"id": 1, "name": "n", "endpoint": "https://e"}, '
            '{"id": 2, "name": "n", "endpoint": "https://e"}]'
        ),
    ],
)
def test_chains_of_another_form_are_refused_without_telling_their_endpoints(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("FIELDBROOK_CHAINS", value)
    with pytest.raises(SettingsError) as caught:
        settings.load()
    assert "must be a list like" in str(caught.value)
    assert "hunter22" not in str(caught.value)


def test_a_time_zone_is_one_the_machine_knows() -> None:
    assert settings.load(cron_timezone="Europe/Berlin").cron_timezone == "Europe/Berlin"
    for name in ("Nowhere/Land", "../etc/passwd"):
        with pytest.raises(SettingsError, match="must be UTC or a zone"):
            settings.load(cron_timezone=name)


def test_flags_win_over_the_environment_and_the_environment_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "node.toml"
    file.write_text("http_port = 1001\nmqtt_port = 1002\ndashboard_port = 1003\n")
    monkeypatch.setenv("FIELDBROOK_CONFIG", str(file))
    monkeypatch.setenv("FIELDBROOK_HTTP_PORT", "2001")
    monkeypatch.setenv("FIELDBROOK_MQTT_PORT", "2002")
    loaded = settings.load(http_port="3001", project_idle_s=None)
    assert (loaded.http_port, loaded.mqtt_port, loaded.dashboard_port) == (3001, 2002, 1003)
    assert loaded.project_idle_s == 300


@pytest.mark.parametrize(
    ("given_", "environment", "reason"),
    [
        (
            {"http_port": "70000"},
            {},
            "http_port = '70000' (from --http-port): must be a whole number from 1 to 65535",
        ),
        (
            {},
            {"FIELDBROOK_LOG_LEVEL": "loud"},
            (
                "log_level = 'loud' (from FIELDBROOK_LOG_LEVEL): "
                "must be one of DEBUG, INFO, WARNING, ERROR, CRITICAL"
            ),
        ),
        (
            {"mqtt_broker": "broker"},
            {},
            (
                "mqtt_broker = 'broker' (from --mqtt-broker): "
                "must be host:port, e.g. broker.example:1883 or [::1]:1883"
            ),
        ),
    ],
)
def test_a_bad_setting_is_named_with_its_value_its_source_and_what_is_allowed(
    given_: dict[str, Any],
    environment: Mapping[str, str],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as caught:
        settings.load(**given_)
    assert str(caught.value) == reason


def test_all_bad_settings_are_named_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "node.toml"
    file.write_text('bind = 5\nmqtt_tls = "perhaps"\nworkers = true\n')
    monkeypatch.setenv("FIELDBROOK_TRACE_RATIO", "2")
    with pytest.raises(SettingsError) as caught:
        settings.load(config=file, http_port="x", unheard_of="1")
    *found, last = str(caught.value).split("; ", 4)
    assert found == [
        f"bind = 5 (from {file}): must be a string",
        "http_port = 'x' (from --http-port): must be a whole number from 1 to 65535",
        f"mqtt_tls = 'perhaps' (from {file}): must be true or false",
        f"workers = True (from {file}): must be a whole number from 0 to 64",
    ]
    number, unknown = last.split("; ", 1)
    assert number == "trace_ratio = '2' (from FIELDBROOK_TRACE_RATIO): must be a number from 0 to 1"
    assert unknown.startswith("unheard_of = '1' (from --unheard-of): there is no such setting")


def test_the_case_of_a_variable_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("fieldbrook_Http_Port", "1001")
    monkeypatch.setenv("FIELDBROOK_CHAINS", "null")
    loaded = settings.load()
    assert (loaded.http_port, loaded.sources) == (1001, {"http_port": "environment"})


@pytest.mark.parametrize("name", sorted(settings.settings_fields()))
def test_an_empty_variable_is_refused_unless_the_setting_says_what_empty_means(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"FIELDBROOK_{name.upper()}", "")
    if _takes_empty(name):
        assert getattr(settings.load(), name) in (None, "")
    else:
        with pytest.raises(SettingsError, match=f"FIELDBROOK_{name.upper()}"):
            settings.load()


def _takes_empty(name: str) -> bool:
    # For an empty user name, password or key, a description needs no sentence.
    field = settings.settings_fields()[name]
    return "Empty: " in field.description or name in (
        "mqtt_username",
        "mqtt_password",
        "tls_key",
    )


def test_the_error_for_an_empty_variable_tells_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIELDBROOK_PROJECT_IDLE_S", "")
    with pytest.raises(SettingsError, match="must not be empty; remove it for the default, 300"):
        settings.load()


def test_a_bad_value_in_a_file_is_blamed_on_the_file(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text('deadline_ms = "soon"\n')
    with pytest.raises(SettingsError, match=r"deadline_ms = 'soon'.*node.toml.*10 to 10000"):
        settings.load(config=file)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("http_prot = 1\n", "unknown setting http_prot"),
        ("http_port =\n", "is not TOML"),
        ("http_port = " + "[" * 100_000, "is not TOML"),
        ("http_port = " + "9" * 100_000, "is not TOML"),
    ],
)
def test_a_settings_file_that_cannot_be_meant_is_refused(
    content: str, reason: str, tmp_path: Path
) -> None:
    file = tmp_path / "node.toml"
    file.write_text(content)
    with pytest.raises(SettingsError, match=reason):
        settings.load(config=file)


def test_a_settings_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        settings.load(config=tmp_path / "none.toml")


def test_a_password_is_in_no_error_and_in_no_representation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FIELDBROOK_MQTT_PASSWORD", "hunter22")
    assert "hunter22" not in repr(settings.load())
    with pytest.raises(SettingsError) as caught:
        settings.load(http_port=0, mqtt_password=["hunter22"])
    assert "hunter22" not in str(caught.value)
    assert "mqtt_password = (not shown)" in str(caught.value)


def test_settings_survive_the_way_to_another_process() -> None:
    first = settings.load(http_port=1234, data=Path("somewhere"), log_format="json")
    assert pickle.loads(pickle.dumps(first)) == first  # noqa: S301 - our own bytes


@pytest.mark.parametrize(
    ("address", "parts"),
    [("a:1", ("a", 1)), ("[::1]:1883", ("::1", 1883)), ("10.0.0.1:65535", ("10.0.0.1", 65535))],
)
def test_an_address_is_split_into_host_and_port(address: str, parts: tuple[str, int]) -> None:
    assert settings.split_address(address) == parts


@pytest.mark.parametrize("address", ["a", ":1", "a:", "::1:5", "a:0", "a:65536", "a:x", "a:1²"])
def test_what_is_not_host_and_port_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        settings.split_address(address)


def test_each_value_knows_its_source_also_in_another_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "node.toml"
    file.write_text("http_port = 1001\nmqtt_port = 1002\nidle_s = 60\n")
    monkeypatch.setenv("FIELDBROOK_MQTT_PORT", "2002")
    monkeypatch.setenv("FIELDBROOK_MQTT_PASSWORD", "hunter22")
    first = settings.load(config=file, dashboard_port="3003", data=None)
    expected = {
        "http_port": "file",
        "project_idle_s": "file",
        "mqtt_port": "environment",
        "mqtt_password": "environment",
        "dashboard_port": "option",
    }
    assert first.sources == expected
    assert pickle.loads(pickle.dumps(first)).sources == expected  # noqa: S301 - our own bytes
