"""Quotas: limits and usage of an account; administrators may set limits for one account.

Source: ours; the original interface has no such routes. docs/decisions/0036-quotas.md
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from fieldbrook.core import quotas
from fieldbrook.core.errors import AccountNotFoundError, BadRequestError, FieldError
from fieldbrook.core.model import ADMIN, Account
from fieldbrook.gateway.management.framework.binding import json_key
from fieldbrook.gateway.management.framework.route import Auth, Call, Route
from fieldbrook.storage.registry.usage import stored_bytes_in

Name = Literal[
    "projects",
    "applets",
    "modules",
    "bytes",
    "strategies",
    "publishers",
    "databases",
    "monitors",
    "cron_jobs",
    "abis",
    "operators",
    "access_keys",
    "processes",
    "dedicated",
]
Limit = Annotated[int, msgspec.Meta(ge=0, le=1 << 50)]


class ChangedQuota(msgspec.Struct, frozen=True, kw_only=True):
    """A `limit` for one account, or `unlimited`; with neither, that of the settings applies."""

    name: Name
    limit: Limit | None = None
    unlimited: bool = False


class ChangeQuotas(msgspec.Struct, frozen=True, kw_only=True):
    """The quotas to change; the others stay."""

    quotas: Annotated[list[ChangedQuota], msgspec.Meta(max_length=100)]


class QuotaReply(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """One quota: what is used, and its `limit`, or `unlimited`. `from` says where that is set."""

    name: str
    desc: str
    used: int
    unlimited: bool | UnsetType = UNSET
    limit: int | UnsetType = UNSET
    from_: str


class QuotasReply(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """All quotas of an account."""

    account_id: str
    username: str
    data: list[QuotaReply]


async def show_own(call: Call[None, None]) -> QuotasReply:
    """Limits and usage of the caller's account."""
    return _shown(call, call.account)


async def show_quotas(call: Call[None, None]) -> QuotasReply:
    """Limits and usage of an account: the caller's own, or any account for administrators."""
    return _shown(call, _account(call))


async def change_quotas(call: Call[ChangeQuotas, None]) -> QuotasReply:
    """Give an account limits that replace those of the settings. An account above a new limit
    keeps what it has but can add nothing."""
    account = _account(call)
    limits: dict[str, int | None] = {}
    default: list[str] = []
    for n, changed in enumerate(call.body.quotas):
        if changed.name in limits or changed.name in default:
            reason = f"{changed.name} occurs twice"
            raise BadRequestError(FieldError(f"quotas[{n}].name", reason, "body"))
        if changed.unlimited and changed.limit is not None:
            reason = "cannot be combined with unlimited"
            raise BadRequestError(FieldError(f"quotas[{n}].limit", reason, "body"))
        if changed.unlimited or changed.limit is not None:
            limits[changed.name] = changed.limit
        else:
            default.append(changed.name)
    changed_account = await call.context.registry.call(
        "set_account_quotas", account_id=account.account_id, limits=limits, default=default
    )
    return _shown(call, changed_account)


def _account(call: Call[Any, Any]) -> Account:
    account_id = call.id("accountID")
    own = account_id == call.account.account_id
    account = call.context.reader.account(account_id) if own or call.account.role == ADMIN else None
    if account is None:
        raise AccountNotFoundError(account=account_id)
    return account


def _shown(call: Call[Any, Any], account: Account) -> QuotasReply:
    return QuotasReply(
        account_id=str(account.account_id),
        username=account.username,
        data=[_row(call, account, name) for name in quotas.NAMES],
    )


def _row(call: Call[Any, Any], account: Account, name: str) -> QuotaReply:
    context = call.context
    limit, source = context.quotas.limit_and_source(account, name)
    if name == quotas.PROCESSES:
        own = {project.project_id for project in context.reader.projects(account.account_id)}
        used = len(own & context.running())
    else:
        stored = stored_bytes_in(context.projects_dir)
        used = context.reader.usage(account.account_id, name, stored)
    return QuotaReply(
        name=name,
        desc=quotas.NOUNS[name],
        used=used,
        unlimited=True if limit is None else UNSET,
        limit=UNSET if limit is None else limit,
        from_=source,
    )


_ONE = "/account/{accountID}/quota"

ROUTES: tuple[Route, ...] = (
    Route("GET", "/quota", "GetOwnQuotas", show_own),
    Route("GET", _ONE, "GetAccountQuotas", show_quotas),
    Route("PUT", _ONE, "SetAccountQuotas", change_quotas, auth=Auth.ADMIN),
)
