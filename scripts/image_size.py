#!/usr/bin/env python3
"""Calculate the size of the container image without a container engine: scripts/image_size.py

It runs the commands of the first stage of docker/Dockerfile in a temporary folder, which takes a
minute and needs `strip`. Then it adds up the sizes of the parts of the image:

* Debian: the packages that the base image `python:VERSION-slim` installs, by their files on this
  machine, without manuals and translations, as in the base image;
* Python: this interpreter's files, without tests, caches, static libraries and symbols, as in the
  base image;
* the files that the Dockerfile copies into the image.

Run it with the Python version of the Dockerfile on a Debian system. With a number of MB as its
argument, the exit code is 1 if the image is larger. With `--keep FOLDER`, the installed files stay
in the folder.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent
MB = 1_000_000  # the unit of container engines
VENV = "/opt/fieldbrook"
# The packages that debian:*-slim and python:*-slim install; their dependencies are added with dpkg.
PACKAGES = "apt ca-certificates netbase tzdata"
LIBRARIES = (
    "libbz2-1.0 libdb5.3 libexpat1 libffi8 libgdbm6 liblzma5 libncursesw6 libreadline8 "
    "libsqlite3-0 libssl3 libtirpc3 libuuid1 zlib1g"
)
# debian:*-slim has no manuals, except licences, and no translations.
_MANUALS = re.compile(
    r"/usr/share/(man|info|locale|groff|lintian|linda|doc(?!/[^/]+/copyright$))(/|$)"
)
# python:*-slim removes these files of Python.
_REMOVED = re.compile(r"(^|/)(test|tests|idle_test|__pycache__)/|\.py[co]$|libpython[^/]*\.a$")


def main(arguments: list[str]) -> int:
    """Print the size of each part and their sum; return the exit code."""
    dockerfile = (ROOT / "docker" / "Dockerfile").read_text("utf-8")
    wanted = re.findall(r"^FROM python:(\d+\.\d+)-slim", dockerfile, re.MULTILINE)
    running = "{}.{}".format(*sys.version_info)
    if {*wanted} != {running}:
        print(f"this is Python {running}, the Dockerfile has {wanted[-1]}", file=sys.stderr)
        return 2
    kept = arguments.index("--keep") if "--keep" in arguments else -1
    with _folder(Path(arguments[kept + 1]) if kept >= 0 else None) as made:
        parts = {
            "Debian packages": debian_bytes(),
            f"Python {running}": sum(map(stripped_size_of, python_files())),
            **installed(dockerfile, made),
            "docker/health.py": size_of(ROOT / "docker" / "health.py"),
        }
    for part, size in parts.items():
        print(f"{size / MB:8.1f} MB  {part}")
    total = sum(parts.values())
    print(f"{total / MB:8.1f} MB  together")
    limit = next((word for word in arguments[:1] if kept != 0), "inf")
    return int(total > float(limit) * MB)


@contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True)
        yield kept.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="fieldbrook-image-") as made:
        yield Path(made)


def debian_bytes() -> int:
    """Return the size of the base image's packages and their dependencies, by their files on this
    machine."""
    shown = "${Package} ${Essential} ${Priority} ${Pre-Depends}, ${Depends}\n"
    text = subprocess.run(
        ["dpkg-query", "--show", "--showformat", shown], capture_output=True, text=True, check=True
    ).stdout
    needs, todo = {}, [*PACKAGES.split(), *LIBRARIES.split()]
    for line in text.splitlines():
        package, essential, priority, depends = line.split(" ", 3)
        needs[package] = re.findall(r"(?:^|,)\s*([a-z0-9][a-z0-9.+-]*)", depends)
        if essential == "yes" or priority == "required":
            todo.append(package)
    counted: set[str] = set()
    while todo:
        package = todo.pop()
        if package in needs and package not in counted:
            counted.add(package)
            todo += needs[package]
    listed = subprocess.run(
        ["dpkg-query", "--listfiles", *sorted(counted)], capture_output=True, text=True, check=True
    ).stdout
    names = {name for name in listed.splitlines() if not _MANUALS.match(name)}
    return sum(size_of(Path(name)) for name in names)


def python_files() -> Iterator[Path]:
    """Return the files of this interpreter that the base image also has; pip is the only
    package."""
    base, library = Path(sys.base_prefix), Path(sysconfig.get_path("stdlib"))
    binary = Path(os.path.realpath(sys.executable))
    yield binary
    yield from (base / "lib").glob("libpython3*.so*")
    for path in library.rglob("*"):
        name = path.relative_to(library).as_posix()
        outside = name.startswith("site-packages/") and not name.startswith("site-packages/pip")
        if path.is_file() and not outside and not _REMOVED.search(name):
            yield path


def installed(dockerfile: str, folder: Path) -> dict[str, int]:
    """Run the commands of the first stage; return the sizes of the files that the second stage
    copies."""
    stage = dockerfile.split("\nFROM ")[1].replace("\\\n", " ")
    commands = re.findall(r"^RUN (?!apt-get)(.+)$", stage, re.MULTILINE)
    source, tools, target = folder / "source", folder / "bin", folder / VENV.lstrip("/")
    _copy_source(source)
    tools.mkdir()
    (tools / "python").symlink_to(sys.executable)
    target.parent.mkdir(parents=True)
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    for command in commands:
        subprocess.run(
            ["sh", "-ec", command.replace(VENV, str(target))],
            cwd=source,
            env=environment,
            stdout=sys.stderr,
            check=True,
        )
    packages = next(target.glob("lib/python3*/site-packages"))
    sizes = {
        f"{VENV}: {path.name}": _total(path)
        for path in packages.iterdir()
        if _total(path) >= 5 * MB
    }
    largest = dict(sorted(sizes.items(), key=lambda item: -item[1]))
    return {**largest, f"{VENV}: the rest": _total(target) - sum(largest.values())}


def _copy_source(target: Path) -> None:
    """Copy the files that the Dockerfile's `COPY . .` would copy."""
    lines = (ROOT / "docker" / "Dockerfile.dockerignore").read_text("utf-8").split()
    target.mkdir()
    for name in (line.removeprefix("!") for line in lines if line.startswith("!")):
        path = ROOT / name
        if path.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "node_modules", "build")
            shutil.copytree(path, target / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy2(path, target / name)


def _total(path: Path) -> int:
    return sum(map(size_of, path.rglob("*"))) if path.is_dir() else size_of(path)


def size_of(path: Path) -> int:
    """Return the size of a file; links and folders take no space in an image's layers."""
    return path.stat().st_size if path.is_file() and not path.is_symlink() else 0


def stripped_size_of(path: Path) -> int:
    """Return the size of a file, without the symbols of a program or a library."""
    with path.open("rb") as file:
        if file.read(4) != b"\x7fELF":
            return size_of(path)
    with tempfile.NamedTemporaryFile() as made:
        subprocess.run(["strip", "--strip-all", "-o", made.name, str(path)], check=True)
        return size_of(Path(made.name))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
