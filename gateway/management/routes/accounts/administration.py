"""Administration of accounts: list, enable, disable and delete them, set passwords and roles.

Once the call that disables an account is answered, the account's logins have ended, and its
access keys and the events of its projects are refused. The last enabled administrator can be
neither disabled nor deleted, and keeps its role.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET

from fieldbrook.core.errors import (
    AccountInUseError,
    AccountNotFoundError,
    BadRequestError,
    FieldError,
)
from fieldbrook.core.model import ADMIN, DISABLED, ENABLED, Account
from fieldbrook.gateway.management.framework.answers import page
from fieldbrook.gateway.management.framework.binding import Paging
from fieldbrook.gateway.management.framework.route import Auth, Call, Route
from fieldbrook.gateway.management.routes.accounts.access_keys import require_all_rights
from fieldbrook.gateway.management.routes.accounts.account_reply import (
    AccountPage,
    AccountReply,
    account_reply,
)
from fieldbrook.gateway.management.routes.accounts.accounts import (
    generated_password,
    require_length,
)
from fieldbrook.gateway.management.routes.accounts.logins import Password


class ListAccounts(Paging, frozen=True, kw_only=True):
    """Filters: a part of the username, the role, the state."""

    username: str = ""
    role: Literal["ADMIN", "DEVELOPER"] | None = None
    state: Literal["ENABLED", "DISABLED"] | None = None


class RemoveAccount(msgspec.Struct, frozen=True, kw_only=True):
    """With `force`, the account's projects are deleted too."""

    force: bool = False


class ResetPassword(msgspec.Struct, frozen=True, kw_only=True):
    """The new password; without one, the node generates a password and returns it once."""

    password: Password | None = None


class ChangeRole(msgspec.Struct, frozen=True, kw_only=True):
    """The new role."""

    role: Literal["ADMIN", "DEVELOPER"]


async def list_accounts(call: Call[None, ListAccounts]) -> AccountPage:
    """The accounts of the node."""
    query = call.query
    found = [
        account
        for account in call.context.reader.accounts()
        if query.username in account.username
        and query.role in (None, account.role)
        and query.state in (None, account.state)
    ]
    return AccountPage(data=[_row(call, row) for row in page(found, query)], total=len(found))


async def get_account(call: Call[None, None]) -> AccountReply:
    """One account: the caller's own, or any account for administrators."""
    account_id = call.id("accountID")
    if account_id != call.account.account_id and call.account.role != ADMIN:
        raise AccountNotFoundError(account=account_id)
    return _row(call, _account(call))


async def enable_account(call: Call[None, None]) -> AccountReply:
    """Enable an account and its access keys again; its owner has to log in again."""
    return await _set_state(call, ENABLED)


async def disable_account(call: Call[None, None]) -> AccountReply:
    """Disable an account: end its logins, refuse its access keys and its projects' events."""
    return await _set_state(call, DISABLED)


async def change_role(call: Call[ChangeRole, None]) -> AccountReply:
    """Change the role of an account; it applies from the account's next request on."""
    if call.body.role == ADMIN:
        require_all_rights(call, "making an administrator")
    changed = await call.context.registry.call(
        "set_account_role", account_id=call.id("accountID"), role=call.body.role
    )
    return _row(call, changed)


async def end_account_logins(call: Call[None, None]) -> None:
    """End all logins of an account; its access keys stay valid."""
    await call.context.registry.call("end_logins", account_id=call.id("accountID"))


async def reset_password(call: Call[ResetPassword, None]) -> AccountReply:
    """Give another account a new password and end its logins. Your own account is refused."""
    account = _account(call)
    if account.account_id == call.account.account_id:
        reason = "is your own: change your password with PUT /account"
        raise BadRequestError(FieldError("accountID", reason, "path"))
    # A caller that sets the password gets all rights of that account.
    require_all_rights(call, "setting a password")
    given = call.body.password
    if given is not None:
        require_length(given)
    password = given or generated_password()
    changed = await call.context.registry.call(
        "set_password",
        account_id=account.account_id,
        new_hash=await call.workers.hash_password(call.owner, password),
    )
    return account_reply(changed, password=UNSET if given else password)


async def remove_account(call: Call[None, RemoveAccount]) -> None:
    """Delete an account with its access keys, operators and unused resources.

    An account that has projects is deleted only with `force`, and its projects with it.
    """
    account_id = _account(call).account_id
    projects = call.context.reader.projects(account_id)
    if projects and not call.query.force:
        raise AccountInUseError(account=account_id, projects=len(projects))
    registry = call.context.registry
    if projects:
        # Disable the account first, so that its owner cannot create projects meanwhile.
        await registry.call("set_account_state", account_id=account_id, state=DISABLED)
        for project in call.context.reader.projects(account_id):
            await registry.call("remove_project", project_id=project.project_id)
    await registry.call("remove_account", account_id=account_id)


async def _set_state(call: Call[None, None], state: str) -> AccountReply:
    changed = await call.context.registry.call(
        "set_account_state", account_id=call.id("accountID"), state=state
    )
    return _row(call, changed)


def _account(call: Call[Any, Any]) -> Account:
    account_id = call.id("accountID")
    account = call.context.reader.account(account_id)
    if account is None:
        raise AccountNotFoundError(account=account_id)
    return account


def _row(call: Call[Any, Any], account: Account) -> AccountReply:
    return account_reply(account, projects=len(call.context.reader.projects(account.account_id)))


_ONE = "/account/{accountID}"

ROUTES: tuple[Route, ...] = (
    Route("GET", "/account", "ListAccount", list_accounts, auth=Auth.ADMIN),
    Route("GET", _ONE, "GetAccount", get_account),
    Route("PUT", _ONE + "/enable", "EnableAccount", enable_account, auth=Auth.ADMIN),
    Route("PUT", _ONE + "/disable", "DisableAccount", disable_account, auth=Auth.ADMIN),
    Route("PUT", _ONE + "/role", "ChangeAccountRole", change_role, auth=Auth.ADMIN),
    Route("POST", _ONE + "/logout", "EndAccountLogins", end_account_logins, auth=Auth.ADMIN),
    Route("PUT", _ONE + "/password", "ResetAccountPassword", reset_password, auth=Auth.ADMIN),
    Route("DELETE", _ONE, "RemoveAccount", remove_account, auth=Auth.ADMIN),
)
