"""Quotas over the routes."""

from __future__ import annotations

from typing import get_args

from fieldbrook.core import quotas
from fieldbrook.gateway.management.routes.accounts.quotas import Name


def test_each_quota_can_be_changed_over_the_routes() -> None:
    assert get_args(Name) == quotas.NAMES
