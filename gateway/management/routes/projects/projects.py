"""Projects.

The early routes have the path `/project/{projectName}`, the later ones
`/project/x/{projectName}`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from fieldbrook.core.errors import BadRequestError, FieldError, StoreError
from fieldbrook.core.model import ADMIN, PROJECT_DATABASE, PROJECT_ENV, PROJECT_FLOW, Project
from fieldbrook.gateway.auth import require_admin
from fieldbrook.gateway.channel import project_name
from fieldbrook.gateway.management.framework.answers import page
from fieldbrook.gateway.management.framework.binding import Paging, Sfid, Text
from fieldbrook.gateway.management.framework.ownership import own_project
from fieldbrook.gateway.management.framework.route import Call, Route
from fieldbrook.gateway.management.routes.projects.configurations.database import (
    Database,
    check_database,
    database_value,
)
from fieldbrook.gateway.management.routes.projects.configurations.environment import (
    Environment,
    Pairs,
    check_environment,
)
from fieldbrook.gateway.management.routes.projects.configurations.flow import Flow
from fieldbrook.gateway.management.routes.projects.replies.projects import (
    CreatedProjectReply,
    ProjectPage,
    ProjectReply,
    ProjectRow,
    ProjectRows,
    created_project,
    project_reply,
    project_row,
)
from fieldbrook.observability.health import NO_BROKER

_NAME = re.compile(r"[A-Za-z0-9_]{1,32}\Z")
_RESERVED = frozenset({"x", "data", "datalist", "detail_list"})  # words in paths of later routes
_RESERVED_PREFIXES = ("aid_", "eth_")  # the prefix of an account in channel names begins with these
_STORES_AT_ONCE = 16

Description = Annotated[str, msgspec.Meta(max_length=4096)]
Protocol = Literal["", "TCP", "UDP", "WEBSOCET", "HTTP", "HTTPS", "MQTT"]  # the spelling of clients


class Variables(msgspec.Struct, frozen=True, kw_only=True):
    """Variables in the form of later clients."""

    env: Pairs | None = None


class CreateProject(msgspec.Struct, frozen=True, kw_only=True):
    """A new project. `envs` is a list of pairs, or `{"env": [...]}` from later clients.
    `schema` is the early clients' name of `database`."""

    name: str
    public: bool = False
    version: Text = ""
    protocol: Protocol = ""
    description: Description = ""
    envs: Pairs | Variables = msgspec.field(default_factory=list)
    database: Database | None = None
    schema: Database | None = None
    flow: Flow | None = None


class UpdateProject(msgspec.Struct, frozen=True, kw_only=True):
    """The new description; absent or empty for none."""

    description: Description = ""


