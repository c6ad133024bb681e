"""The layout: small folders, and a documentation page that matches them."""

from __future__ import annotations

import ast
import configparser
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TOP_LEVEL = ("actors", "chain", "cluster", "dashboard", "gateway", "storage", "wasm")
FILES_AT_MOST = 12
"""How many Python files one folder holds, its `__init__.py` included."""

SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg", "utf-8")
PACKAGES = SETUP["options"]["packages"].split()


def folder_of(package: str) -> Path:
    """Return the folder of a package below the root: `fieldbrook.gateway.http` is
    `gateway/http`."""
    parts = package.split(".")
    return Path(*(parts[1:] if parts[1:2] and parts[1] in TOP_LEVEL else parts))


FOLDERS = sorted(folder_of(package) for package in PACKAGES)
WITH_PYTHON = [folder for folder in FOLDERS if folder != Path("dashboard")]


@pytest.mark.parametrize("folder", FOLDERS, ids=str)
def test_no_folder_holds_more_files_than_a_reader_can_take_in(folder: Path) -> None:
    assert len(list((ROOT / folder).glob("*.py"))) <= FILES_AT_MOST


@pytest.mark.parametrize("folder", [f for f in WITH_PYTHON if f != Path("fieldbrook")], ids=str)
def test_every_folder_says_what_comes_in_what_goes_out_and_where_to_begin(folder: Path) -> None:
    text = ast.get_docstring(ast.parse((ROOT / folder / "__init__.py").read_text("utf-8"))) or ""
    assert re.search(r"^In: ", text, re.MULTILINE)
    assert re.search(r"^Out: ", text, re.MULTILINE)
    first = re.search(r"^Open first: (.*)\Z", text, re.MULTILINE | re.DOTALL)
    assert first is not None
    named = re.findall(r"`([a-z_/]+(?:\.py|/))`", first[1])
    missing = [name for name in named if not (ROOT / folder / name).exists()]
    assert missing == []


def test_the_page_for_contributors_shows_every_folder_and_no_other() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    block = re.search(r"```text\n(fieldbrook/\n.*?)```", page, re.DOTALL)
    assert block is not None
    shown, above = [], [Path()]
    for line in block[1].splitlines():
        entry = re.match(r"( *)([a-z_]+)/(?: |$)", line)
        if entry is None:
            continue
        depth = len(entry[1]) // 2
        del above[depth + 1 :]
        above.append(above[depth] / entry[2])
        shown.append(above[-1])
    assert sorted(shown) == FOLDERS


def test_every_package_lies_in_a_layer_of_the_import_contracts() -> None:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    contract = text[text.index('id = "layers"') :]
    block = re.search(r"^layers = \[\n(.*?)^\]", contract, re.MULTILINE | re.DOTALL)
    assert block is not None
    layers = set(re.findall(r"[a-z_.]+", block[1]))
    below = {package.removeprefix("fieldbrook.") for package in PACKAGES}
    below -= {"fieldbrook", "dashboard"}
    # A package that is split into layers, such as `chain`, contains only modules that belong to a
    # layer.
    uncovered = {
        package
        for package in below
        if not any(package == layer or package.startswith(f"{layer}.") for layer in layers)
        and not any(layer.startswith(f"{package}.") for layer in layers)
    }
    assert uncovered == set()
