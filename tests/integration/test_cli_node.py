"""The command line against a real node, in a process of its own, like users run it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.support.applets import TALLY
from tests.support.nodes import RunningNode, StartNode, until
from tests.support.shell import ROOT, Shell, shell_with_login
from tests.support.tools import LIMIT_S

COUNTER = ROOT / "examples" / "counter" / "counter.wat"


@pytest.fixture
def shell(node: RunningNode, tmp_path: Path) -> Shell:
    return Shell(tmp_path / "config", node)


@pytest.fixture
def login(node: RunningNode, tmp_path: Path) -> Shell:
    """A shell with a saved login."""
    return shell_with_login(tmp_path / "config", node)


@pytest.fixture
def project(node: RunningNode, request: pytest.FixtureRequest) -> str:
    """A project with the counter applet and the publisher `sensor`."""
    name = f"p{abs(hash(request.node.name))}"[:32]
    node.create_project(name)
    node.deploy(name, COUNTER.read_bytes(), "counter")
    node.add_publisher(name, "sensor")
    return name


def send(shell: Shell, project: str, payload: str, *more: str) -> Any:
    return shell.json("send", project, "--publisher", "sensor", "--data", payload, *more)


# ---------------------------------------------------------------- the first minutes


@pytest.mark.thorough
def test_from_nothing_to_a_counted_event_with_six_commands(
    start_node: StartNode, tmp_path: Path
) -> None:
    running = start_node(logged_in=False)
    shell = Shell(tmp_path / "config", running, logged_in=False)
    said = shell.fails("project", "list", code=4)
    hint = re.search("has no administrator yet: create one with `fieldbrook (.*)`", said)
    assert hint is not None, said
    created = shell.json(*hint[1].split(), "--data", str(running.data))
    assert len(created["password"]) >= 8
    assert shell.json("whoami")["username"] == "admin"
    shell("project", "create", "room")
    assert shell.json("applet", "deploy", "room", str(COUNTER))["state"] == "STARTED"
    assert shell.json("publisher", "add", "room", "sensor-1")["key"] == "sensor-1"
    shell("send", "room", "--publisher", "sensor-1", "--data", "21.5")
    assert shell.text("kv", "get", "room", "count") == "1\n"
    said = shell.fails("admin", "create", "--username", "admin", "--data", str(running.data))
    assert "AccountIdentityConflict" in said


@pytest.mark.thorough
def test_a_login_ends_with_a_logout_and_a_wrong_password_saves_none(login: Shell) -> None:
    assert login.json("whoami")["role"] == "ADMIN"
    login("logout")
    assert "fieldbrook login" in login.fails("whoami", code=4)
    said = login.fails("login", "--password-stdin", code=4, stdin=b"wrong password\n")
    assert "check the username and the password" in said
    login.fails("whoami", code=4)


def test_a_token_the_node_does_not_accept_is_answered_with_how_to_get_one(shell: Shell) -> None:
    shell.environment["FIELDBROOK_TOKEN"] = "a.b.c"
    assert "FIELDBROOK_TOKEN" in shell.fails("project", "list", code=4)


@pytest.mark.thorough
def test_a_password_can_be_changed_and_the_new_one_holds(node: RunningNode, login: Shell) -> None:
    old, new = b"correct horse", b"battery staple"
    elsewhere = {**login.environment, "XDG_CONFIG_HOME": f"{login.environment['HOME']}/none"}
    elsewhere["FIELDBROOK_TOKEN"] = node.token
    login("admin", "password", "--password-stdin", stdin=old + b"\n" + new + b"\n")
    assert login.json("whoami")["role"] == "ADMIN", "the saved login was replaced"
    login("login", "--password-stdin", stdin=new + b"\n")
    login("admin", "password", "--password-stdin", stdin=new + b"\n" + old + b"\n")
    saved, login.environment = login.environment, elsewhere
    assert "log in again" in login.fails("project", "list", code=4)
    node.log_in()
    login.environment["FIELDBROOK_TOKEN"] = node.token
    done = login("admin", "password", "--password-stdin", stdin=old + b"\n" + new + b"\n")
    assert b"FIELDBROOK_TOKEN is set" in done.stderr
    login.environment = saved
    login("login", "--password-stdin", stdin=new + b"\n")
    login("admin", "password", "--password-stdin", stdin=new + b"\n" + old + b"\n")
    node.log_in()


def test_a_logout_everywhere_ends_the_logins_of_other_machines(
    node: RunningNode, login: Shell
) -> None:
    login("logout", "--everywhere")
    assert "fieldbrook login" in login.fails("whoami", code=4)
    assert node.call("GET", "/project").json["key"] == "InvalidToken"
    node.log_in()


def test_a_node_that_is_not_there_is_exit_code_3_and_says_where_it_was_looked_for(
    shell: Shell,
) -> None:
    shell.environment["FIELDBROOK_SERVER"] = "http://127.0.0.1:1"
    said = shell.fails("status", code=3)
    assert "http://127.0.0.1:1" in said
    assert "fieldbrook up" in said


def test_https_at_a_port_of_http_is_named_at_once(node: RunningNode, shell: Shell) -> None:
    began = time.monotonic()
    server = f"https://localhost:{node.http_port}"
    said = shell.fails("--server", server, "status", code=3)
    assert time.monotonic() - began < 15, "the port answers, nobody waits for a time limit"
    assert "the port speaks http, and not https" in said
    assert f"--server http://localhost:{node.http_port}" in said


def test_status_says_that_the_parts_are_well(shell: Shell) -> None:
    parts = shell.json("status")
    assert parts
    assert set(parts.values()) == {"ok"}


def test_health_tells_administrators_of_every_process(shell: Shell) -> None:
    answer = shell.json("health")
    assert answer["healthy"] is True
    assert answer["parts"]["http:0"] == "up"
    assert b"nothing is wrong" in shell("health", "--recent").stderr


def test_administrators_see_what_was_refused(shell: Shell) -> None:
    event = {"header": {"pub_id": "x", "token": "y"}, "payload": ""}
    request = urllib.request.Request(  # noqa: S310 - of the node above
        f"{shell.environment['FIELDBROOK_SERVER']}/srv-applet-mgr/v0/event/nowhere_at_all",
        json.dumps(event).encode(),
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=LIMIT_S)  # noqa: S310
    event_id = refused.value.headers["X-Event-Id"]
    refused.value.close()
    until(lambda: event_id in shell.text("refused", event_id), "it is there")
    assert "ProjectNotFound" in shell.text("refused", event_id)


# ---------------------------------------------------------------- objects


def test_a_project_shows_its_environment_and_is_gone_after_its_deletion(shell: Shell) -> None:
    made = shell.json("project", "create", "shown", "--env", "A=1", "--env", "B=x=y")
    assert "A=1, B=x=y" in shell.text("project", "show", made["projectID"])
    assert "of the hall" in shell.text("project", "update", "shown", "--description", "of the hall")
    assert shell.json("project", "show", "shown")["description"] == "of the hall"
    assert "shown" in [row["projectName"] for row in shell.json("project", "list")]
    shell("project", "delete", "shown", "--yes")
    assert "ProjectNotFound" in shell.fails("project", "show", "shown")


def test_a_project_is_not_deleted_without_a_yes(shell: Shell, project: str) -> None:
    shell("project", "delete", project, stdin=b"n\n", code=130)
    shell("project", "show", project)


def test_a_project_that_does_not_exist_is_answered_with_those_that_do(
    shell: Shell, project: str
) -> None:
    assert project in shell.fails("applet", "list", "nowhere")


def test_a_bad_name_is_refused_with_the_field_that_is_wrong(shell: Shell) -> None:
    said = shell.fails("project", "create", "bad name")
    assert "\n  name: must be 1 to 32 letters" in said


def test_deploying_again_updates_the_applet_and_keeps_what_it_knows(
    shell: Shell, project: str
) -> None:
    send(shell, project, "one")
    first = shell.json("applet", "show", project, "counter")
    again = shell.json("applet", "deploy", project, str(COUNTER), "--strategy", "ONLY=start")
    assert again["updated"] is True
    assert again["appletID"] == first["appletID"]
    rules = [(row["eventType"], row["handler"]) for row in shell.json("strategy", "list", project)]
    assert rules == [("ONLY", "start")]
    send(shell, project, "two", "--type", "ONLY")
    assert shell.text("kv", "get", project, "count") == "2\n"


def test_a_file_that_is_no_module_is_refused_with_the_reason(
    shell: Shell, project: str, tmp_path: Path
) -> None:
    text = tmp_path / "broken.wat"
    text.write_text("(module (func $f (call $nobody)))")
    assert "nobody" in shell.fails("applet", "deploy", project, str(text))
    assert [row["name"] for row in shell.json("applet", "list", project)] == ["counter"]


def test_a_stopped_applet_answers_minus_1_until_it_is_started(shell: Shell, project: str) -> None:
    shell("applet", "stop", project, "counter")
    assert shell.json("applet", "list", project)[0]["state"] == "STOPPED"
    until(
        lambda: b"not running" in shell_send(shell, project).stdout,
        "the stopped applet answers -1",
    )
    shell("applet", "start", project, "counter")
    until(lambda: shell_send(shell, project).returncode == 0, "the started applet answers")


def shell_send(shell: Shell, project: str) -> subprocess.CompletedProcess[bytes]:
    """Send an event; the command may succeed or fail."""
    arguments = ("send", project, "--publisher", "sensor", "--data", "x")
    process = shell.start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=LIMIT_S)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def test_a_command_repeated_with_its_idempotency_key_counts_once(
    shell: Shell, project: str
) -> None:
    for key, count in (("one", "1\n"), ("one", "1\n"), ("two", "2\n")):
        (result,) = send(shell, project, "x", "--idempotency-key", key)["results"]
        assert result["errMsg"] == ""
        assert shell.text("kv", "get", project, "count") == count
    arguments = ("send", project, "--publisher", "sensor", "--idempotency-key", "two")
    said = shell.fails(*arguments, "--data", "other")
    assert "the Idempotency-Key two was already used for another event" in said


def test_strategies_are_added_changed_and_deleted(shell: Shell, project: str) -> None:
    (made,) = shell.json("strategy", "add", project, "--applet", "counter", "--type", "HEAT")
    assert (made["eventType"], made["handler"]) == ("HEAT", "start")
    shell("strategy", "update", project, made["strategyID"], "--type", "COLD")
    types = {row["eventType"] for row in shell.json("strategy", "list", project)}
    assert types == {"DEFAULT", "COLD"}
    shell("strategy", "delete", project, made["strategyID"])
    assert len(shell.json("strategy", "list", project)) == 1
    assert "there is no strategy 1" in shell.fails("strategy", "delete", project, "1")


def test_a_strategy_for_a_handler_that_is_not_exported_is_made_with_a_warning(
    shell: Shell, project: str
) -> None:
    why = "the module exports no handler stop, so its events become dead letters"
    add = ("strategy", "add", project, "--applet", "counter", "--type", "HALT", "--handler")
    assert f"warning: strategy HALT is dead: {why}" in shell(*add, "stop").stderr.decode()
    listed = shell("strategy", "list", project)
    assert f"warning: strategy HALT is dead: {why}" in listed.stderr.decode()
    (halt,) = (row for row in shell.json("strategy", "list", project) if row["dead"])
    assert why in halt["warnings"][0]
    assert why in shell("applet", "show", project, "counter").stderr.decode()
    update = ("strategy", "update", project, halt["strategyID"], "--handler")
    assert why in shell(*update, "stop").stderr.decode()
    assert why in shell.json(*update, "stop")["warnings"][0]
    assert shell(*update, "start").stderr == b""
    deployed = shell("applet", "deploy", project, str(COUNTER), "--strategy", "HALT=stop")
    assert why in deployed.stderr.decode()


def test_a_publisher_that_is_deleted_can_send_no_more(shell: Shell, project: str) -> None:
    token = shell.text("publisher", "token", project, "sensor").strip()
    shell("publisher", "delete", project, "sensor")
    arguments = ("send", project, "--publisher", "sensor", "--token", token, "--data", "x")
    assert "PublisherNotFound" in shell.fails(*arguments)
    assert shell.json("publisher", "list", project) == []


def test_a_replaced_token_sends_no_more_and_the_new_one_does(shell: Shell, project: str) -> None:
    old = shell.text("publisher", "token", project, "sensor")
    new = shell.text("publisher", "rotate", project, "sensor", "--expires-days", "30")
    assert new.startswith("w3b_")
    assert new != old
    assert shell.text("publisher", "token", project, "sensor") == new
    send(shell, project, "x")
    assert "expiredAt" in shell.json(
        "publisher", "rotate", project, "sensor", "--expires-days", "1"
    )


def test_a_publisher_is_held_to_its_event_types_and_freed_again(shell: Shell, project: str) -> None:
    shell("publisher", "allow", project, "sensor", "HEAT", "DOOR")
    said = shell.fails("send", project, "--publisher", "sensor", "--data", "x")
    assert "EventTypeNotAllowed" in said
    shell("publisher", "allow", project, "sensor", "--all")
    send(shell, project, "x")
    assert "--all" in shell.fails("publisher", "allow", project, "sensor", code=2)
    made = shell.json("publisher", "add", project, "other", "--type", "A", "--expires-days", "2")
    assert made["eventTypes"] == ["A"]
    assert "expiredAt" in made


def test_cron_jobs_are_added_listed_and_deleted(shell: Shell, project: str) -> None:
    made = shell.json("cron", "add", project, "*/5 * * * *", "--type", "REPORT")
    assert made["cronExpressions"] == "*/5 * * * *"
    listed = shell.text("cron", "list", project)
    assert "REPORT" in listed
    assert made["nextAt"] in listed
    assert "InvalidCronExpressions" in shell.fails("cron", "add", project, "* * *")
    shell("cron", "delete", made["cronJobID"])
    assert shell.json("cron", "list", project) == []
    assert "CronJobNotFound" in shell.fails("cron", "delete", made["cronJobID"])


def test_a_limit_of_events_is_set_changed_and_lifted(shell: Shell, project: str) -> None:
    shell("limit", "set", project, "1", "--per", "24h")
    send(shell, project, "x")
    said = shell.fails("send", project, "--publisher", "sensor", "--data", "x")
    assert "TrafficLimitExceeded" in said
    shell("limit", "set", project, "5", "--per", "24h", "--publisher", "2")
    (row,) = shell.json("limit", "list", project)
    assert (row["threshold"], row["publisherThreshold"]) == (5, 2)
    shell("limit", "delete", project)
    assert "no limits" in shell("limit", "list", project).stderr.decode()
    assert "has no event limit" in shell.fails("limit", "delete", project)
    send(shell, project, "x")


@pytest.mark.thorough
def test_a_resource_that_is_deleted_is_listed_no_more_and_its_applet_goes_on(
    node: RunningNode, shell: Shell, project: str
) -> None:
    resource = shell.json("applet", "show", project, "counter")["resourceID"]
    listed = {row["resourceID"]: row["path"] for row in shell.json("resource", "list")}
    shell("resource", "delete", resource)
    assert resource not in [row["resourceID"] for row in shell.json("resource", "list")]
    assert "ResourcePermNotFound" in shell.fails("resource", "delete", resource)
    node.stop()
    node.start()
    assert send(shell, project, "x")
    assert (node.data / "modules" / f"{listed[resource]}.wasm").exists()


# ---------------------------------------------------------------- events


def test_an_event_is_sent_from_text_a_file_or_standard_input(
    shell: Shell, project: str, tmp_path: Path
) -> None:
    file = tmp_path / "payload"
    file.write_bytes(b"from a file")
    head = ("send", project, "--publisher", "sensor")
    shell(*head, "--data", "from text")
    shell(*head, "--file", str(file))
    shell(*head, "-", stdin=b"from input")
    until(lambda: len(log_rows(shell, project)) == 3, "the log has three rows")
    assert [row["msg"] for row in log_rows(shell, project)] == [
        "count=1 payload=from text",
        "count=2 payload=from a file",
        "count=3 payload=from input",
    ]


def test_a_handler_that_traps_is_exit_code_1_and_one_that_answers_7_is_a_success(
    shell: Shell, project: str, tmp_path: Path
) -> None:
    module = tmp_path / "tally.wat"
    module.write_bytes(TALLY)
    rules = ("--strategy", "SEVEN=seven", "--strategy", "FAIL=fail")
    shell("applet", "deploy", project, str(module), *rules)
    assert send(shell, project, "x", "--type", "SEVEN")["results"][0]["code"] == 7
    head = ("send", project, "--publisher", "sensor", "--data", "x")
    assert b"unreachable" in shell(*head, "--type", "FAIL", code=1).stdout


def test_an_event_of_a_type_without_a_strategy_is_refused(shell: Shell, project: str) -> None:
    shell("applet", "deploy", project, str(COUNTER), "--strategy", "ONLY=start")
    head = ("send", project, "--publisher", "sensor", "--data", "x")
    assert "StrategyNotFound" in shell.fails(*head, "--type", "OTHER")


def log_rows(shell: Shell, project: str, *options: str) -> list[Any]:
    out = shell.text("--json", "logs", project, *options)
    return [json.loads(line) for line in out.splitlines()]


def test_logs_give_the_last_rows_or_those_after_a_number(shell: Shell, project: str) -> None:
    assert log_rows(shell, project) == []
    for number in range(5):
        send(shell, project, str(number))
    until(lambda: len(log_rows(shell, project)) == 5, "the log has five rows")
    last = log_rows(shell, project, "--tail", "2")
    assert [row["msg"] for row in last] == ["count=4 payload=3", "count=5 payload=4"]
    assert log_rows(shell, project, "--after", last[0]["sequence"]) == last[1:]
    assert log_rows(shell, project, "--after", last[1]["sequence"]) == []
    assert "info    counter: count=5 payload=4" in shell.text("logs", project, "--tail", "1")


def test_an_applet_is_rolled_back_and_keeps_its_data(
    shell: Shell, project: str, tmp_path: Path
) -> None:
    send(shell, project, "one")
    changed = tmp_path / "counter.wat"
    changed.write_text(COUNTER.read_text() + "\n;; changed\n")
    assert shell.json("applet", "deploy", project, str(changed))["version"] == 2
    rows = shell.json("applet", "versions", project, "counter")
    assert [(row["version"], row["current"]) for row in rows] == [(2, True), (1, False)]
    assert shell.json("applet", "rollback", project, "counter")["version"] == 1
    assert "1 *" in shell.text("applet", "versions", project, "counter")
    send(shell, project, "two")
    assert shell.text("kv", "get", project, "count") == "2\n"
    said = shell.fails("applet", "rollback", project, "counter")
    assert "has no earlier version" in said
    assert shell.json("applet", "rollback", project, "counter", "2")["version"] == 2
    assert "AppletVersionNotFound" in shell.fails("applet", "rollback", project, "counter", "9")


@pytest.mark.thorough
def test_following_events_prints_them_as_they_are_handled(shell: Shell, project: str) -> None:
    following = shell.start(
        *("event", "show", project, "--follow", "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with following:
        try:
            assert following.stdout is not None
            assert json.loads(following.stdout.readline())["rows"] == []  # it follows
            send(shell, project, "seen")
            found = json.loads(following.stdout.readline())
            assert found["total"] == len(found["rows"]) + found["left_out"]
            assert found["rows"][0]["outcome"] == "ok"
            following.send_signal(signal.SIGINT)
            following.communicate(timeout=LIMIT_S)
        finally:
            following.kill()
    assert following.returncode == 130
    assert "cannot be given" in shell.fails("event", "show", project, "x", "--follow", code=2)


def test_following_a_log_prints_new_rows_and_ends_quietly_with_ctrl_c(
    shell: Shell, project: str
) -> None:
    following = shell.start(
        "logs", project, "--follow", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with following:
        try:
            assert following.stdout is not None
            for number in (1, 2):
                send(shell, project, "seen")
                assert f"count={number} payload=seen" in following.stdout.readline().decode()
            following.send_signal(signal.SIGINT)
            _, said = following.communicate(timeout=LIMIT_S)
        finally:
            following.kill()
    assert following.returncode == 130
    assert said.strip() == b""


def test_a_reader_that_goes_away_ends_the_command_quietly(shell: Shell, project: str) -> None:
    following = shell.start(
        "logs", project, "--follow", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with following:
        try:
            assert following.stdout is not None
            send(shell, project, "one")
            following.stdout.readline()
            following.stdout.close()
            send(shell, project, "two")
            assert following.wait(LIMIT_S) == 128 + signal.SIGPIPE
            assert following.stderr is not None
            assert following.stderr.read() == b""
        finally:
            following.kill()


def test_values_are_printed_byte_for_byte_and_keys_are_listed(
    shell: Shell, project: str, tmp_path: Path
) -> None:
    module = tmp_path / "tally.wat"
    module.write_bytes(TALLY)
    shell("applet", "deploy", project, str(module), "--strategy", "ECHO=echo")
    payload = bytes(range(256))
    shell("send", project, "--publisher", "sensor", "--type", "ECHO", "-", stdin=payload)
    tally = ("--applet", "tally")
    assert shell("kv", "get", project, "last", *tally).stdout == payload + b"\n"
    assert shell.json("kv", "get", project, "last", *tally)["encoding"] == "base64"
    assert "last" in [row["key"] for row in shell.json("kv", "list", project, *tally)]
    assert shell.json("kv", "list", project, "--applet", "counter") == []
    assert "tally, counter" in shell.fails("kv", "get", project, "last")
    assert "there is no key nothing" in shell.fails("kv", "get", project, "nothing", *tally)


def test_search_finds_a_project_by_a_part_of_its_name(shell: Shell, project: str) -> None:
    found = shell.json("search", project[1:])
    assert ("project", project) in [(row["kind"], row["name"]) for row in found]
    assert shell.json("search", "no-such-thing") == []
