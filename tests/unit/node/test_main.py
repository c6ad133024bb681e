"""What the processes of a node have in common."""

from __future__ import annotations

import subprocess
import sys


def test_a_node_imports_nothing_at_its_start_that_only_some_nodes_or_requests_need() -> None:
    script = """
import sys
from fieldbrook.core.settings import load
from fieldbrook.node.main import _preload
_preload(load(http_gateways="1"))
print(*sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    unwanted = {"cryptography", "importlib.metadata", "jwt", "pydantic", "tomllib", "tornado"}
    unwanted.add("zoneinfo")
    assert set(done.stdout.split()) & unwanted == set()
