"""The server and the accounts of the management tests, for the tests of this folder."""

from __future__ import annotations

from tests.integration.test_management import ada, bob, node, root

__all__ = ["ada", "bob", "node", "root"]
