"""JSON ABIs of contracts: uploaded once per project and referenced by name in its monitors.

An ABI is checked when it is uploaded, so that errors show before a monitor uses it. A monitor
stores the declaration it was created with: removing an ABI changes no monitor, and an event that
is sent again has the same content.

Source: the Contract ABI Specification of Solidity, "JSON".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from fieldbrook.core.errors import BadRequestError, ContractAbiNotFoundError, FieldError
from fieldbrook.core.model import ContractAbi, Project
from fieldbrook.gateway.management.framework.answers import Page, Timed, page, times
from fieldbrook.gateway.management.framework.binding import MISSING, Paging
from fieldbrook.gateway.management.framework.ownership import own_project
from fieldbrook.gateway.management.framework.route import Call, Route
from fieldbrook.gateway.management.routes.chain import contract_events
from fieldbrook.gateway.management.routes.chain.contract_events import EventError

LIMIT_BYTES = 262_144
ENTRIES_LIMIT = 2_000
ABIS_LIMIT = 100
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z", re.ASCII)
_TYPES = frozenset({"function", "event", "error", "constructor", "receive", "fallback"})


class CreateContractAbi(msgspec.Struct, frozen=True, kw_only=True):
    """An ABI and its name in the project: letters, digits, `_`, `.` and `-`."""

    name: str
    abi: list[dict[str, Any]]


class ContractAbiReply(Timed, frozen=True):
    """A contract ABI of a project, and the signatures of its events."""

    abi_id: str
    project_id: str
    project_name: str
    name: str
    events: list[str]
    size_bytes: int


class WholeContractAbiReply(ContractAbiReply, frozen=True, kw_only=True):
    """An ABI as it was uploaded."""

    abi: list[dict[str, Any]]


class ContractAbiPage(Page[ContractAbiReply], frozen=True):
    """A page of contract ABIs; `total` counts all of the project."""


async def create_abi(
    call: Call[CreateContractAbi, None],
) -> ContractAbiReply:
    """Store an ABI for the monitors of a project. An existing ABI is not replaced."""
    project = own_project(call)
    content = msgspec.json.encode(call.body.abi)
    errors = []
    if not _NAME.match(call.body.name):
        reason = "1 to 64 letters, digits, _, . and -, and a letter or digit first"
        errors.append(FieldError("name", reason, "body"))
    if problem := _problem(call.body.abi, content):
        errors.append(FieldError("abi", problem, "body"))
    if errors:
        raise BadRequestError(*errors)
    made = await call.context.registry.call(
        "create_contract_abi",
        project_id=project.project_id,
        name=call.body.name,
        content=content,
        limit=ABIS_LIMIT,
    )
    return ContractAbiReply(**_fields(made, project, call.body.abi))


async def list_abis(call: Call[None, Paging]) -> ContractAbiPage:
    """The ABIs of a project with the events of each."""
    project = own_project(call)
    found = call.context.reader.contract_abis(project.project_id)
    data = [
        ContractAbiReply(**_fields(kept, project, entries(kept)))
        for kept in page(found, call.query)
    ]
    return ContractAbiPage(data, len(found))


async def get_abi(call: Call[None, None]) -> WholeContractAbiReply:
    """An ABI as it was uploaded."""
    project = own_project(call)
    kept = abi_named(call, call.path["abiName"])
    abi = entries(kept)
    return WholeContractAbiReply(**_fields(kept, project, abi), abi=abi)


async def remove_abi(call: Call[None, None]) -> None:
    """Remove an ABI; monitors that were created with it continue unchanged."""
    kept = abi_named(call, call.path["abiName"])
    await call.context.registry.call("remove_contract_abi", abi_id=kept.abi_id)


def _fields(kept: ContractAbi, project: Project, abi: list[dict[str, Any]]) -> dict[str, Any]:
    """The fields of `ContractAbiReply`."""
    return {
        "abi_id": str(kept.abi_id),
        "project_id": str(kept.project_id),
        "project_name": project.name,
        "name": kept.name,
        "events": list(contract_events.signatures(abi)),
        "size_bytes": len(kept.content),
        **times(kept),
    }


def abi_named(call: Call[Any, Any], name: str) -> ContractAbi:
    """Return the ABI with this name in the project that the path names.

    Raises:
        ProjectNotFoundError: there is no such project.
        ContractAbiNotFoundError: the project has no such ABI.
    """
    project = own_project(call)
    kept = call.context.reader.contract_abi(project.project_id, name)
    if kept is None:
        raise ContractAbiNotFoundError(abi=name[:64])
    return kept


def entries(kept: ContractAbi) -> list[dict[str, Any]]:
    """Return the entries of a stored ABI."""
    return msgspec.json.decode(kept.content, type=list[dict[str, Any]])


def find_problem(kept: Sequence[ContractAbi]) -> str:
    """Return the reason why ABIs from another node cannot be stored; empty if they can."""
    if len(kept) > ABIS_LIMIT or len({abi.name for abi in kept}) < len(kept):
        return f"more than {ABIS_LIMIT} ABIs, or two with the same name"
    for abi in kept:
        try:
            problem = _problem(entries(abi), abi.content)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            problem = "it is not a JSON ABI"
        if problem or not _NAME.match(abi.name):
            return f"its ABI {abi.name[:64]!r}: {problem or 'the name is not valid'}"
    return ""


def _problem(abi: list[dict[str, Any]], content: bytes) -> str:
    """Return the reason why an ABI cannot be stored; empty if it can."""
    if not abi:
        return MISSING
    if len(abi) > ENTRIES_LIMIT or len(content) > LIMIT_BYTES:
        return f"more than {ENTRIES_LIMIT} entries or {LIMIT_BYTES} bytes"
    for at, entry in enumerate(abi):
        kind = entry.get("type", "function")
        if not isinstance(kind, str) or kind not in _TYPES:
            return f"entry {at} has the unknown type {str(kind)[:40]!r}"
    try:
        if not contract_events.signatures(abi):
            return "the ABI has no event that a monitor can select"
    except EventError as error:
        return str(error)
    return ""


_ALL, _ONE = "/contract_abi/{projectName}", "/contract_abi/{projectName}/{abiName}"
ROUTES: tuple[Route, ...] = (
    Route("POST", _ALL, "CreateContractAbi", create_abi),
    Route("GET", _ALL, "ListContractAbis", list_abis),
    Route("GET", _ONE, "GetContractAbi", get_abi),
    Route("DELETE", _ONE, "RemoveContractAbi", remove_abi),
)
