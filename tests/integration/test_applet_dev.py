"""`fieldbrook applet dev`: each save is built, and its events run without a node."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fieldbrook.system.kernel import has_ended
from fieldbrook.wasm.module.inspection import to_binary
from fieldbrook.workbench import scaffold
from tests.support.dev import Dev, environment, on_terminal
from tests.support.nodes import until
from tests.support.tools import LIMIT_S, require_tool


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    return environment(tmp_path / "home")


def replace(path: Path, old: str, new: str) -> None:
    """Save a file like editors do: write another file, and rename it."""
    text = path.read_text()
    assert old in text
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(text.replace(old, new))
    draft.replace(path)


def slow_folder(tmp_path: Path, step: str) -> Path:
    """Make an applet whose build writes `begin` to build/log, runs a shell command, and writes
    `end`."""
    folder = tmp_path / "slow"
    scaffold.create("slow", "wat", folder)
    (folder / "build").mkdir()
    (folder / "made.bin").write_bytes(to_binary((folder / "applet.wat").read_bytes()))
    steps = f"echo begin >> build/log; {step}; cp made.bin build/slow.wasm; echo end >> build/log"
    (folder / "applet.toml").write_text(
        f'[build]\nmodule = "build/slow.wasm"\nsteps = [["sh", "-c", {json.dumps(steps)}]]\n'
    )
    return folder


def log_of(folder: Path) -> list[str]:
    path = folder / "build" / "log"
    return path.read_text().split() if path.exists() else []


def test_a_save_is_built_and_run_and_what_changed_is_told(
    meter: Path, variables: dict[str, str]
) -> None:
    with Dev(meter, environment=variables) as dev:
        first = dev.block()
        assert first["changed"] == []
        assert first["bytes"] > 0
        assert [run["result"] for run in first["runs"]] == [
            ["code     0", f"log      info: count={n} bytes={size}", f"write    count = {n}"]
            for n, size in ((1, 30), (2, 10), (3, 2))
        ]
        assert [run["changes"] for run in first["runs"]] == [None] * 3

        replace(meter / "applet.wat", '"count="', '"total="')
        second = dev.block()
        assert second["changed"] == ["applet.wat"]
        assert [run["changes"] for run in second["runs"]] == [
            [f"- log      info: count={n} bytes={size}", f"+ log      info: total={n} bytes={size}"]
            for n, size in ((1, 30), (2, 10), (3, 2))
        ]
        assert second["runs"][0]["problems"][0].startswith("logs: expected")

        replace(meter / "applet.wat", ";; meter", ";;; meter")
        assert [run["changes"] for run in dev.block()["runs"]] == [[]] * 3
        assert dev.end() == 130
    assert "Traceback" not in dev.errors


def test_a_change_of_the_events_runs_them_without_a_build(
    meter: Path, variables: dict[str, str]
) -> None:
    events = meter / "events.jsonl"
    with Dev(meter, environment=variables) as dev:
        assert dev.block()["build_ms"] is not None
        events.write_text('{"payload": "first"}\n' + events.read_text())
        added = dev.block()
        assert added["build_ms"] is None
        assert [run["changes"] is None for run in added["runs"]] == [True, False, False, False]
        assert added["runs"][3]["problems"] == ["no expected result"]
        events.write_text('{"payload": "fine"}\nno JSON\n')
        assert "events.jsonl:2: not JSON" in dev.block()["error"]
        (meter / "events.expected.jsonl").unlink()
        events.write_text('{"payload": "fine"}\n')
        dev.wait(lambda: dev.blocks[-1]["error"] == "", "a block without an error")
        assert len(dev.blocks[-1]["runs"]) == 1


def test_a_trap_that_is_expected_is_no_failure(meter: Path, variables: dict[str, str]) -> None:
    source = meter / "applet.wat"
    source.write_text(
        source.read_text().replace("(drop\n      (call $log", "(unreachable)\n(drop (call $log")
    )
    (meter / "events.expected.jsonl").write_text('{"code": -1}\n{"code": -1}\n{"code": 0}\n')
    with Dev(meter, environment=variables, text=True) as dev:
        dev.wait(lambda: "3 runs, 1 failed, 1 not as expected" in dev.out, "the block")
        assert dev.out.count("ok  ") == 2
        assert "   3  FAIL  DEFAULT start" in dev.out


def test_compiler_errors_are_shown_in_full_and_the_next_save_is_built(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    require_tool("clang")
    require_tool("wasm-ld")
    folder = tmp_path / "meter"
    scaffold.create("meter", "c", folder)
    with Dev(folder, environment=variables, text=True) as dev:
        dev.wait(lambda: "3 runs, 0 failed" in dev.out, "the first block")
        replace(folder / "applet.c", "  return OK;\n}", "  return OKK;\n}")
        dev.wait(lambda: "ended with status 1" in dev.out, "the failure")
        assert re.search(r"applet\.c:\d+:\d+: error: .*'OKK'", dev.errors)
        assert "1 error generated." in dev.errors
        assert "the build failed after" in dev.out
        replace(folder / "applet.c", "return OKK;", "return 7;")
        dev.wait(lambda: "3 runs, 3 changed, 0 failed, 3 not as expected" in dev.out, "the block")
        assert "            - code     0\n            + code     7\n" in dev.out
        assert "not as expected: code" in dev.out
        assert "\x1b" not in dev.out
        assert dev.end() == 130


def test_a_module_that_a_node_would_refuse_is_told_and_a_trap_is_a_result(
    meter: Path, variables: dict[str, str]
) -> None:
    source = meter / "applet.wat"
    whole = source.read_text()
    with Dev(meter, environment=variables) as dev:
        dev.block()
        source.write_text('(module (memory (export "memory") 1))')
        assert "a node would refuse the module: it exports no handler" in dev.block()["error"]
        source.write_text(whole.replace('(export "start")', '(export "begin")'))
        block = dev.block()
        assert block["error"] == "the module has no handler start"
        assert "begin" in block["hint"]
        assert "[strategies] in applet.toml" in block["hint"]
        recipe = meter / "applet.toml"
        recipe.write_text(recipe.read_text().replace('DEFAULT = "start"', 'DEFAULT = "begin"'))
        assert [run["failed"] for run in dev.block()["runs"]] == [False] * 3
        recipe.write_text(recipe.read_text().replace('DEFAULT = "begin"', 'DEFAULT = "start"'))
        assert dev.block()["error"] == "the module has no handler start"
        source.write_text(whole)
        dev.block()
        source.write_text(
            whole.replace("(drop\n      (call $log", "(unreachable)\n(drop (call $log")
        )
        runs = dev.block()["runs"]
        assert all(run["failed"] for run in runs)
        assert "- code     0" in runs[0]["changes"]
        assert any("unreachable" in text for text in runs[0]["changes"])
        (meter / "applet.toml").write_text("[build")
        assert "applet.toml" in dev.block()["error"]


def test_a_save_during_a_build_starts_one_more_and_never_two_at_once(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    folder = slow_folder(tmp_path, "while [ ! -e build/go ]; do sleep 0.02; done")
    source = folder / "applet.wat"
    with Dev(folder, environment=variables) as dev:
        dev.wait(lambda: log_of(folder) == ["begin"], "the first build")
        for number in range(3):
            source.write_text(f";; {number}\n")
        (folder / "build" / "go").touch()
        assert dev.block()["changed"] == []
        assert dev.block()["changed"] == ["applet.wat"]
        # The next block is the result of this save, so the three earlier saves led to one build.
        (folder / "events.jsonl").write_text('{"payload": "x"}\n')
        assert dev.block()["changed"] == ["events.jsonl"]
        assert log_of(folder) == ["begin", "end"] * 2


def test_a_build_that_hangs_is_ended_and_the_next_save_is_built(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    folder = slow_folder(tmp_path, "[ -e fixed.txt ] || { sleep 600 & echo $! > build/pid; wait; }")
    with Dev(folder, "--build-limit", "1", environment=variables) as dev:
        assert "was ended: the build took longer than 1 s" in dev.block()["error"]
        pid = int((folder / "build" / "pid").read_text())
        until(lambda: has_ended(pid), "the end of what the build has started")
        (folder / "fixed.txt").touch()
        assert len(dev.block()["runs"]) == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_end_of_the_command_ends_its_build(
    number: int, tmp_path: Path, variables: dict[str, str]
) -> None:
    folder = slow_folder(tmp_path, "sleep 600 & echo $! > build/pid; wait")
    pid = folder / "build" / "pid"
    with Dev(folder, environment=variables) as dev:
        dev.wait(lambda: pid.exists() and pid.read_text().strip(), "the build")
        assert dev.end(number) == 130
        assert dev.blocks == []
    assert "stopped" in dev.errors
    assert "Traceback" not in dev.errors
    until(lambda: has_ended(int(pid.read_text())), "the end of the build")


def test_a_build_that_writes_a_source_again_starts_no_further_build(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    folder = slow_folder(tmp_path, "echo generated > generated.h")
    with Dev(folder, environment=variables) as dev:
        dev.block()
        assert dev.block()["changed"] == ["generated.h"]
        (folder / "events.jsonl").write_text('{"payload": "x"}\n')
        assert dev.block()["changed"] == ["events.jsonl"]
        assert log_of(folder) == ["begin", "end"] * 2


@pytest.mark.thorough
def test_a_build_that_changes_a_source_each_time_is_slowed_down_and_told(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    folder = slow_folder(tmp_path, "cat build/log > generated.h")
    with Dev(folder, environment=variables) as dev:
        dev.wait(lambda: "`ignore`" in dev.errors, "the advice")
        assert "generated.h changed during each of the last builds" in dev.errors
        manifest = folder / "applet.toml"
        manifest.write_text(f'{manifest.read_text()}ignore = ["generated.*"]\n')
        dev.wait(lambda: "applet.toml" in dev.blocks[-1]["changed"], "the build that ignores it")
        count = len(dev.blocks)
        (folder / "events.jsonl").write_text('{"payload": "x"}\n')
        dev.wait(lambda: len(dev.blocks) > count, "the next block")
        assert dev.blocks[-1]["changed"] == ["events.jsonl"]


def test_the_store_is_what_the_runs_begin_with_and_stays_as_it_is(
    meter: Path, tmp_path: Path, variables: dict[str, str]
) -> None:
    store = tmp_path / "store.json"
    store.write_text('{"count": "41"}')
    options = ("--store", str(store), "--handler", "start")
    with Dev(meter, *options, environment=variables) as dev:
        assert dev.block()["runs"][0]["result"][-1] == "write    count = 42"
        assert store.read_text() == '{"count": "41"}'
        store.write_text('{"count": "7"}')
        block = dev.block()
        assert block["build_ms"] is None
        assert block["runs"][0]["changes"] == [
            *("- log      info: count=42 bytes=30", "- write    count = 42"),
            *("+ log      info: count=8 bytes=30", "+ write    count = 8"),
        ]


def test_what_cannot_be_watched_is_refused_by_name(
    meter: Path, tmp_path: Path, variables: dict[str, str]
) -> None:
    def refused(*options: str, code: int = 1) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "fieldbrook", "applet", "dev", *options],
            env=variables,
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
            text=True,
        )
        assert (done.returncode, done.stdout) == (code, ""), done
        assert "Traceback" not in done.stderr
        return done.stderr

    def folder(name: str, manifest: str, *files: str) -> str:
        made = tmp_path / name
        made.mkdir()
        (made / "applet.toml").write_text(f'[build]\nmodule = "a.wasm"\n{manifest}')
        for file in files:
            (made / file).touch()
        return str(made)

    (tmp_path / "empty").mkdir()
    assert "applet.toml does not exist" in refused(str(tmp_path / "empty"))
    assert "has no build command" in refused(folder("a", "", "a.c"))
    assert "has no sources" in refused(folder("b", 'steps = [["true"]]', "README.md"))
    assert "a.wat does not exist" in refused(folder("c", 'wat = "a.wat"', "b.wat"))
    needs = 'steps = [["no-such-tool"]]\n[build.needs]\nno-such-tool = "install it"'
    assert "no-such-tool is missing: install it" in refused(folder("d", needs, "a.c"))
    assert "--send needs --project" in refused(
        str(meter), "--send", str(meter / "events.jsonl"), code=2
    )
    assert "--seed is for runs without a node" in refused(
        str(meter), "--seed", "1", "--project", "room", code=2
    )
    assert "--publisher needs --send" in refused(
        str(meter), "--publisher", "x", "--project", "room", code=2
    )
    assert "not logged in" in refused(str(meter), "--project", "room", code=4)
    assert "--handler and --strategy" in refused(
        str(meter), "--handler", "a", "--strategy", "A=b", code=2
    )


def test_blocks_have_colours_on_a_terminal_unless_they_are_switched_off(
    meter: Path, variables: dict[str, str]
) -> None:
    command = ("applet", "dev", str(meter))
    last = b"3 runs, 0 failed"
    shown = on_terminal({**variables, "TERM": "xterm"}, *command, typed=b"", last=last)
    assert "\x1b[32mok  \x1b[0m" in shown
    shown = on_terminal({**variables, "NO_COLOR": "1"}, *command, typed=b"", last=last)
    assert "\x1b[" not in shown


def test_a_folder_that_is_removed_ends_the_command(meter: Path, variables: dict[str, str]) -> None:
    with Dev(meter, environment=variables) as dev:
        dev.block()
        shutil.rmtree(meter)
        assert dev.process.wait(LIMIT_S) == 1
    assert "No such file" in dev.errors
    assert "Traceback" not in dev.errors
