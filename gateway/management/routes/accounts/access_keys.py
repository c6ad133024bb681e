"""Access keys of the caller's account.

A caller that authenticates with an access key cannot create or change keys beyond that key's own
privileges and expiry.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from fieldbrook.core.clock import now_ms, rfc3339
from fieldbrook.core.errors import AccessKeyNotFoundError, AccessKeyPermissionDeniedError
from fieldbrook.core.model import AccessKey
from fieldbrook.gateway.management.framework.answers import Page, page
from fieldbrook.gateway.management.framework.binding import (
    Paging,
    Sfid,
    Text,
    Timestamp,
    json_key,
)
from fieldbrook.gateway.management.framework.route import Call, Route
from fieldbrook.security.access_keys import (
    DESCRIPTIONS,
    Group,
    Permission,
    known_privileges,
    require_permission,
)

_DAY_MS = 86_400_000

Days = Annotated[int, msgspec.Meta(ge=0, le=36_500)]
Description = Annotated[str, msgspec.Meta(max_length=1_024)]


class Privilege(msgspec.Struct, frozen=True, kw_only=True):
    """The permission on a group of operations; an unknown group grants nothing."""

    name: Text
    perm: Literal["NO_ACCESS", "READONLY", "READ_WRITE"]


class CreateKey(msgspec.Struct, frozen=True, kw_only=True):
    """A new access key; without `expirationDays`, or with 0, it never expires."""

    name: Text
    expiration_days: Days = msgspec.field(name="expirationDays", default=0)
    desc: Description = ""
    privileges: list[Privilege] = []


class UpdateKey(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of an access key; `expirationDays` counts from now, 0 means that it never expires."""

    expiration_days: Days | None = msgspec.field(name="expirationDays", default=None)
    desc: Description | None = None
    privileges: list[Privilege] | None = None


class ListKeys(Paging, frozen=True, kw_only=True):
    """Filters: a part of the name, the time of expiry, and the account or publisher of the key."""

    name: str = ""
    expired_at_begin: Timestamp | None = msgspec.field(name="expiredAtBegin", default=None)
    expired_at_end: Timestamp | None = msgspec.field(name="expiredAtEnd", default=None)
    identity_id: Sfid | None = msgspec.field(name="identityID", default=None)
    identity_type: Literal["ACCOUNT", "PUBLISHER"] | None = msgspec.field(
        name="identityType", default=None
    )


