"""The answer for an account."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from fieldbrook.core.clock import rfc3339
from fieldbrook.core.model import Account
from fieldbrook.gateway.management.framework.answers import Page
from fieldbrook.gateway.management.framework.binding import json_key


class AccountReply(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """An account. `password` is present once, when the node has generated it; `projects` counts
    its projects where an administrator asks."""

    account_id: str
    username: str
    role: str
    state: str
    avatar: str | UnsetType = UNSET
    created_at: str
    updated_at: str
    password: str | UnsetType = UNSET
    projects: int | UnsetType = UNSET


class AccountPage(Page[AccountReply], frozen=True):
    """A page of the list; `total` counts all matching rows."""


def account_reply(
    account: Account, *, password: str | UnsetType = UNSET, projects: int | UnsetType = UNSET
) -> AccountReply:
    """Return the answer for an account, without the hash of its password."""
    return AccountReply(
        account_id=str(account.account_id),
        username=account.username,
        role=account.role,
        state=account.state,
        avatar=account.avatar or UNSET,
        created_at=rfc3339(account.created_at),
        updated_at=rfc3339(account.updated_at),
        password=password,
        projects=projects,
    )
