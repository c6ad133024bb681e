"""Projects."""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec

from fieldbrook.errors import BadRequestError, FieldError
from fieldbrook.gateway.management.binding import Paging, Sfid, Text
from fieldbrook.gateway.management.ownership import own_project
from fieldbrook.gateway.management.route import Auth, Call, Route
from fieldbrook.gateway.management.views import Json, page, project_json, project_row_json
from fieldbrook.model import Project

_NAME = re.compile(r"[A-Za-z0-9_]{1,32}\Z")
_RESERVED = frozenset({"x", "data", "datalist", "detail_list"})  # words in later routes' paths
_RESERVED_PREFIXES = ("aid_", "eth_")  # say whose project a channel means

Pairs = list[tuple[str, str]]


class CreateProject(msgspec.Struct, frozen=True, kw_only=True):
    """A new project; `envs` is a list of pairs, or `{"env": [...]}` as later clients send."""

    name: str
    version: Text = ""
    protocol: Text = ""
    description: Annotated[str, msgspec.Meta(max_length=4096)] = ""
    envs: Pairs | dict[str, Pairs] = msgspec.field(default_factory=list)


class ListProjects(Paging, frozen=True, kw_only=True):
    """Filters: ids, exact names, and a part of the name."""

    ids: list[Sfid] = msgspec.field(default_factory=list)
    project_ids: list[Sfid] = msgspec.field(default_factory=list, name="projectIDs")
    names: list[str] = msgspec.field(default_factory=list)
    name: str = ""


async def create_project(call: Call[CreateProject, None]) -> Json:
    """Create a project of the caller."""
    _require_allowed(call.body.name)
    envs = call.body.envs
    project = await call.context.registry.call(
        "create_project",
        account_id=call.account.account_id,
        name=call.body.name,
        version=call.body.version,
        protocol=call.body.protocol,
        description=call.body.description,
        env=envs.get("env", []) if isinstance(envs, dict) else envs,
    )
    return project_json(project)


async def list_projects(call: Call[None, ListProjects]) -> Json:
    """The caller's projects."""
    query = call.query
    with call.context.reader.snapshot() as registry:
        found = [p for p in registry.projects(call.account.account_id) if _fits(p, query)]
        return {
            "data": [
                project_row_json(project, registry.applets(project.project_id))
                for project in page(found, query)
            ],
            "total": len(found),
        }


async def get_project(call: Call[None, None]) -> Json:
    """One project."""
    return project_json(own_project(call))


async def remove_project(call: Call[None, None]) -> None:
    """Remove a project and what is in it."""
    await call.context.registry.call("remove_project", project_id=own_project(call).project_id)


def _require_allowed(name: str) -> None:
    if not _NAME.match(name):
        reason = "must be 1 to 32 letters, digits or underscores"
    elif name in _RESERVED or name.startswith(_RESERVED_PREFIXES):
        reason = (
            f"is reserved: {', '.join(sorted(_RESERVED))} and names that start with "
            f"{' or '.join(_RESERVED_PREFIXES)} cannot be used"
        )
    else:
        return
    raise BadRequestError(FieldError("name", reason, "body"))


def _fits(project: Project, query: ListProjects) -> bool:
    ids = {*query.ids, *query.project_ids}
    return (
        (not ids or project.project_id in ids)
        and (not query.names or project.name in query.names)
        and query.name in project.name
    )


ROUTES: tuple[Route[Any, Any], ...] = (
    Route("POST", "/project", "CreateProject", Auth.ACCOUNT, create_project, body=CreateProject),
    Route("GET", "/project", "ListProject", Auth.ACCOUNT, list_projects, query=ListProjects),
    Route("GET", "/project/{projectName}", "GetProject", Auth.ACCOUNT, get_project),
    Route("DELETE", "/project/{projectName}", "RemoveProject", Auth.ACCOUNT, remove_project),
)
