#!/usr/bin/env python3
"""Check the types of the dashboard's modules with TypeScript: scripts/browser_types.py

TypeScript is the package in dashboard/vendor.toml; it is installed into .venv at the first run.
Without Node, nothing is checked, which is an error if CI=true is set. The same holds if the
installation fails, for example without a network.
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
    """Return 1 if the types are wrong, or could not be checked in CI."""
    try:
        compiler = typescript()
    except VendorError as error:
        print(f"the dashboard's types are not checked: {error}")
        return 1 if os.environ.get("CI") == "true" else 0
    project = str(ROOT / "dashboard" / "tsconfig.json")
    return subprocess.run([str(compiler), "--project", project], check=False).returncode


def typescript() -> Path:
    """Return the compiler; install it if it is missing.

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
        # The folder appears completely or not at all, even if two checks run at the same time.
        with tempfile.TemporaryDirectory(dir=ROOT / ".venv", prefix=".typescript-") as work:
            packages = [each for each in described if each["name"] == "typescript"]
            install(Path(work), packages, described)
            if not folder.exists():
                shutil.copytree(work, folder, symlinks=True)
    return compiler


if __name__ == "__main__":
    sys.exit(main())
