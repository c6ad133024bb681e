"""Programs that tests need beside Python."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

# Debian keeps servers where a user's PATH does not look.
_SERVERS = (
    "/usr/sbin",
    "/usr/local/sbin",
    *sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True),
)


def require_tool(name: str) -> str:
    """The path of a program; the test is skipped without it, and fails when CI=true."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *_SERVERS])
    found = shutil.which(name, path=path)
    if found is not None:
        return found
    if os.environ.get("CI") == "true":
        pytest.fail(f"{name} is not installed, and CI tests everything", pytrace=False)
    pytest.skip(f"{name} is not installed")
