"""Caller rights: whether a caller still has the rights that it had when a long answer began."""

from __future__ import annotations

from fieldbrook.core.model import ADMIN, ENABLED, Account
from fieldbrook.gateway.auth import Caller
from fieldbrook.gateway.management.framework.context import ManagementContext


def current_account(context: ManagementContext, caller: Caller) -> Account | None:
    """Return the present record of the caller's account; None if the login, the key or the account
    has ended.

    Ending the logins of an account does not affect its access keys.
    """
    reader, key = context.reader, caller.key
    account = reader.account(caller.account.account_id)
    if account is None or account.state != ENABLED:
        return None
    if key is None:
        ended = caller.login is not None and reader.has_ended(caller.login)
        same = account.token_generation == caller.account.token_generation
        return account if same and not ended else None
    now = reader.access_key_with_digest(key.digest)
    if now is None or (now.privileges, now.expires_at) != (key.privileges, key.expires_at):
        return None
    return None if 0 < key.expires_at <= context.clock() else account


def time_left_s(context: ManagementContext, caller: Caller) -> float:
    """Return how long an answer to a caller may last, in seconds: until its token expires.

    The time is at most `token_lifetime_s`, even for an access key that never expires.
    """
    now_s, lifetime_s = context.clock() / 1000, context.token_lifetime_s
    ends = [now_s + lifetime_s]
    if caller.key is None:
        ends.append(caller.expires_at_s)
    elif caller.key.expires_at:
        ends.append(caller.key.expires_at / 1000)
    return min(ends) - now_s


def may_read_project(context: ManagementContext, account: Account, project_id: int) -> bool:
    """Return whether an account owns a project or is an administrator."""
    project = context.reader.project(project_id)
    return project is not None and (
        account.role == ADMIN or project.account_id == account.account_id
    )
