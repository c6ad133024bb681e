"""The management server and the accounts that call it: fixtures for the tests of this folder."""

from __future__ import annotations

from tests.support.management import ada, bob, root, server

__all__ = ["ada", "bob", "root", "server"]
