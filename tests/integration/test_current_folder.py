"""A node imports nothing from the folder in which it is started."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from tests.support.applets import TALLY
from tests.support.nodes import RunningNode, message

# Of the standard library what is imported late, by what starts children and compiles modules.
_STANDARD = ("argparse", "hashlib", "hmac", "json", "multiprocessing", "sqlite3", "tempfile")


class _Elsewhere(RunningNode):
    """Runs in a folder with a file named after each library, which leaves a mark when imported."""

    def __init__(self, data: Path, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        libraries = {name for name in metadata.packages_distributions() if name.isidentifier()}
        for name in {*libraries, *_STANDARD} - {"fieldbrook"}:
            text = f"open({str(folder / 'imported')!r}, 'a').write('{name} ')\n"
            (folder / f"{name}.py").write_text(f"{text}raise ImportError('not the real one')\n")
        super().__init__(data)


def test_a_node_imports_nothing_from_the_folder_in_which_it_is_started(tmp_path: Path) -> None:
    node = _Elsewhere(tmp_path / "data", tmp_path / "folder")
    try:
        node.log_in()
        node.create_project("room")
        applet = node.deploy("room", TALLY)  # which is compiled in a process of its own
        publisher = node.add_publisher("room", "d")
        assert node.send("room", message(publisher)).status == 201
        assert node.count("room", applet["appletID"]) == 1
    finally:
        node.stop()
    mark = tmp_path / "folder" / "imported"
    assert not mark.exists(), mark.read_text()
