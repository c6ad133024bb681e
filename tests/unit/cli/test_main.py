"""The command line without a node: what it prints, refuses, saves, and how it starts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

from fieldbrook import __version__
from fieldbrook.cli import main
from fieldbrook.cli.console import Console
from fieldbrook.cli.session import Session, save_session, session_path
from fieldbrook.core import settings


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main.run(list(arguments))
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def commands(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The paths of all commands and groups."""
    found = [path]
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
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
    assert "No such command 'projct'. Did you mean 'project'?" in err


def test_a_command_is_imported_when_it_is_asked_for() -> None:
    script = (
        "import sys; from fieldbrook.cli import main; main.run(['version']);"
        "print(sorted(name for name in sys.modules if name.startswith('fieldbrook.cli.remote')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"fieldbrook {__version__}\n[]\n"


def test_a_command_that_needs_a_login_says_how_to_log_in(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Console, "_needs_administrator", lambda _: False)
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


def test_the_commands_that_run_a_node_have_an_option_for_every_setting_but_secrets() -> None:
    secrets = {"mqtt_password", "chains", "postgres_dsn", "otlp_headers"}
    for command in (main.cli.commands["up"], main.cli.commands["node"]):
        command.get_params(click.Context(command))
        names = {option.name for option in command.params}
        old = {*settings.RENAMED, *settings.REMOVED}
        assert names == {"config", *settings.settings_fields(), *old} - secrets


def test_an_options_help_states_the_default_that_holds(capsys: pytest.CaptureFixture[str]) -> None:
    shown = " ".join(run(capsys, "node", "--help")[1].split())
    for text in ("[default: 8888]", "[default: none]", "[default: 1073741824 (1 GiB)]"):
        assert text in shown


def test_a_wrong_setting_ends_the_command_before_anything_is_started(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, _, err = run(capsys, "up", "--http-port", "many", "--data", str(tmp_path / "d"))
    assert code == 2
    assert "http_port = 'many' (from --http-port)" in err
    assert not (tmp_path / "d").exists()
