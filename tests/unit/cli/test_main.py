"""The command line without a node: what it prints, refuses, saves, and how it starts."""

from __future__ import annotations

import json
import os
import pickle
import stat
import subprocess
import sys
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook import __version__
from fieldbrook.cli import main
from fieldbrook.cli.client import (
    Client,
    ClientError,
    RefusedError,
    Session,
    Upload,
    WrongUsageError,
    encode_multipart,
    load_session,
    normal_server,
    save_session,
    session_path,
)
from fieldbrook.cli.console import printable
from fieldbrook.cli.remote.events import failed, log_line
from fieldbrook.cli.remote.objects import pick
from fieldbrook.core import settings
from fieldbrook.core.errors import SettingsError


@pytest.fixture(autouse=True)
def _clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("FIELDBROOK_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main.run(list(arguments))
    printed = capsys.readouterr()
    return code, printed.out, printed.err


# ---------------------------------------------------------------- help and exit codes


def commands(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The paths of all commands and groups."""
    found = [path]
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            found += commands(command, (*path, name))
        else:
            found.append((*path, name))
    return found


@pytest.mark.parametrize("path", commands(main.cli), ids=" ".join)
def test_every_command_explains_itself(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, *path, "--help")
    assert code == 0
    assert out.startswith("Usage: fieldbrook")
    assert "\\b" not in out


def test_the_first_commands_of_a_tour_stand_each_on_its_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, out, _ = run(capsys, "--help")
    assert "  fieldbrook project create room\n" in out


def test_a_command_that_does_not_exist_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "projct", "list")
    assert (code, out) == (2, "")
    assert "projct" in err


def test_a_command_that_needs_a_login_says_how_to_log_in(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, err = run(capsys, "project", "list", "--server", "node.example:9000")
    assert (code, out) == (4, "")
    assert "not logged in to http://node.example:9000" in err
    assert "fieldbrook login --server http://node.example:9000" in err


def test_options_shared_by_all_commands_may_stand_before_or_after_the_commands_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = run(capsys, "--json", "version")
    assert before == run(capsys, "version", "--json")
    assert json.loads(before[1]) == {"version": __version__}


@pytest.mark.parametrize("server", ["ftp://x", "http://", "http://a:b", "http://u:p@x", "a b:c"])
def test_what_is_no_address_of_a_node_is_wrong_usage(
    server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "status", "--server", server)
    assert code == 2
    assert "is not the address of a node" in err


def test_an_address_without_a_scheme_is_http() -> None:
    assert normal_server("node:8888/") == "http://node:8888"
    assert normal_server("https://node/prefix/") == "https://node/prefix"


def test_a_password_on_the_command_line_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "admin", "create", "--password", "hunter22", "--setup-code", "x")
    assert code == 2
    assert "hunter22" not in err
    assert "--password -" in err


def test_without_a_setup_code_it_is_said_where_the_code_lies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "admin", "create", "--data", str(tmp_path / "elsewhere"))
    assert code == 4
    assert str(tmp_path / "elsewhere" / "secrets" / "setup-code") in err
    assert "--setup-code" in err


@pytest.mark.parametrize(
    "payload", [[], ["--data", "a", "-"], ["--data", "a", "--file", "b"], ["what"]]
)
def test_an_event_needs_exactly_one_payload(
    payload: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "send", "room", "--publisher", "p", "--token", "t", *payload)
    assert code == 2
    assert "--data" in err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_and_says_elsewhere_what_to_do_with_it(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "completion", shell)
    assert code == 0
    assert "_FIELDBROOK_COMPLETE" in out
    assert "new shell" in err


def test_showing_help_imports_neither_the_node_nor_its_libraries() -> None:
    script = (
        "import sys; from fieldbrook.cli import main; code = main.run(['--help']);"
        "print(*sys.modules); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(main.__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    heavy = {"pydantic", "tornado", "lmdb", "msgspec", "wasmtime", "thespian", "jwt", "asyncio"}
    assert loaded & heavy == set()
    assert "http.client" not in loaded


# ---------------------------------------------------------------- answers


def test_a_refusal_shows_each_offending_field_on_a_line_of_its_own() -> None:
    fields = [{"field": "name", "msg": "missing", "in": "body"}, {"field": "key", "msg": "long"}]
    body = {"key": "badRequest", "msg": "invalid parameters", "desc": "", "fields": fields}
    assert str(RefusedError(400, body)).splitlines() == [
        "the node refused: invalid parameters (400 badRequest)",
        "  name: missing",
        "  key: long",
    ]


@pytest.mark.parametrize(
    ("status", "key", "code"),
    [
        (401, "InvalidToken", 4),
        (403, "DisabledAccount", 4),
        (403, "UploadFileSizeLimit", 1),
        (404, "ProjectNotFound", 1),
        (409, "ProjectNameConflict", 1),
        (503, "ServiceUnavailable", 1),
    ],
)
def test_an_exit_code_tells_what_is_not_allowed_from_what_is_refused(
    status: int, key: str, code: int
) -> None:
    assert RefusedError(status, {"key": key}).exit_code == code


@pytest.mark.parametrize(
    ("result", "is_failure"),
    [
        ({"code": 0, "errMsg": ""}, False),
        ({"code": 1712, "errMsg": ""}, False),
        ({"code": -1, "errMsg": ""}, True),
        ({"code": -1, "errMsg": "wasm trap: unreachable"}, True),
        ({"code": 0, "errMsg": "instance not running"}, True),
    ],
)
def test_a_handler_failed_when_its_code_is_negative_or_it_has_an_error(
    result: dict[str, Any], is_failure: bool
) -> None:
    assert failed(result) is is_failure


def test_a_name_is_preferred_to_an_id() -> None:
    rows = [{"name": "one", "id": "222"}, {"name": "222", "id": "111"}]
    assert pick(rows, "222", "applet", "name", "id")["id"] == "111"
    assert pick(rows, "111", "applet", "name", "id")["name"] == "222"


def test_a_name_nobody_has_is_answered_with_the_nearest_or_with_all() -> None:
    rows = [{"name": "counter", "id": "1"}, {"name": "other", "id": "2"}]
    with pytest.raises(ClientError) as near:
        pick(rows, "conter", "applet", "name", "id")
    with pytest.raises(ClientError) as far:
        pick(rows, "zzz", "applet", "name", "id")
    assert near.value.hint == "did you mean counter?"
    assert far.value.hint == "applets: counter, other"


def test_a_log_line_cannot_drive_the_terminal() -> None:
    row = {
        "logTime": "T",
        "level": "info",
        "src": "wasmCode",
        "appletName": "a\x1b[2J",
        "msg": "x\r\ny",
    }
    assert log_line(row) == "T info  a\\x1b[2J: x\\r\\ny"


@given(st.text())
def test_printable_text_has_no_control_character_and_plain_text_stays_as_it_is(text: str) -> None:
    shown = printable(text)
    assert all(c.isprintable() or c == "\t" for c in shown)
    assert printable(shown) == shown


@given(st.text(min_size=1), st.binary())
def test_a_file_in_a_multipart_body_stays_whole_whatever_its_name_and_content(
    filename: str, content: bytes
) -> None:
    from fieldbrook.gateway.management.multipart import parse_form

    info = {"appletName": "a"}
    body, content_type = encode_multipart(info, Upload(filename, content), "m" * 32)
    form = parse_form(content_type, body)
    assert form.file == content
    assert form.info is not None
    assert json.loads(form.info) == info


# ---------------------------------------------------------------- the saved login


def test_a_login_is_saved_for_its_user_alone_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "session.json"
    session = Session("http://node:1", "t", "admin", "ADMIN", "2026-11-21T07:00:00Z")
    save_session(path, session)
    save_session(path, session)
    assert load_session(path) == session
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["session.json"]


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"server": "x", "other": 1}', "\0", "[" * 99_999]
)
def test_a_saved_login_that_is_none_is_said_to_be_so(tmp_path: Path, content: str) -> None:
    path = tmp_path / "session.json"
    path.write_text(content)
    with pytest.raises(ClientError, match="not a saved login"):
        load_session(path)


def test_a_login_that_no_header_can_have_is_refused_before_anybody_is_asked() -> None:
    with pytest.raises(WrongUsageError, match="characters that none has"):
        Client("http://127.0.0.1:1", "a\r\nX-Evil: 1").call("GET", ["project"])


def test_a_relative_config_folder_is_ignored_as_its_specification_says() -> None:
    assert session_path({"XDG_CONFIG_HOME": "here"}) == (
        Path.home() / ".config" / "fieldbrook" / "session.json"
    )


def test_a_login_for_one_server_is_not_used_for_another(
    capsys: pytest.CaptureFixture[str],
) -> None:
    save_session(session_path(), Session("http://one:1", "secret"))
    code, _, err = run(capsys, "project", "list", "--server", "http://two:2")
    assert code == 4
    assert "not logged in to http://two:2" in err


def test_logging_out_twice_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    save_session(session_path(), Session("http://one:1", "secret"))
    assert run(capsys, "logout")[:2] == (0, "logged out\n")
    assert run(capsys, "logout")[:2] == (0, "there was no login\n")


def test_a_client_refuses_an_address_before_it_connects() -> None:
    with pytest.raises(WrongUsageError):
        Client("gopher://old")


# ---------------------------------------------------------------- settings


def test_the_commands_that_run_a_node_have_an_option_for_every_setting_but_secrets() -> None:
    secrets = {"mqtt_password", "chains", "postgres_dsn"}
    for command in (main.cli.commands["up"], main.cli.commands["node"]):
        command.get_params(click.Context(command))
        names = {option.name for option in command.params}
        assert names == {"config", *settings.Settings.model_fields, *settings.RENAMED} - secrets


def test_an_options_help_states_the_default_that_holds(capsys: pytest.CaptureFixture[str]) -> None:
    shown = " ".join(run(capsys, "node", "--help")[1].split())
    for text in ("[default: 8888]", "[default: none]", "[default: 1073741824 (1 GiB)]"):
        assert text in shown


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
    for name, value in settings.as_environment(loaded).items():
        assert "hunter22" not in value
        monkeypatch.setenv(name, value)
    assert settings.load().chains == ()
    reading, writing = os.pipe()
    os.write(writing, settings.secrets_of(loaded))
    os.close(writing)
    monkeypatch.setenv(settings.SECRETS_VARIABLE, str(reading))
    assert settings.load().chains == loaded.chains
    assert settings.SECRETS_VARIABLE not in os.environ


@pytest.mark.parametrize(
    "value",
    [
        "4690",
        "nonsense",
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
    for name in ("Nowhere/Land", "../etc/passwd", ""):
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


def test_a_wrong_setting_ends_the_command_before_anything_is_started(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, _, err = run(capsys, "up", "--http-port", "many", "--data", str(tmp_path / "d"))
    assert code == 2
    assert "http_port = 'many' (from --http-port)" in err
    assert not (tmp_path / "d").exists()


def test_settings_survive_the_way_to_another_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "node.toml"
    file.write_text('mqtt_username = "from the file"\n')
    first = settings.load(http_port=1234, data=Path("somewhere"), log_format="json")
    for name, value in settings.as_environment(first).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("FIELDBROOK_CONFIG", str(file))
    second = settings.load()
    assert second == first.model_copy(update={"data": Path("somewhere").absolute()})
    assert pickle.loads(pickle.dumps(second)) == second  # noqa: S301 - our own bytes


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


class _Dying(BaseHTTPRequestHandler):
    """A node whose project dies on every event."""

    keys: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.keys.append(self.headers["Idempotency-Key"])
        body = json.dumps({"key": "OutcomeUnknown", "desc": "the project died"}).encode()
        self.send_response(503)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: what the command prints is looked at."""


def test_an_event_of_unknown_outcome_can_be_sent_again_by_the_key_that_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Dying) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        head = ("--server", f"http://127.0.0.1:{server.server_port}")
        sent = ("send", "p", "--publisher", "d", "--token", "t", "--data", "x")
        try:
            code, _, said = run(capsys, *head, *sent)
            assert code != 0
            (key,) = _Dying.keys
            assert f"--idempotency-key {key}" in said
            run(capsys, *head, *sent, "--idempotency-key", key)
            assert _Dying.keys == [key, key]
        finally:
            server.shutdown()
            thread.join()
