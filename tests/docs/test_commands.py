"""Every command that a page shows is run, or says why it is not."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from fieldbrook.cli import main as cli
from tests.docs.commands import ANVIL, Script, Step, complete_commands, look_for, parse, run_page
from tests.docs.site import DOCS, ROOT
from tests.docs.terminal import PICTURES, draw, names
from tests.support.tools import npm_installed, require_tool

PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
SCRIPTS = {path: parse(path.read_text("utf-8")) for path in PAGES}


def runs(script: Script) -> bool:
    return any(step.kind in ("run", "fails") for step in script.steps)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", [p for p in PAGES if runs(SCRIPTS[p])], ids=name_of)
@pytest.mark.thorough("how-to", "contract", "fleet", "index", "w3bstream")
def test_the_commands_of_a_page_do_what_it_says(
    path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for program in SCRIPTS[path].needs:
        if program == "anvil":
            npm_installed(ANVIL.parents[1])
        else:
            require_tool(program)
    # `tmp_path` has the test's name in it: a data folder there is too long for Unix sockets.
    ran = run_page(path, tmp_path_factory.mktemp("page") / "clone")
    stale = [
        name
        for name, picture in draw(ran).items()
        if not (PICTURES / name).exists() or (PICTURES / name).read_text() != picture
    ]
    assert stale == [], "run: python -m tests.docs.terminal"


NOT_RUN = [
    pytest.param(path, step, id=f"{name_of(path)}:{step.line}")
    for path in PAGES
    for step in SCRIPTS[path].steps
    if step.kind == "not run"
]


@pytest.mark.parametrize(("path", "step"), NOT_RUN)
def test_a_command_that_is_not_run_has_a_reason(path: Path, step: Step) -> None:
    """Listed by `pytest -v tests/docs/test_commands.py -k not_run`."""
    assert len(step.value.split()) >= 3, f"{name_of(path)}:{step.line} needs a reason"


def unknown_words(line: str) -> list[str]:
    """Return the commands and options of a `fieldbrook` command line that do not exist."""
    words = shlex.split(line, comments=True)
    command: click.Command = cli.cli
    unknown = []
    for word in words[words.index("fieldbrook") + 1 :]:
        if word.startswith("--"):
            parameters = command.get_params(click.Context(command))
            options = {o for p in (*parameters, *cli.cli.params) for o in p.opts}
            unknown += [word] if word.partition("=")[0] not in options else []
        elif isinstance(command, click.Group):
            command = command.get_command(click.Context(command), word) or command
    return unknown + ([f"{command.name} ..."] if isinstance(command, click.Group) else [])


@pytest.mark.parametrize(("path", "step"), NOT_RUN)
def test_a_command_that_is_not_run_has_only_options_that_there_are(path: Path, step: Step) -> None:
    text = step.text.replace("\\\n", " ")
    lines = [line for line in text.splitlines() if re.match(r"(\w+=\S+ )*fieldbrook ", line)]
    assert {line: unknown_words(line) for line in lines if unknown_words(line)} == {}


def test_no_block_of_commands_hides_behind_another_language() -> None:
    hidden = [
        name_of(path)
        for path in PAGES
        for language in ("bash", "shell", "console", "zsh")
        if f"```{language}" in path.read_text("utf-8")
    ]
    assert hidden == []


def test_every_picture_of_a_terminal_is_drawn_from_a_page_that_shows_it() -> None:
    drawn = {name for path in PAGES for name in names(path)}
    assert drawn == {path.name for path in PICTURES.glob("*.svg")}
    for path in PAGES:
        for name in names(path):
            assert f"pictures/{name})" in path.read_text("utf-8")


PAGE = """
<!-- needs: curl -->
<!-- setup: node admin -->

```sh
one
```

<!-- prints -->
```text
a ... c
```

<!-- not run: it needs another machine -->
```sh
two
```

<!-- run
three
-->

```json
{}
```

<!-- file: a/b.c -->
```c
    int x;
```
"""


def test_a_page_is_read_in_its_order() -> None:
    script = parse(PAGE)
    assert [(s.kind, s.text.strip(), s.value) for s in script.steps] == [
        ("run", "one", ""),
        ("prints", "a ... c", ""),
        ("not run", "two", "it needs another machine"),
        ("run", "three", ""),
        ("file", "int x;", "a/b.c"),
    ]
    assert script.steps[-1].text == "    int x;\n"
    assert (script.needs, script.setup) == (["curl"], ["node", "admin"])


def test_a_block_is_split_into_whole_commands() -> None:
    text = "# first\na \\\n  b\nfor x in 1 2; do\n  echo $x\ndone\ncat <<E\nx\nE\nc"
    assert complete_commands(text) == [
        "a \\\n  b",
        "for x in 1 2; do\n  echo $x\ndone",
        "cat <<E\nx\nE",
        "c",
    ]


def test_printed_lines_are_looked_for_in_their_order() -> None:
    step = Step("prints", "a ... c\nlast\n", 1)
    look_for(step, "x\na b c\ny\nlast", "here")
    with pytest.raises(AssertionError, match="here: 'last' is not printed"):
        look_for(step, "last\na b c", "here")
