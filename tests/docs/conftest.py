"""Fixtures of the tests of the documentation."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from tests.docs.site import builder


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site, one for all processes of a test run."""
    base = tmp_path_factory.getbasetemp()
    # A process that runs tests beside others has a folder of its own in the folder of the run.
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    output, complete = shared / "docs" / "site", shared / "docs" / "complete"
    output.parent.mkdir(exist_ok=True)
    with (shared / "docs.lock").open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        if not complete.exists():
            builder().build(output)
            complete.touch()
    return output
