"""Operators: keys of an account that sign the transactions of its projects.

A private key can be exported only by an administrator who repeats their password.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from fieldbrook.core.clock import rfc3339
from fieldbrook.core.errors import InvalidPasswordError, OperatorNotFoundError
from fieldbrook.core.model import Operator
from fieldbrook.gateway.management.framework.answers import Page, page
from fieldbrook.gateway.management.framework.binding import Paging, Text, json_key
from fieldbrook.gateway.management.framework.ownership import own_project
from fieldbrook.gateway.management.framework.route import Auth, Call, PlainText, Route
from fieldbrook.security.operator_keys import (
    DEFAULT_OPERATOR,
    ECDSA,
    Vault,
    address_of,
    new_secret,
    parse_secret,
)
from fieldbrook.storage.registry.service import OperatorDraft

Key = Annotated[str, msgspec.Meta(max_length=256)]


class CreateOperator(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's name and its key; type 1 is ECDSA, 2 is ED25519."""

    name: Text
    private_key: Key = msgspec.field(name="privateKey")
    paymaster_key: Key = msgspec.field(name="paymasterKey", default="")
    type: Annotated[int, msgspec.Meta(ge=0, le=2)] = ECDSA


class GenerateOperator(msgspec.Struct, frozen=True, kw_only=True):
    """The new operator's name."""

    name: Text


class ExportOperator(msgspec.Struct, frozen=True, kw_only=True):
    """The administrator's own password."""

    password: Annotated[str, msgspec.Meta(max_length=1_024)]


class WhichOperator(msgspec.Struct, frozen=True, kw_only=True):
    """The operator's name."""

    name: Text = msgspec.field(name="accountOperatorName", default=DEFAULT_OPERATOR)