class GroupReply(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """A group of operations that privileges name."""

    name: str
    desc: str


class PrivilegeReply(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """The permission of an access key on a group of operations."""

    name: str
    desc: str
    perm: str


class KeyReply(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """An access key. `accessKey`, its text, is in the answer that creates it and in no other."""

    name: str
    identity_type: str
    identity_id: str
    privileges: list[PrivilegeReply]
    expired_at: str | UnsetType = UNSET
    last_used: str | UnsetType = UNSET
    desc: str | UnsetType = UNSET
    created_at: str
    updated_at: str
    access_key: str | UnsetType = UNSET


class KeyPage(Page[KeyReply], frozen=True):
    """A page of the list; `total` counts all matching rows."""


async def create_key(call: Call[CreateKey, None]) -> KeyReply:
    """Create an access key; it is shown in this answer only."""
    expires_at = _expiry(call.body.expiration_days)
    privileges = _granted(call.body.privileges)
    _require_rights(call, privileges)
    _require_time(call, expires_at)
    made = await call.context.registry.call(
        "create_access_key",
        account_id=call.account.account_id,
        name=call.body.name,
        privileges=privileges,
        expires_at=expires_at,
        description=call.body.desc,
    )
    return _reply(made.key, text=made.text)


async def update_key(call: Call[UpdateKey, None]) -> KeyReply:
    """Change an access key's expiry, description or privileges; the key itself stays."""
    key = _own_key(call)
    days, wanted = call.body.expiration_days, call.body.privileges
    expires_at = key.expires_at if days is None else _expiry(days)
    privileges = key.privileges if wanted is None else _granted(wanted)
    _require_rights(call, key.privileges)
    _require_rights(call, privileges)
    if days is not None:
        _require_time(call, expires_at)
    changed = await call.context.registry.call(
        "update_access_key",
        account_id=call.account.account_id,
        name=key.name,
        privileges=privileges,
        expires_at=expires_at,
        description=call.body.desc,
    )
    return _reply(changed)


async def remove_key(call: Call[None, None]) -> None:
    """Remove an access key; it stops working at once. An unknown name is ignored."""
    key = call.context.reader.access_key_named(call.account.account_id, call.path["name"])
    if key is not None:
        _require_rights(call, key.privileges, "removing a key with")
    await call.context.registry.call(
        "remove_access_key", account_id=call.account.account_id, name=call.path["name"]
    )


async def get_key(call: Call[None, None]) -> KeyReply:
    """One access key, without its text."""
    return _reply(_own_key(call))


async def list_keys(call: Call[None, ListKeys]) -> KeyPage:
    """The access keys of the caller's account, those of its publishers included."""
    found = [
        key
        for key in call.context.reader.access_keys(call.account.account_id)
        if _matches(key, call.query)
    ]
    data = [_reply(key) for key in page(found, call.query)]
    return KeyPage(data=data, total=len(found))


async def list_groups(_call: Call[None, None]) -> list[GroupReply]:
    """The groups of operations that privileges name."""
    return [GroupReply(name=str(name), desc=DESCRIPTIONS[name]) for name in sorted(Group)]


def privilege_replies(granted: Mapping[str, str]) -> list[PrivilegeReply]:
    """The permission on every group of operations; NO_ACCESS where none is granted."""
    return [
        PrivilegeReply(
            name=str(group),
            desc=DESCRIPTIONS[group],
            perm=granted.get(group, Permission.NO_ACCESS.name),
        )
        for group in sorted(Group)
    ]


def _reply(key: AccessKey, *, text: str | UnsetType = UNSET) -> KeyReply:
    """An access key; the node does not store its text."""
    return KeyReply(
        name=key.name,
        identity_type=key.identity_type,
        identity_id=str(key.identity_id),
        privileges=privilege_replies(key.privileges),
        expired_at=rfc3339(key.expires_at) if key.expires_at else UNSET,
        last_used=rfc3339(key.last_used) if key.last_used else UNSET,
        desc=key.description or UNSET,
        created_at=rfc3339(key.created_at),
        updated_at=rfc3339(key.updated_at),
        access_key=text,
    )


def _own_key(call: Call[Any, Any]) -> AccessKey:
    name = call.path["name"]
    key = call.context.reader.access_key_named(call.account.account_id, name)
    if key is None:
        raise AccessKeyNotFoundError(what=f"access key {name}")
    return key


def _granted(wanted: list[Privilege]) -> dict[str, str]:
    return known_privileges((privilege.name, privilege.perm) for privilege in wanted)


def _expiry(days: int) -> int:
    return now_ms() + days * _DAY_MS if days else 0


def require_all_rights(call: Call[Any, Any], operation: str) -> None:
    """Require that an access key has all rights of its account; a login always has them.

    Raises:
        AccessKeyPermissionDeniedError: the key lacks a right.
    """
    everything = {group.value: Permission.READ_WRITE.name for group in Group}
    _require_rights(call, everything, operation)


def _require_rights(
    call: Call[Any, Any], privileges: dict[str, str], operation: str = "granting"
) -> None:
    if call.key is not None:
        for group, permission in privileges.items():
            require_permission(call.key, group, Permission[permission], operation)


def _require_time(call: Call[Any, Any], expires_at: int) -> None:
    if call.key is None or not call.key.expires_at:
        return
    if not 0 < expires_at <= call.key.expires_at:
        raise AccessKeyPermissionDeniedError(
            operation="granting",
            group=Group.ACCOUNT_ACCESS_KEY,
            needed="a later expiry",
            granted=f"until {rfc3339(call.key.expires_at)}",
        )


def _matches(key: AccessKey, query: ListKeys) -> bool:
    begin, end = query.expired_at_begin, query.expired_at_end
    return (
        query.name in key.name
        and query.identity_id in (None, key.identity_id)
        and query.identity_type in (None, key.identity_type)
        and (begin is None or (key.expires_at > 0 and key.expires_at >= _ms(begin)))
        and (end is None or 0 < key.expires_at <= _ms(end))
    )


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


ROUTES: tuple[Route, ...] = (
    Route("POST", "/account_access_key", "CreateAccountAccessKey", create_key),
    Route("PUT", "/account_access_key/{name}", "UpdateAccountAccessKeyByName", update_key),
    Route("DELETE", "/account_access_key/{name}", "DeleteAccountAccessKeyByName", remove_key),
    Route("GET", "/account_access_key/data/{name}", "GetAccessKeyByName", get_key),
    Route("GET", "/account_access_key/datalist", "ListAccountAccessKey", list_keys),
    Route("GET", "/account_access_key/operator_group_metas", "ListAccessGroupMetas", list_groups),
)
