"""The commands on pages of the dashboard are valid in this version."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from fieldbrook.cli.main import cli

DASHBOARD = Path(__file__).parents[3] / "dashboard"
# Complete commands, in which the page fills in values. Commands that a function joins are not
# found.
_SHOWN = re.compile(
    r"""text=(?:"(fieldbrook [^"]+)"|\$\{`(fieldbrook (?:[^`$]|\$\{[^`{}]*\})+)`\})"""
)
_VALUE = "1"
_FILLED_IN = re.compile(r"\$\{[^`{}]*\}")


def shown() -> list[str]:
    pages = [path.read_text() for path in sorted(DASHBOARD.rglob("*.js"))]
    found = [text for page in pages for pair in _SHOWN.findall(page) for text in pair if text]
    lines = [line for text in found for line in text.split(r"\n")]
    commands = sorted({_FILLED_IN.sub(_VALUE, line) for line in lines})
    return [line for line in commands if f"monitor {_VALUE}" not in line]  # a command is filled in


def test_commands_are_found() -> None:
    assert "fieldbrook admin create" in shown()
    assert "fieldbrook logs 1 --follow" in shown()


@pytest.mark.parametrize("line", shown())
def test_a_command_takes_the_words_that_the_page_shows(line: str) -> None:
    command: click.Command = cli
    words = line.split()[1:]
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words[0])
        assert found is not None, words[0]
        command, words = found, words[1:]
    values, rest, _ = command.make_parser(click.Context(command)).parse_args(words)
    assert rest == []
    needed = [
        each.name for each in command.params if isinstance(each, click.Argument) and each.required
    ]
    assert [name for name in needed if values.get(name) is None] == []
