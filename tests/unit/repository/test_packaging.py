"""The packages contain all files of the repository exactly once."""

from __future__ import annotations

import ast
import configparser
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections import Counter
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import fieldbrook
from fieldbrook.gateway.http.site.dashboard import is_served
from fieldbrook.workbench import scaffold

ROOT = Path(__file__).parents[3]
SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg", "utf-8")


def lines(section: str, option: str) -> list[str]:
    return [line.strip() for line in SETUP[section][option].splitlines() if line.strip()]


PACKAGES = lines("options", "packages")
SITE = ROOT / "fieldbrook" / "site"  # the built documentation, with copies of the examples
DATA = {"fieldbrook.dashboard"}
"""Packages of files for browsers, without any Python."""
FOLDERS = dict(re.split(r"\s*=\s*", line) for line in lines("options", "package_dir"))


def folder_of(package: str) -> Path:
    """Return the folder of a package's files, by the longest matching entry of package_dir."""
    parent, rest = package, ""
    while parent not in FOLDERS:
        parent, _, name = parent.rpartition(".")
        rest = f"{name}/{rest}"
    return ROOT / FOLDERS[parent] / rest


def module_files() -> set[str]:
    """Return every Python file of the packages, with its path in a wheel."""
    return {
        f"{package.replace('.', '/')}/{path.name}"
        for package in PACKAGES
        for path in folder_of(package).glob("*.py")
    }


def data_files() -> set[str]:
    """Return every other file for a wheel, including the documentation if it was built."""
    folders = ROOT / "fieldbrook" / "workbench" / "templates", ROOT / "fieldbrook" / "site"
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file()
    }
    return found | dashboard_files() | {"fieldbrook/py.typed"}


def dashboard_files() -> set[str]:
    """Return the files of the dashboard that a node serves, with their paths in a wheel."""
    folder = ROOT / "dashboard"
    names = (path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    return {f"fieldbrook/dashboard/{name}" for name in names if is_served(folder, name)}


def test_every_package_that_setup_cfg_lists_is_a_folder_with_an_init_file() -> None:
    missing = {p for p in PACKAGES if not (folder_of(p) / "__init__.py").is_file()}
    assert missing == DATA
    assert [p for p in DATA for _ in folder_of(p).rglob("*.py")] == []


def test_every_folder_of_python_files_is_a_package_that_setup_cfg_lists() -> None:
    found = {
        ".".join([package, *path.parent.relative_to(ROOT / folder).parts])
        for package, folder in FOLDERS.items()
        for path in (ROOT / folder).rglob("*.py")  # does not follow the links
        if not path.is_relative_to(SITE)
    }
    assert found | DATA == set(PACKAGES)


def test_the_package_has_one_link_per_folder_at_the_top_so_that_tools_find_it() -> None:
    links = {p.name: p.readlink() for p in (ROOT / "fieldbrook").iterdir() if p.is_symlink()}
    assert links == {
        package.rpartition(".")[2]: Path("..") / folder
        for package, folder in FOLDERS.items()
        if package != "fieldbrook"
    }


def test_the_import_ban_names_every_folder_that_must_not_be_imported_by_its_own_name() -> None:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    banned = re.findall(r'^"(\w+)"\.msg = "import fieldbrook\.\1"$', text, re.MULTILINE)
    assert set(banned) == {f for package, f in FOLDERS.items() if package not in DATA} - {
        "fieldbrook"
    }


def test_every_library_that_is_imported_is_a_dependency() -> None:
    imported = set()
    for package in PACKAGES:
        for path in folder_of(package).glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Import):
                    imported |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom):
                    imported.add((node.module or "").partition(".")[0])
    libraries = imported - sys.stdlib_module_names - {"fieldbrook"}
    distributions = metadata.packages_distributions()
    # Several distributions may share a name, such as `google`.
    needed = {name: {*map(normal, distributions[name])} for name in libraries}
    known = {requirement_name(r) for r in lines("options", "install_requires")}
    for extra in ("chains", "postgres", "otel"):  # imported only if a setting requires it
        known |= {requirement_name(r) for r in lines("options.extras_require", extra)}
    assert [name for name, makers in needed.items() if not makers & known] == []


def test_every_dependency_has_an_upper_bound() -> None:
    requirements = lines("options", "install_requires")
    requirements += lines("options.extras_require", "chains")
    assert [r for r in requirements if "<" not in r and "==" not in r] == []


def test_tests_have_the_libraries_of_chains() -> None:
    extras = "options.extras_require"
    assert {*lines(extras, "chains")} <= {*lines(extras, "test")}


def test_every_installed_dependency_is_within_its_bounds() -> None:
    chains = lines("options.extras_require", "chains")
    for line in [*lines("options", "install_requires"), *chains]:
        requirement = Requirement(line)
        assert metadata.version(requirement.name) in requirement.specifier, line


def requirement_name(requirement: str) -> str:
    match = re.match(r"[\w.-]+", requirement)
    assert match is not None
    return normal(match[0])


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


# ---------------------------------------------------------------- what is built


