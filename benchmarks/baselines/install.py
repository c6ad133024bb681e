"""Getting the baselines that are not Python packages, once, below `benchmarks/.peers`.

Nothing is installed into the system: npm packages in versions that are pinned here, and
Debian's nginx unpacked from its package, so that no service comes with it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent.parent / ".peers"
NPM_PACKAGES = {"node-red": "4.1.15", "workerd": "1.20261117.1"}
_NGINX_ROOT = FOLDER / "nginx-root"
_LIMIT_S = 300
# Debian keeps servers where a user's PATH does not look.
_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])


def program(name: str) -> str | None:
    """Where a server is, or None."""
    return shutil.which(name, path=_PATH)


def nginx() -> str | None:
    """The system's nginx, or the one unpacked here."""
    own = _NGINX_ROOT / "usr" / "sbin" / "nginx"
    return program("nginx") or (str(own) if own.exists() else None)


def node_red() -> Path | None:
    """What node runs as Node-RED."""
    script = FOLDER / "node_modules" / "node-red" / "red.js"
    return script if script.exists() and program("node") else None


def workerd() -> Path | None:
    """Where npm puts workerd's program: in a package per machine type."""
    found = sorted(FOLDER.glob("node_modules/@cloudflare/workerd-*/bin/workerd"))
    return found[0] if found else None


def install() -> list[str]:
    """Get what is not there yet; returns a line for each that could not be had."""
    FOLDER.mkdir(exist_ok=True)
    failed = []
    if node_red() is None or workerd() is None:
        packages = [f"{name}@{version}" for name, version in NPM_PACKAGES.items()]
        flags = ["--no-audit", "--no-fund", "--save-exact", "--prefix", str(FOLDER)]
        failed += _run(["npm", "install", *flags, *packages], FOLDER)
    if nginx() is None:
        with tempfile.TemporaryDirectory() as folder:
            problem = _run(["apt-get", "download", "nginx"], Path(folder))
            for package in Path(folder).glob("nginx_*.deb"):
                problem += _run(["dpkg-deb", "-x", str(package), str(_NGINX_ROOT)], FOLDER)
            failed += problem
    return failed


def _run(command: list[str], folder: Path) -> list[str]:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, timeout=_LIMIT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return [f"{command[0]}: {error}"]
    last = (done.stderr.strip() or "no reason given").splitlines()[-1]
    return [f"{' '.join(command[:2])}: {last}"] if done.returncode else []
