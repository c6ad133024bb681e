"""A node imports nothing from the folder in which it is started."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest

from tests.support.applets import TALLY
from tests.support.nodes import RunningNode, message

# Modules of the standard library that are imported late, when children are started and modules
# compiled.
_STANDARD = ("argparse", "hashlib", "hmac", "json", "multiprocessing", "sqlite3", "tempfile")

_INSTALLED = (str(Path(sys.executable).with_name("fieldbrook")),)
_SAFE_PATH = (sys.executable, "-P", "-m", "fieldbrook")
_MODULE = (sys.executable, "-m", "fieldbrook")


class _Elsewhere(RunningNode):
    """A node in a folder with a file named like each library, which writes a mark when it is
    imported."""

    def __init__(self, data: Path, folder: Path, program: tuple[str, ...]) -> None:
        self.folder = folder
        self.program = program
        folder.mkdir()
        libraries = {name for name in metadata.packages_distributions() if name.isidentifier()}
        # `python -m fieldbrook` itself imports this name, before any code of the node runs.
        unavoidable = {"fieldbrook"} if program == _MODULE else set()
        for name in {*libraries, *_STANDARD, "fieldbrook"} - unavoidable:
            text = f"open({str(folder / 'imported')!r}, 'a').write('{name} ')\n"
            (folder / f"{name}.py").write_text(f"{text}raise ImportError('not the real one')\n")
        super().__init__(data)


@pytest.mark.parametrize("program", [_INSTALLED, _SAFE_PATH, _MODULE], ids=["script", "-P", "-m"])
@pytest.mark.thorough("-P", "-m")
def test_a_node_imports_nothing_from_the_folder_in_which_it_is_started(
    program: tuple[str, ...], tmp_path: Path
) -> None:
    node = _Elsewhere(tmp_path / "data", tmp_path / "folder", program)
    try:
        node.log_in()
        node.create_project("room")
        applet = node.deploy("room", TALLY)  # the module is compiled in a process of its own
        publisher = node.add_publisher("room", "d")
        assert node.send("room", message(publisher)).status == 201
        assert node.count("room", applet["appletID"]) == 1
    finally:
        node.stop()
    mark = tmp_path / "folder" / "imported"
    assert not mark.exists(), mark.read_text()