class OperatorReply(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """An operator; type 1 is ECDSA, 2 is ED25519. Only an export has `privateKey`."""

    operator_id: str
    account_id: str
    name: str
    type: int
    address: str
    created_at: str
    updated_at: str
    private_key: str | UnsetType = UNSET


class OperatorPage(Page[OperatorReply], frozen=True):
    """A page of a list; `total` counts all rows."""


class BoundOperator(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """The operator that a project is bound to."""

    project_id: str
    operator_id: str
    created_at: str
    updated_at: str


async def create_operator(call: Call[CreateOperator, None]) -> OperatorReply:
    """Create an operator from a private key, which the node keeps encrypted."""
    body, vault = call.body, call.context.vault
    kind = body.type or ECDSA
    draft = await call.workers.run(
        call.owner,
        lambda: draft_operator(
            vault, body.name, kind, parse_secret(body.private_key, kind), body.paymaster_key
        ),
    )
    operator = await call.context.registry.call(
        "create_operator", account_id=call.account.account_id, draft=draft
    )
    return _reply(operator)


async def generate_operator(call: Call[GenerateOperator, None]) -> OperatorReply:
    """Create an operator with a random key that the node generates."""
    vault, name = call.context.vault, call.body.name
    draft = await call.workers.run(
        call.owner, lambda: draft_operator(vault, name, ECDSA, new_secret())
    )
    made = await call.context.registry.call(
        "create_operator", account_id=call.account.account_id, draft=draft
    )
    return _reply(made)


async def export_operator(call: Call[ExportOperator, None]) -> OperatorReply:
    """Export an operator's private key, for an administrator who repeats their password. The
    audit log records the export before the key leaves the node."""
    account = call.account
    call.throttle.attempt(account.username, call.peer)
    if not await call.workers.is_password(account, call.body.password):
        raise InvalidPasswordError()
    call.throttle.succeeded(account.username, call.peer)
    operator_id = call.id("operatorID")
    operator = call.context.reader.operator(operator_id)
    if operator is None:
        raise OperatorNotFoundError(what=f"operator {operator_id}")
    secret = call.context.vault.open(operator.sealed_key, operator.address)
    await call.context.registry.call("add_audit_rows", rows=[])
    return _reply(operator, private_key="0x" + secret.hex())


async def list_operators(call: Call[None, Paging]) -> OperatorPage:
    """The caller's operators; the one named `default` is created if it does not exist."""
    await default_operator(call, call.account.account_id)
    found = call.context.reader.operators(call.account.account_id)
    data = [_reply(operator) for operator in page(found, call.query)]
    return OperatorPage(data=data, total=len(found))


async def remove_operator(call: Call[None, None]) -> None:
    """Remove an operator and its key, which cannot be recovered."""
    operator = _own_operator(call)
    await call.context.registry.call("remove_operator", operator_id=operator.operator_id)


async def operator_address(call: Call[None, WhichOperator]) -> PlainText:
    """The address of an operator of the caller, as plain text."""
    name, account_id = call.query.name, call.account.account_id
    if name == DEFAULT_OPERATOR:
        return PlainText((await default_operator(call, account_id)).address)
    operator = call.context.reader.operator_named(account_id, name)
    if operator is None:
        raise OperatorNotFoundError(what=f"operator {name}")
    return PlainText(operator.address)


async def bind_operator(call: Call[None, None]) -> BoundOperator:
    """Bind a project to an operator of the caller. Refused while it is bound to one."""
    return await _bind(call, replace=False)


async def use_operator(call: Call[None, None]) -> BoundOperator:
    """Bind a project to an operator of the caller, in place of another one if it is bound. No
    event in between is signed with the operator `default`."""
    return await _bind(call, replace=True)


async def _bind(call: Call[None, None], *, replace: bool) -> BoundOperator:
    project, operator = own_project(call), _own_operator(call)
    bound = await call.context.registry.call(
        "bind_operator",
        project_id=project.project_id,
        operator_id=operator.operator_id,
        replace=replace,
    )
    return BoundOperator(
        project_id=str(bound.project_id),
        operator_id=str(bound.operator_id),
        created_at=rfc3339(bound.created_at),
        updated_at=rfc3339(bound.updated_at),
    )


async def get_project_operator(call: Call[None, None]) -> OperatorReply:
    """The operator that a project uses: the bound one, or else the default of its account."""
    project = own_project(call)
    operator = call.context.reader.operator_of_project(project)
    return _reply(operator or await default_operator(call, project.account_id))


async def unbind_operator(call: Call[None, None]) -> None:
    """Make a project use the default operator of its account again."""
    project = own_project(call)
    await call.context.registry.call("unbind_operator", project_id=project.project_id)


async def default_operator(call: Call[Any, Any], account_id: int) -> Operator:
    """Return the operator `default` of an account; it is created if there is none."""
    found = call.context.reader.operator_named(account_id, DEFAULT_OPERATOR)
    if found is not None:
        return found
    made: Operator = await call.context.registry.call(
        "create_operator",
        account_id=account_id,
        draft=await default_draft(call),
        unless_exists=True,
    )
    return made


async def default_draft(call: Call[Any, Any]) -> OperatorDraft:
    """Return an operator `default` with a random key, for a new account."""
    vault = call.context.vault
    return await call.workers.run(
        call.owner, lambda: draft_operator(vault, DEFAULT_OPERATOR, ECDSA, new_secret())
    )


def draft_operator(
    vault: Vault, name: str, kind: int, secret: bytes, paymaster_key: str = ""
) -> OperatorDraft:
    """Prepare an operator for the registry, with sealed keys.

    The first call is slow, because it imports large libraries: run it in a thread.
    """
    address = address_of(secret, kind)
    return OperatorDraft(
        name=name,
        kind=kind,
        address=address,
        sealed_key=vault.seal(secret, address),
        sealed_paymaster=vault.seal(paymaster_key.encode(), address) if paymaster_key else b"",
    )


def _reply(operator: Operator, *, private_key: str | UnsetType = UNSET) -> OperatorReply:
    return OperatorReply(
        operator_id=str(operator.operator_id),
        account_id=str(operator.account_id),
        name=operator.name,
        type=operator.kind,
        address=operator.address,
        created_at=rfc3339(operator.created_at),
        updated_at=rfc3339(operator.updated_at),
        private_key=private_key,
    )


def _own_operator(call: Call[Any, Any]) -> Operator:
    operator_id = call.id("operatorID")
    operator = call.context.reader.operator(operator_id)
    if operator is None or operator.account_id != call.account.account_id:
        raise OperatorNotFoundError(what=f"operator {operator_id}")
    return operator


_BOUND = "/project_operator/{projectID}"

ROUTES: tuple[Route, ...] = (
    Route("POST", "/operator", "CreateOperator", create_operator),
    Route("POST", "/operator/generate", "GenerateOperator", generate_operator),
    Route(
        "POST",
        "/operator/data/{operatorID}/export",
        "ExportOperator",
        export_operator,
        auth=Auth.ADMIN,
    ),
    Route("GET", "/operator/datalist", "ListOperator", list_operators),
    Route("DELETE", "/operator/data/{operatorID}", "RemoveOperator", remove_operator),
    Route("GET", "/account/operatoraddr", "GetOperatorAddr", operator_address),
    Route("POST", _BOUND + "/{operatorID}", "CreateProjectOperator", bind_operator),
    Route("PUT", _BOUND + "/{operatorID}", "UpdateProjectOperator", use_operator),
    Route("GET", "/project_operator/data/{projectID}", "GetProjectOperator", get_project_operator),
    Route("DELETE", _BOUND, "RemoveProjectOperator", unbind_operator),
)
