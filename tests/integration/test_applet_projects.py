"""Applet projects: created from each template, built, run, tested and deployed."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from fieldbrook.system.kernel import has_ended
from fieldbrook.wasm.module import abi
from fieldbrook.workbench import scaffold
from fieldbrook.workbench.scaffold import ScaffoldError
from tests.support.dev import run_applet
from tests.support.nodes import until
from tests.support.tools import require_tool

TEMPLATES = Path(scaffold.__file__).parent / "templates"
# Debian's compiler, next to a compiler of the user that lacks the target.
_RUSTCS = ("rustc", "/usr/bin/rustc")


def rustc_for_wasm() -> str:
    """A compiler with the target."""
    command = ["--print", "target-libdir", "--target", "wasm32-unknown-unknown"]
    for rustc in _RUSTCS:
        try:
            done = subprocess.run([rustc, *command], capture_output=True, text=True, check=False)
        except FileNotFoundError:
            continue
        if Path(done.stdout.strip() or "/nowhere").is_dir():
            return rustc
    if os.environ.get("CI") == "true":
        pytest.fail("no rustc has the target wasm32-unknown-unknown, and CI tests everything")
    pytest.skip("no rustc has the target wasm32-unknown-unknown")


@pytest.mark.parametrize("template", scaffold.TEMPLATES)
@pytest.mark.thorough("go", "assemblyscript")
def test_an_applet_from_a_template_is_built_run_and_tested(
    template: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tools = {"c": ("clang", "wasm-ld"), "rust": ("wasm-ld",), "assemblyscript": ("npm",)}
    for tool in tools.get(template, ()):
        require_tool(tool)
    if template == "go":
        monkeypatch.setenv("GO", require_tool("go"))
    if template == "rust":
        monkeypatch.setenv("RUSTC", rustc_for_wasm())
    folder = tmp_path / "my-first"
    code, out, _ = run_applet(capfd, "new", "my-first", "--template", template, "--folder", folder)
    assert code == 0
    made = {Path(line) for line in out.splitlines()}
    assert made == {path for path in folder.rglob("*") if path.is_file()}
    assert not any("{{" in path.read_text() for path in made)

    code, out, err = run_applet(capfd, "build", folder)
    assert (code, out) == (0, f"{folder / 'build' / 'my-first.wasm'}\n"), err
    module = Path(out.strip())

    code, out, _ = run_applet(capfd, "run", module, "--payload", "hello", "--json")
    left = json.loads(out)
    assert (code, left["code"], left["error"]) == (0, 0, "")
    assert left["logs"] == [["info", "count=1 bytes=5"]]
    assert left["writes"] == {"count": "1"}

    for host in ("raw", "reference", "batch"):
        code, out, _ = run_applet(capfd, "test", module, folder / "events.jsonl", "--host", host)
        assert code == 0, out
        assert "3 runs, 0 not as expected" in out

    code, out, err = run_applet(capfd, "test", folder)
    assert code == 0, err
    assert "3 runs, 0 not as expected" in out

    # As far as a 64-bit number of it goes, from what an earlier version stored.
    store = tmp_path / "store.json"
    store.write_text('{"count": "9223372036854775000"}')
    code, out, _ = run_applet(capfd, "run", module, "--store", store, "--json")
    assert json.loads(out)["writes"] == {"count": "9223372036854775001"}


@pytest.mark.thorough
def test_an_applet_in_rust_uses_crates_as_the_page_for_authors_shows(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    require_tool("cargo")
    monkeypatch.setenv("RUSTC", rustc_for_wasm())
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "applets.md").read_text()
    section = page.partition("### Rust with crates\n")[2].partition("\n## ")[0]
    package, build, source = re.findall(r"```(?:toml|rust)\n(.*?)```", section, re.DOTALL)
    folder = tmp_path / "meter"
    scaffold.create("meter", "rust", folder)
    (folder / "Cargo.toml").write_text(package)
    (folder / "applet.toml").write_text(build)
    template = (folder / "applet.rs").read_text()
    before, _, after = template.partition("/// `Err(code)` gives")
    handler = after[after.index("/// The handler:") :]
    (folder / "applet.rs").write_text(before + source + handler)
    code, out, err = run_applet(capfd, "build", folder)
    assert code == 0, err
    module = out.strip()
    _, out, _ = run_applet(capfd, "run", module, "--payload", '{"celsius": 21.5}', "--json")
    left = json.loads(out)
    assert (left["code"], left["logs"]) == (0, [["info", "celsius=21.5"]])
    _, out, _ = run_applet(capfd, "run", module, "--payload", "{}", "--json")
    left = json.loads(out)
    assert (left["code"], left["error"]) == (-2, "")
    assert left["logs"][0][0] == "warning"


def test_the_test_of_a_folder_fails_with_its_build_and_with_its_expectations(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "meter"
    scaffold.create("meter", "wat", folder)
    source = folder / "applet.wat"
    source.write_text(source.read_text().replace('"count="', '"total="'))
    code, out, _ = run_applet(capfd, "test", folder)
    assert code == 1
    assert 'found [["info", "total=1 bytes=30"]]' in out
    assert run_applet(capfd, "test", folder, "--record")[0] == 0
    assert run_applet(capfd, "test", folder)[0] == 0
    source.write_text("(module (")
    code, _, err = run_applet(capfd, "test", folder)
    assert code == 1
    assert "not a WebAssembly text" in err
    (folder / "events.jsonl").unlink()
    code, _, err = run_applet(capfd, "test", folder)
    assert code == 2
    assert f"{folder / 'events.jsonl'} does not exist" in err
    code, _, err = run_applet(capfd, "test", folder / "build" / "meter.wasm")
    assert code == 2
    assert "give the file of events" in err


def test_unchanged_sources_are_not_built_again_for_a_test(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "meter"
    scaffold.create("meter", "wat", folder)
    recipe = folder / "applet.toml"
    step = 'steps = [["sh", "-c", "echo built >> build.log"]]'
    recipe.write_text(recipe.read_text().replace('wat = "', f'{step}\nignore = ["*.log"]\nwat = "'))
    log = folder / "build.log"

    def builds(*options: str) -> int:
        code, _, err = run_applet(capfd, "test", folder, *options)
        assert code == 0, err
        return len(log.read_text().splitlines())

    assert builds() == 1
    assert builds() == 1
    assert "is tested as it is" in run_applet(capfd, "test", folder)[2]
    assert builds("--record") == 1, "of the file of expectations nothing is built"
    source = folder / "applet.wat"
    source.write_text(source.read_text() + ";; another line\n")
    assert builds() == 2
    module = folder / "build" / "meter.wasm"
    module.write_bytes(module.read_bytes() + b"\0\2\1x")
    assert builds() == 3, "somebody else wrote the module"
    monkeypatch.setenv("SH", "/bin/sh")
    assert builds() == 4, "another program builds it"
    assert run_applet(capfd, "build", folder)[0] == 0
    assert builds() == 5, "`applet build` always builds"


def test_a_folder_names_the_handlers_of_its_event_types(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "meter"
    scaffold.create("meter", "wat", folder)
    source, recipe = folder / "applet.wat", folder / "applet.toml"
    source.write_text(source.read_text().replace('(export "start")', '(export "opened")'))
    code, _, err = run_applet(capfd, "test", folder)
    assert code == 1
    assert "the module has no handler start" in err
    assert "handlers: opened; choose with --handler HANDLER, --strategy TYPE=HANDLER, or" in err
    recipe.write_text(recipe.read_text().replace('DEFAULT = "start"', 'DEFAULT = "opened"'))
    assert run_applet(capfd, "test", folder)[0] == 0
    assert run_applet(capfd, "test", folder, "--handler", "start")[0] == 1, "the option goes first"
    module = folder / "build" / "meter.wasm"
    code, _, err = run_applet(capfd, "run", module)
    assert "handlers: opened; choose with --handler HANDLER\n" in err


C_WITHOUT_A_LIBRARY = """
#include "fieldbrook.h"
#include <string.h>

