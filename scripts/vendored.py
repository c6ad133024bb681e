#!/usr/bin/env python3
"""Make the dashboard's libraries, or check them: scripts/vendored.py make [--check] | digests

`digests` needs no network: it compares the files of dashboard/vendor with dashboard/vendor.toml,
and LICENSES with the list of packages. scripts/vendor runs `make`: it downloads the packages from
npm, compares their integrity before any of their code runs, and bundles them with esbuild.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DESCRIPTION = ROOT / "dashboard" / "vendor.toml"
FOLDER = ROOT / "dashboard" / "vendor"
_BY_HAND = frozenset({"preact.d.ts"})
_FILES = "[files]\n"
_JOIN = (
    *("--bundle", "--minify", "--format=esm", "--target=es2022"),
    *("--legal-comments=eof", "--log-level=error"),
)


class VendorError(Exception):
    """A package or a file differs from vendor.toml."""


def main() -> int:
    """Print the differences; return 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("make", "digests"))
    parser.add_argument("--check", action="store_true", help="write nothing, compare only")
    options = parser.parse_args()
    text = DESCRIPTION.read_text("utf-8")
    described = tomllib.loads(text)
    try:
        if options.action == "make":
            made = make(described)
            if not options.check:
                write(made, text)
                described = tomllib.loads(DESCRIPTION.read_text("utf-8"))
            else:
                compare(made)
    except VendorError as error:
        print(f"scripts/vendor: {error}", file=sys.stderr)
        return 1
    problems = [*digest_problems(described), *licence_problems(described)]
    for problem in problems:
        print(problem)
    print(f"{len(described['files'])} files of {len(described['package'])} packages")
    return 1 if problems else 0


def digest_problems(described: dict[str, Any]) -> list[str]:
    """Return the differences between the folder and the digests in the description."""
    listed: dict[str, str] = described["files"]
    found = {path.name: digest(path.read_bytes()) for path in FOLDER.iterdir()}
    return [
        f"dashboard/vendor/{name}: {'changed, missing or not listed'} in dashboard/vendor.toml"
        for name in sorted((listed.keys() | found.keys()) - _BY_HAND)
        if listed.get(name) != found.get(name)
    ]


def licence_problems(described: dict[str, Any]) -> list[str]:
    """Return the packages whose licence text is not in LICENSES."""
    text = (FOLDER / "LICENSES").read_text("utf-8")
    return [
        f"dashboard/vendor/LICENSES: {title(package)} is missing"
        for package in described["package"]
        if title(package) not in text
    ]


def digest(content: bytes) -> str:
    """Return the SHA-256, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def title(package: dict[str, str]) -> str:
    """Return the name of a package in LICENSES."""
    return f"{package['name']} {package['version']} ({package['licence']})"


def make(described: dict[str, Any]) -> dict[str, bytes]:
    """Make all files in a temporary folder; return them by name."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise VendorError(f"{program} is missing")
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        install(work, [*described["package"], *described["tool"]], described["binary"])
        made = {}
        for module, source in described["modules"].items():
            entry, out = work / f"{module}.js", work / "made" / f"{module}.js"
            entry.write_text(source, "utf-8")
            run(work, "node_modules/.bin/esbuild", str(entry), *_JOIN, f"--outfile={out}")
            made[out.name] = out.read_bytes()
        modules = work / "node_modules"
        made["uplot.css"] = (modules / "uplot" / "dist" / "uPlot.min.css").read_bytes()
        made["uplot.d.ts"] = uplot_types((modules / "uplot" / "dist" / "uPlot.d.ts").read_text())
        made["qr.d.ts"] = qr_types((modules / "lean-qr" / "index.d.ts").read_text())
        made["LICENSES"] = licences(modules, described["package"])
        return made


def install(work: Path, packages: list[dict[str, str]], binaries: list[dict[str, str]]) -> None:
    """Install exactly these packages, without running any of their code.

    Args:
        work: an empty folder.
        packages: the packages to install.
        binaries: packages that npm also installs on some platform.

    Raises:
        VendorError: a package differs from the listed one, or is not listed.
    """
    (work / "package.json").write_text("{}")
    wanted = [f"{each['name']}@{each['version']}" for each in packages]
    run(work, "npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--silent", *wanted)
    locked = json.loads((work / "package-lock.json").read_text("utf-8"))["packages"]
    listed = {each["name"]: each["integrity"] for each in (*packages, *binaries)}
    for path, entry in locked.items():
        if path and (work / path).is_dir():
            name = path.removeprefix("node_modules/")
            if listed.get(name) != entry["integrity"]:
                raise VendorError(
                    f"{name} has {entry['integrity']}, which vendor.toml does not list"
                )


def run(work: Path, *command: str) -> None:
    """Run a program in the temporary folder.

    Raises:
        VendorError: the program failed.
    """
    done = subprocess.run(command, cwd=work, capture_output=True, check=False, text=True)
    if done.returncode:
        raise VendorError(f"{' '.join(command[:2])} failed:\n{done.stdout}{done.stderr}")


def uplot_types(text: str) -> bytes:
    """Return uPlot's types, as those of a module instead of a global name."""
    forms = {"export = uPlot;": "export default uPlot;", "export as namespace uPlot;": ""}
    for old, new in forms.items():
        if text.count(old) != 1:
            raise VendorError("the types of uplot have another form")
        text = text.replace(old, new)
    return text.encode()


def qr_types(text: str) -> bytes:
    """Return the types of lean-qr's main module, without those of its other modules."""
    first = re.match(r"declare module 'lean-qr' \{\n(.*?)\n\}\n", text, re.DOTALL)
    if first is None:
        raise VendorError("the types of lean-qr have another form")
    return (textwrap.dedent(first[1]) + "\n").encode()


def licences(modules: Path, packages: list[dict[str, str]]) -> bytes:
    """Return the licence texts of all packages whose code is in the files."""
    texts = ["The files of this folder contain code of these packages.\n"]
    for package in packages:
        text = (modules / package["name"] / "LICENSE").read_text("utf-8").strip()
        texts.append(f"{'-' * 80}\n{title(package)}\n\n{text}\n")
    return "\n".join(texts).encode()


def write(made: dict[str, bytes], description: str) -> None:
    """Write the files, and their digests into the description."""
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.iterdir():
        if path.name not in _BY_HAND:
            path.unlink()
    for name, content in made.items():
        (FOLDER / name).write_bytes(content)
    rows = "".join(f'"{name}" = "{digest(made[name])}"\n' for name in sorted(made))
    head = description[: description.index(_FILES) + len(_FILES)]
    DESCRIPTION.write_text(head + rows, "utf-8")


def compare(made: dict[str, bytes]) -> None:
    """Compare made files with those of the repository.

    Raises:
        VendorError: the files differ.
    """
    differing = [
        name
        for name, content in made.items()
        if not (FOLDER / name).is_file() or (FOLDER / name).read_bytes() != content
    ]
    if differing:
        raise VendorError(f"other bytes than in dashboard/vendor: {', '.join(sorted(differing))}")


if __name__ == "__main__":
    sys.exit(main())