class PlaceProject(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the project has a worker of its own; absent or false: it shares one."""

    dedicated: bool = False


class ListProjects(Paging, frozen=True, kw_only=True):
    """Filters: ids, exact names, a part of the name, and the version."""

    ids: list[Sfid] = msgspec.field(default_factory=list)
    project_ids: list[Sfid] = msgspec.field(default_factory=list, name="projectIDs")
    names: list[str] = msgspec.field(default_factory=list)
    name: str = ""
    versions: list[str] = msgspec.field(default_factory=list, name="version")

    def matches(self, project: Project) -> bool:
        """Whether a project passes every filter."""
        ids = {*self.ids, *self.project_ids}
        return (
            (not ids or project.project_id in ids)
            and (not self.names or project.name in map(project_name, self.names))
            and project_name(self.name) in project.name
            and (not self.versions or project.version in self.versions)
        )


class FilterProjects(Paging, frozen=True, kw_only=True):
    """Filters: ids, exact names with or without the owner's prefix, and versions."""

    project_ids: list[Sfid] = msgspec.field(default_factory=list, name="projectID")
    names: list[str] = msgspec.field(default_factory=list, name="name")
    versions: list[str] = msgspec.field(default_factory=list, name="version")

    def matches(self, project: Project) -> bool:
        """Whether a project passes every filter."""
        return (
            (not self.project_ids or project.project_id in self.project_ids)
            and (not self.names or project.name in map(project_name, self.names))
            and (not self.versions or project.version in self.versions)
        )


class DetailProjects(FilterProjects, frozen=True, kw_only=True):
    """Filters, and what else to tell: with `all`, administrators get the projects of all accounts
    with their owners; `deadLetters` adds how many each project has."""

    everybody: bool = msgspec.field(name="all", default=False)
    dead_letters: bool = msgspec.field(name="deadLetters", default=False)


async def create_project(
    call: Call[CreateProject, None],
) -> CreatedProjectReply:
    """Create a project of the caller. `project` repeats it in the answer for early clients."""
    body = call.body
    configs = _configs(body, name_errors(body.name))
    project = await call.context.registry.call(
        "create_project",
        account_id=call.account.account_id,
        name=body.name,
        version=body.version,
        protocol=body.protocol,
        description=body.description,
        configs=configs,
        public=body.public,
    )
    return created_project(with_configs(call, project))


async def list_projects(call: Call[None, ListProjects]) -> ProjectRows:
    """The caller's projects with their applets."""
    return _rows(call, _own(call))


async def page_projects(call: Call[None, FilterProjects]) -> ProjectPage:
    """The caller's projects; for administrators, the projects of all accounts."""
    query = call.query
    everybody = call.account.role == ADMIN

    def look() -> ProjectPage:
        projects = call.context.reader.projects() if everybody else _own(call)
        found = [project for project in projects if query.matches(project)]
        return ProjectPage([with_configs(call, row) for row in page(found, query)], len(found))

    return await call.search(look)  # each may have megabytes of variables


async def page_project_details(call: Call[None, DetailProjects]) -> ProjectRows:
    """The caller's projects with their applets, with the filters of later clients.

    Administrators may ask for the projects of all accounts.
    """
    query = call.query
    if query.everybody:
        require_admin(call.account)
    found = _rows(call, call.context.reader.projects() if query.everybody else _own(call))
    rows = _with_owners(call, found.data) if query.everybody else found.data
    if query.dead_letters:
        rows = await _with_dead_letters(call, rows)
    return ProjectRows(rows, found.total)


async def get_project(call: Call[None, None]) -> ProjectReply:
    """One project with its configurations."""
    return with_configs(call, own_project(call))


async def update_project(call: Call[UpdateProject, None]) -> ProjectReply:
    """Change the description of a project."""
    project = await call.context.registry.call(
        "update_project",
        project_id=own_project(call).project_id,
        description=call.body.description,
    )
    return with_configs(call, project)


async def place_project(call: Call[PlaceProject, None]) -> ProjectReply:
    """Run a project in a worker of its own, or in one that it shares with other projects. Each
    dedicated project of the account counts for its quota `dedicated`. A running project moves at
    once; events that arrive meanwhile wait."""
    project = await call.context.registry.call(
        "set_dedicated",
        project_id=own_project(call).project_id,
        dedicated=call.body.dedicated,
    )
    return with_configs(call, project)


async def remove_project(call: Call[None, None]) -> None:
    """Remove a project and everything that belongs to it."""
    await call.context.registry.call("remove_project", project_id=own_project(call).project_id)


def _configs(body: CreateProject, errors: list[FieldError]) -> dict[str, bytes]:
    """Return the configurations in the body of a new project; absent ones keep their defaults.

    Raises:
        BadRequestError: `errors` is not empty, or a configuration is wrong.
    """
    later = isinstance(body.envs, Variables)
    pairs = body.envs.env or [] if isinstance(body.envs, Variables) else body.envs
    errors += check_environment(pairs, "envs.env" if later else "envs")
    configs = {PROJECT_ENV: msgspec.json.encode(Environment(env=pairs))}
    name = "schema" if body.database is None else "database"
    database = body.schema if body.database is None else body.database
    if database is not None:
        errors += check_database(database, name)
        configs[PROJECT_DATABASE] = database_value(database)
    if body.flow is not None:
        configs[PROJECT_FLOW] = msgspec.json.encode(body.flow)
    if errors:
        raise BadRequestError(*errors)
    return configs


def name_errors(name: str, at: str = "name") -> list[FieldError]:
    """Check the name of a project and return the errors; `at` is its place in the request."""
    if not _NAME.match(name):
        reason = "must be 1 to 32 letters, digits or underscores"
    elif name in _RESERVED or name.startswith(_RESERVED_PREFIXES):
        reason = (
            f"is reserved: {', '.join(sorted(_RESERVED))} and names that start with "
            f"{' or '.join(_RESERVED_PREFIXES)} cannot be used"
        )
    else:
        return []
    return [FieldError(at, reason, "body")]


def _own(call: Call[Any, Any]) -> list[Project]:
    return call.context.reader.projects(call.account.account_id)


def _rows(
    call: Call[None, ListProjects] | Call[None, DetailProjects], projects: Iterable[Project]
) -> ProjectRows:
    found = [project for project in projects if call.query.matches(project)]
    data = []
    with call.context.reader.snapshot() as registry:
        for project in page(found, call.query):
            applets = registry.applets(project.project_id)
            modules = ((applet, registry.resource(applet.resource_id)) for applet in applets)
            data.append(project_row(project, modules))
    return ProjectRows(data, len(found))


def _with_owners(call: Call[Any, Any], rows: Iterable[ProjectRow]) -> list[ProjectRow]:
    names = {str(each.account_id): each.username for each in call.context.reader.accounts()}
    return [replace(row, owner=names.get(row.account_id, UNSET)) for row in rows]


async def _with_dead_letters(call: Call[Any, Any], rows: Iterable[ProjectRow]) -> list[ProjectRow]:
    """Add the numbers of dead letters from the projects' stores; opening a store takes about 0.2
    ms."""
    found = []
    async with call.workers.streams as share:
        for number, row in enumerate(rows, 1):
            count: int | UnsetType = UNSET
            with contextlib.suppress(StoreError):  # the health of the node shows the reason
                store = call.context.store_reader(int(row.project_id))
                count = store.newest_dead_letter()[1] if store else 0
            found.append(replace(row, dead_letters=count))
            if number % _STORES_AT_ONCE == 0:
                await share.rest()
    return found


def with_configs(call: Call[Any, Any], project: Project) -> ProjectReply:
    """Return a project with its configurations, in the form of the answers."""
    configs = call.context.reader.configs(project.project_id)
    listening = all(t.state != NO_BROKER for t in call.context.health().conditions)
    return project_reply(project, configs, channel_state=listening)


_ONE, _X = "/project/{projectName}", "/project/x/{projectName}"
ROUTES: tuple[Route, ...] = (
    Route("POST", "/project", "CreateProject", create_project),
    Route("GET", "/project", "ListProject", list_projects),
    Route("GET", _ONE, "GetProject", get_project),
    Route("DELETE", _ONE, "RemoveProject", remove_project),
    Route("GET", f"{_X}/data", "GetProject", get_project),
    Route("PUT", _X, "UpdateProject", update_project),
    Route("PUT", f"{_X}/worker", "PlaceProject", place_project),
    Route("DELETE", _X, "RemoveProject", remove_project),
    Route("GET", "/project/datalist", "ListProject", page_projects),
    Route("GET", "/project/detail_list", "ListProjectDetail", page_project_details),
)