def test_a_container_is_built_from_every_package_and_from_files_that_are_there() -> None:
    ignored, *taken = (ROOT / "docker" / "Dockerfile.dockerignore").read_text().split()
    assert ignored == "**"
    names = {name.removeprefix("!") for name in taken if name.startswith("!")}
    assert [name for name in names if not (ROOT / name).exists()] == []
    assert set(FOLDERS.values()) <= names
    copied = re.findall(
        r"^COPY (?!--from)(.+) \S+$", (ROOT / "docker" / "Dockerfile").read_text(), re.MULTILINE
    )
    for source in " ".join(copied).split():
        assert (ROOT / source).exists()
        assert source == "." or source.partition("/")[0] in names


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A source distribution of a copy of the repository, and a wheel built from that."""
    top = tmp_path_factory.mktemp("build")
    copy, unpacked, out = top / "copy", top / "unpacked", top / "out"
    copy.mkdir()
    out.mkdir()
    for name in (
        *("setup.cfg", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md"),
        *("CONTRIBUTING.md", "SECURITY.md", "supervisor.conf", "scripts", "docker", "examples"),
        *FOLDERS.values(),
    ):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(
                source, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copy2(source, copy / name)
    sdist = out / build("sdist", copy, out)
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
    wheel = out / build("wheel", next(unpacked.iterdir()), out)
    return sdist, wheel


def build(kind: str, folder: Path, out: Path) -> str:
    script = (
        "import sys; from setuptools import build_meta;"
        "print('\\nbuilt ' + getattr(build_meta, 'build_' + sys.argv[1])(sys.argv[2]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, kind, str(out)],
        cwd=folder,
        capture_output=True,
        check=False,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.rpartition("built ")[2].strip()


def test_a_wheel_holds_every_module_and_template_once_and_under_its_import_name(
    built: tuple[Path, Path],
) -> None:
    with zipfile.ZipFile(built[1]) as wheel:
        names = wheel.namelist()
    code = [name for name in names if ".dist-info/" not in name]
    assert Counter(code) == Counter(module_files() | data_files())


def test_the_dashboard_makes_a_wheel_at_most_300_kb_larger(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[1]) as wheel:
        sizes = {
            entry.filename: entry.compress_size
            for entry in wheel.infolist()
            if entry.filename.startswith("fieldbrook/dashboard/")
        }
    assert {"fieldbrook/dashboard/index.html", "fieldbrook/dashboard/vendor/LICENSES"} <= set(sizes)
    assert sum(sizes.values()) <= 300_000


def test_a_source_distribution_holds_every_file_once_and_no_link(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[0]) as archive:
        members = archive.getmembers()
    assert [m.name for m in members if m.issym() or m.islnk()] == []
    names = Counter(m.name.partition("/")[2] for m in members if m.isfile())
    assert [name for name, count in names.items() if count > 1] == []
    linked = [f"fieldbrook/{p.rpartition('.')[2]}/" for p in FOLDERS if p != "fieldbrook"]
    assert [name for name in names if name.startswith(tuple(linked))] == []
    for package in PACKAGES:
        for path in folder_of(package).resolve().glob("*.py"):
            assert str(path.relative_to(ROOT)) in names
    assert {name.replace("fieldbrook/dashboard/", "dashboard/") for name in data_files()} <= set(
        names
    )
    assert "dashboard/vendor.toml" in names
    assert {"LICENSE", "README.md", "supervisor.conf", "scripts/up"} <= set(names)


def test_a_wheels_modules_import_by_the_products_name(built: tuple[Path, Path]) -> None:
    script = (
        "import fieldbrook, fieldbrook.actors, fieldbrook.gateway, fieldbrook.core.model,"
        "fieldbrook.storage.lmdb.codec;"
        "print(fieldbrook.__version__, fieldbrook.storage.lmdb.codec.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=built[1].parent,
        env={"PYTHONPATH": str(built[1])},
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [
        fieldbrook.__version__,
        str(built[1] / "fieldbrook" / "storage" / "lmdb" / "codec.py"),
    ]


def test_a_wheels_templates_make_projects(built: tuple[Path, Path], tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from fieldbrook.workbench import scaffold;"
        "[scaffold.create(name, name, Path(sys.argv[1], name)) for name in scaffold.TEMPLATES]"
    )
    subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        cwd=built[1].parent,
        env={"PYTHONPATH": str(built[1])},
        check=True,
        timeout=60,
    )
    folder = ROOT / "fieldbrook" / "workbench" / "templates"
    shipped = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    made = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    common = {path.name for path in (folder / "common").iterdir()}
    own = {path for path in shipped if path.parts[0] != "common"}
    everywhere = {Path(name, file) for name in scaffold.TEMPLATES for file in common}
    assert common
    assert {path for path in made if path.name != ".gitignore"} == own | everywhere


def test_a_wheel_has_the_version_of_the_source_and_the_command(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[1]) as wheel:
        information = f"fieldbrook-{fieldbrook.__version__}.dist-info"
        description = wheel.read(f"{information}/METADATA").decode()
        commands = wheel.read(f"{information}/entry_points.txt").decode()
    assert f"\nVersion: {fieldbrook.__version__}\n" in description
    assert "\nLicense-Expression: Apache-2.0\n" in description
    assert "fieldbrook = fieldbrook.cli.main:main" in commands


def test_supervisorctl_finds_the_socket_without_a_variable() -> None:
    supervised = configparser.RawConfigParser()
    supervised.read(ROOT / "supervisor.conf", "utf-8")
    address = supervised["supervisorctl"]["serverurl"]
    assert address.startswith("unix://%(here)s/data/")
    served = supervised["unix_http_server"]["file"]
    assert served.rpartition("/")[2] == address.rpartition("/")[2]
    assert '"$here/data"' in (ROOT / "docker" / "start").read_text("utf-8")
