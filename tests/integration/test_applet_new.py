"""`fieldbrook applet new` asks for what its arguments leave open."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.dev import environment, on_terminal
from tests.support.tools import LIMIT_S


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    return environment(tmp_path / "home")


def test_a_new_applet_is_asked_for_on_a_terminal(
    tmp_path: Path, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = on_terminal(
        variables, "applet", "new", typed=b"Not A Name\nbarn\ncobol\nwat\n", last=b"at each save"
    )
    assert "Name [my-applet]: " in shown
    assert "'Not A Name' is not a name for an applet" in shown
    assert "Language [" in shown
    assert "'cobol' is not one of" in shown
    assert (tmp_path / "barn" / "applet.wat").is_file()
    on_terminal(variables, "applet", "new", "--template", "c", typed=b"\n", last=b"at each save")
    assert (tmp_path / "my-applet" / "applet.c").is_file()
    variables["PATH"] = "/nowhere"
    shown = on_terminal(variables, "applet", "new", "hut", typed=b"\n", last=b"at each save")
    assert "(needs npm, not installed here)" in shown
    assert (tmp_path / "hut" / "applet.wat").is_file()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((), "cannot ask for the name and the language: standard input is not a terminal"),
        (("hut",), "cannot ask for the language: standard input is not a terminal"),
        (("--template", "c"), "cannot ask for the name: standard input is not a terminal"),
    ],
)
def test_nothing_is_asked_where_nobody_can_answer(
    given: tuple[str, ...], said: str, tmp_path: Path, variables: dict[str, str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fieldbrook", "applet", "new", *given],
        env=variables,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
        text=True,
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert "use `fieldbrook applet new NAME --template LANGUAGE`" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_not_valid_is_refused_before_anything_is_asked(
    variables: dict[str, str],
) -> None:
    shown = on_terminal(variables, "applet", "new", "A B", typed=b"", last=b"a letter first")
    assert "'A B' is not a name for an applet" in shown
    assert "Language" not in shown
