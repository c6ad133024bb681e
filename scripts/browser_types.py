#!/usr/bin/env python3
"""Check the types of the dashboard's modules with TypeScript: scripts/browser_types.py

TypeScript is the package that dashboard/vendor.toml lists, installed into .venv at the first run.
Without Node nothing is checked, which is an error where CI=true is set; so is a failing
installation, for example without a network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from vendored import DESCRIPTION, ROOT, VendorError, install


def main() -> int:
    """Returns 1 when the types are wrong, or could not be checked in CI."""
    try:
        compiler = typescript()
    except VendorError as error:
        print(f"the dashboard's types are not checked: {error}")
        return 1 if os.environ.get("CI") == "true" else 0
    project = str(ROOT / "dashboard" / "tsconfig.json")
    return subprocess.run([str(compiler), "--project", project], check=False).returncode


def typescript() -> Path:
    """The compiler; it is installed when it is not there.

    Raises:
        VendorError: Node or npm is missing, or the installation failed.
    """
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise VendorError("node or npm is missing")
    described = tomllib.loads(DESCRIPTION.read_text("utf-8"))["checker"]
    (version,) = (each["version"] for each in described if each["name"] == "typescript")
    folder = ROOT / ".venv" / f"typescript-{version}"
    compiler = folder / "node_modules" / ".bin" / "tsc"
    if not compiler.exists():
        # Complete or not there, also when two checks run at once.
        with tempfile.TemporaryDirectory(dir=ROOT / ".venv", prefix=".typescript-") as work:
            packages = [each for each in described if each["name"] == "typescript"]
            install(Path(work), packages, described)
            if not folder.exists():
                shutil.copytree(work, folder, symlinks=True)
    return compiler


if __name__ == "__main__":
    sys.exit(main())
