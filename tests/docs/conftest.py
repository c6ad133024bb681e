"""Fixtures of the tests of the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.site import builder


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    output = tmp_path_factory.mktemp("docs") / "site"
    builder().build(output)
    return output
