"""Installation with pipx, as the guide describes it, and the installed node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fieldbrook
from tests.support.nodes import RunningNode, message
from tests.unit.repository.test_packaging import ROOT, built

__all__ = ["built"]

# All dependencies are installed into a new environment, which takes a minute with a fifth of a
# core.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder with the environments and programs of pipx."""
    return tmp_path_factory.mktemp("home")


def pipx(home: Path, *arguments: str) -> str:
    places = {"HOME": home, "PIPX_HOME": home / "pipx", "PIPX_BIN_DIR": home / "bin"}
    # Python compiles the imported modules, which are a small part of all libraries.
    quick = {"PIP_COMPILE": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "pipx", *arguments],
        env={**os.environ, **quick, **{name: str(place) for name, place in places.items()}},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def program(home: Path, built: tuple[Path, Path]) -> Path:
    """`fieldbrook` as pipx installs it, with the additional packages of the guide."""
    guide = (ROOT / "docs" / "how-to" / "deploy.md").read_text("utf-8")
    assert "\npipx install '.[postgres]'\n" in guide
    pipx(home, "install", f"{built[1]}[postgres]")
    return home / "bin" / "fieldbrook"


@pytest.mark.thorough
def test_pipx_installs_the_one_program_of_this_version(home: Path, program: Path) -> None:
    environments = json.loads(pipx(home, "list", "--json"))["venvs"]
    package = environments["fieldbrook"]["metadata"]["main_package"]
    assert (package["package_version"], package["apps"]) == (fieldbrook.__version__, ["fieldbrook"])
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"fieldbrook {fieldbrook.__version__}\n"


def test_the_installed_program_runs_a_node(program: Path, tmp_path: Path) -> None:
    class Installed(RunningNode):
        folder = tmp_path

    Installed.program = (str(program),)
    node = Installed(tmp_path / "n")
    try:
        node.log_in()
        node.create_project("room")
        node.deploy("room", (ROOT / "examples" / "counter" / "counter.wat").read_bytes())
        publisher = node.add_publisher("room", "d")
        assert node.send("room", message(publisher, b"1")).status == 201
        done = subprocess.run(
            [program, "--data", node.data, "verify"], capture_output=True, text=True, check=True
        )
        assert done.stderr.startswith("no defects")
    finally:
        node.stop()


def test_the_installation_without_extras_takes_at_most_90_mb(program: Path) -> None:
    script = (
        "import importlib.metadata as m, json;"
        "print(json.dumps({d.name: sum(p.locate().stat().st_size for p in d.files "
        "if p.locate().exists()) for d in m.distributions()}))"
    )
    done = subprocess.run(
        [program.resolve().with_name("python"), "-c", script],
        capture_output=True,
        text=True,
        check=True,
    )
    sizes = json.loads(done.stdout)
    assert {"fieldbrook", "wasmtime", "psycopg"} <= set(sizes)
    # Packages that this test adds for a database, and the installer, which existed before.
    others = {"psycopg", "psycopg-binary", "pip", "setuptools"}
    assert sum(size for name, size in sizes.items() if name not in others) <= 90_000_000