static const char KNOWN[] = "abcdef";

EXPORT("start") int32_t start(int32_t rid) {
  uint8_t *payload;
  size_t size;
  if (ws_get_data(rid, &payload, &size) != OK) return FAILED;
  char line[512] = {0}, copy[8];
  memcpy(copy, KNOWN, sizeof KNOWN);
  memmove(copy + 1, copy, 3);
  memset(line, '-', 4);
  memcpy(line + 4, copy, strlen(copy));
  ws_log(LEVEL_WARNING, line, strlen(line));
  return memcmp(payload, KNOWN, size);
}

EXPORT("deep") int32_t deep(int32_t rid) {
  volatile char big[9000];
  for (size_t i = 0; i < sizeof big; i++) big[i] = 1;
  return big[rid & 1];
}
"""


def test_c_has_the_functions_that_a_compiler_expects_and_a_stack_that_overwrites_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    require_tool("clang")
    require_tool("wasm-ld")
    folder = tmp_path / "meter"
    scaffold.create("meter", "c", folder)
    (folder / "applet.c").write_text(C_WITHOUT_A_LIBRARY)
    code, out, err = run_applet(capfd, "build", folder)
    assert code == 0, err
    assert "warning" not in err
    module = out.strip()
    for payload, code in ((b"abc", 0), (b"abd", 1), (b"abb", -1)):
        _, out, _ = run_applet(capfd, "run", module, "--payload", payload.decode(), "--json")
        assert json.loads(out)["code"] == code
    assert json.loads(out)["logs"] == [["warning", "----aabcef"]]
    code, out, _ = run_applet(capfd, "run", module, "--handler", "deep", "--json")
    assert code == 1
    assert "out of bounds memory access" in json.loads(out)["error"]


def test_a_build_that_takes_too_long_is_ended_with_what_it_has_started(tmp_path: Path) -> None:
    (tmp_path / "applet.toml").write_text(
        '[build]\nmodule = "a.wasm"\nsteps = [["sh", "-c", "sleep 600 & echo $! > pid; wait"]]\n'
    )
    with pytest.raises(ScaffoldError, match="was ended: the build took longer than 0.5 s"):
        scaffold.build(tmp_path, limit_s=0.5)
    pid = int((tmp_path / "pid").read_text())
    until(lambda: has_ended(pid), "the end of what the build has started")


def test_variables_of_a_recipe_are_those_of_its_steps(tmp_path: Path) -> None:
    (tmp_path / "applet.toml").write_text(
        '[build]\nmodule = "a.wasm"\nsteps = [["sh", "-c", "echo $TARGET > a.wasm"]]\n'
        '[build.env]\nTARGET = "wasip1"\n'
    )
    assert scaffold.build(tmp_path).read_text() == "wasip1\n"


def test_what_the_header_for_c_declares_is_what_the_host_has() -> None:
    text = (TEMPLATES / "c" / "fieldbrook.h").read_text()
    declared = re.findall(
        r'^IMPORT\("(\w+)", "(\w+)"\)\s+int32_t \w+\(([^)]*)\);', text, re.MULTILINE | re.DOTALL
    )
    known = {(s.module, s.name, s.params) for s in abi.SIGNATURES}
    assert len(declared) == text.count('IMPORT("')
    for module, name, parameters in declared:
        assert (module, name, "i" * len(parameters.split(","))) in known


def test_the_lock_file_of_a_project_names_no_place_to_download_from() -> None:
    lock = json.loads((TEMPLATES / "assemblyscript" / "package-lock.json").read_text())
    packages = [package for name, package in lock["packages"].items() if name]
    assert packages
    assert all("resolved" not in package and package["integrity"] for package in packages)


def test_a_missing_tool_is_named_with_what_to_do(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scaffold.create("meter", "c", tmp_path / "meter")
    monkeypatch.setenv("PATH", str(tmp_path))
    code, out, err = run_applet(capfd, "build", tmp_path / "meter")
    assert (code, out) == (1, "")
    assert "clang is missing: install clang and lld" in err
    assert "wasm-ld is missing: install lld" in err


def test_a_variable_stands_for_a_tool(tmp_path: Path) -> None:
    scaffold.create("meter", "c", tmp_path / "meter")
    recipe = scaffold.read_recipe(tmp_path / "meter")
    tool = tmp_path / "my-clang"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    environment = {"PATH": "/nowhere", "CLANG": str(tool), "WASM_LD": "/nowhere/wasm-ld"}
    assert list(scaffold.missing_tools(recipe, environment)) == ["wasm-ld"]


def test_a_step_that_fails_ends_the_build_with_its_output(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    require_tool("clang")
    require_tool("wasm-ld")
    folder = tmp_path / "meter"
    scaffold.create("meter", "c", folder)
    (folder / "applet.c").write_text("int start(int rid) { return ridd; }\n")
    code, out, err = run_applet(capfd, "build", folder)
    assert (code, out) == (1, "")
    assert "ridd" in err
    assert "ended with status 1" in err


def test_advice_about_a_missing_target_is_given_where_the_target_is_missing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    require_tool("wasm-ld")
    monkeypatch.setenv("RUSTC", rustc_for_wasm())
    folder = tmp_path / "meter"
    scaffold.create("meter", "rust", folder)
    source, recipe = folder / "applet.rs", folder / "applet.toml"
    whole = source.read_text()
    source.write_text(whole.replace("payload.len()", "paylaod.len()"))
    code, _, err = run_applet(capfd, "build", folder)
    assert code == 1
    assert "E0425" in err
    assert "rustup target add" not in err
    source.write_text(whole)
    recipe.write_text(recipe.read_text().replace("wasm32-unknown-unknown", "wasm32-wasip9"))
    code, _, err = run_applet(capfd, "build", folder)
    assert code == 1
    assert "the target is missing: rustup target add" in err


@pytest.mark.parametrize(("program", "told"), [("true", False), ("false", True), ("/no", True)])
def test_a_hint_depends_on_a_command(program: str, told: bool, tmp_path: Path) -> None:
    (tmp_path / "applet.toml").write_text(
        '[build]\nmodule = "a.wasm"\nsteps = [["false"]]\nhint = "advice"\n'
        f'hint_unless = ["{program}"]\n'
    )
    with pytest.raises(ScaffoldError) as caught:
        scaffold.build(tmp_path)
    assert caught.value.hint == ("advice" if told else "")


def test_a_module_that_a_node_would_refuse_is_told_after_the_build(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "meter"
    scaffold.create("meter", "wat", folder)
    (folder / "applet.wat").write_text('(module (memory (export "memory") 1))')
    code, _, err = run_applet(capfd, "build", folder)
    assert code == 1
    assert "a node would refuse the module: it exports no handler" in err
    (folder / "applet.wat").write_text("(module (")
    code, _, err = run_applet(capfd, "build", folder)
    assert code == 1
    assert "not a WebAssembly text" in err


@pytest.mark.parametrize("name", ["", "Meter", "1st", "a b", "../a", "a" * 65, 'a"b', "ä"])
def test_a_name_that_could_harm_a_recipe_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ScaffoldError, match="is not a name for an applet"):
        scaffold.create(name, "c", tmp_path / "folder")
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_already_is_left_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_applet(capfd, "new", "meter", "--template", "wat")[0] == 0
    source = tmp_path / "meter" / "applet.wat"
    source.write_text("mine")
    code, _, err = run_applet(capfd, "new", "meter", "--template", "c")
    assert code == 1
    assert "exists already" in err
    assert source.read_text() == "mine"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "does not exist"),
        ("", "has no build"),
        ("[build]", "has no module"),
        ("[build", "applet.toml"),
        ("build = 7", "applet.toml"),
        ('[build]\nmodule = "a.wasm"\nsteps = [[1]]', "1 is not a string"),
        ('[build]\nmodule = "a.wasm"\nsteps = [[]]', "a step is empty"),
        ('[build]\nmodule = "a.wasm"\nneeds = []', "applet.toml"),
        ('[build]\nmodule = "a.wasm"', "did not create"),
        ('[build]\nmodule = "a.wasm"\nsteps = [["/nowhere/tool"]]', "/nowhere/tool"),
    ],
)
def test_a_recipe_that_cannot_be_followed_is_told(
    text: str | None, said: str, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / "applet.toml").write_text(text)
    with pytest.raises(ScaffoldError) as caught:
        scaffold.build(tmp_path)
    assert said in str(caught.value)
