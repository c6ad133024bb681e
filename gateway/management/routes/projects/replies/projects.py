"""Answers about projects."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import UNSET, UnsetType

from fieldbrook.core.model import (
    PROJECT_DATABASE,
    PROJECT_ENV,
    PROJECT_FLOW,
    Applet,
    Config,
    Project,
    Resource,
)
from fieldbrook.gateway.management.framework.answers import Page, Timed, as_stored, times
from fieldbrook.gateway.management.framework.binding import json_key
from fieldbrook.gateway.management.routes.projects.configurations.database import DatabaseReply
from fieldbrook.gateway.management.routes.projects.configurations.environment import (
    EnvironmentReply,
)
from fieldbrook.gateway.management.routes.projects.configurations.flow import StoredFlow
from fieldbrook.gateway.management.routes.projects.replies.applets import AppletRow, applet_row


class PlainProject(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """A project without its configurations."""

    project_id: str
    account_id: str
    name: str
    version: str | UnsetType = UNSET
    protocol: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    public: bool
    dedicated: bool
    channel_state: bool
    created_at: str
    updated_at: str


class ProjectReply(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """A project with its configurations. `channelState`: the node listens to its topic.
    `dedicated`: it has a worker of its own."""

    project_id: str
    account_id: str
    name: str
    version: str | UnsetType = UNSET
    protocol: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    public: bool
    dedicated: bool
    envs: EnvironmentReply
    database: DatabaseReply
    flow: StoredFlow | UnsetType = UNSET
    channel_state: bool
    created_at: str
    updated_at: str


class ProjectPage(Page[ProjectReply], frozen=True):
    """A page of projects; `total` counts all matching ones."""


class CreatedProjectReply(ProjectReply, frozen=True, kw_only=True):
    """A new project. `project` repeats it for early clients."""

    project: PlainProject


class ImportedProjectReply(ProjectReply, frozen=True, kw_only=True):
    """A project that was made from a file; `warnings` name its dead strategies, and say when it
    lost its own worker."""

    warnings: list[str] | UnsetType = UNSET


class ProjectRow(Timed, frozen=True):
    """A project in a list, with its applets, their modules and their instances.

    `owner` is the name of its account, in lists of several accounts. `deadLetters` is there if it
    was asked for, and the project's store can be read.
    """

    project_id: str
    project_name: str
    account_id: str
    applets: list[AppletRow]
    owner: str | UnsetType = UNSET
    dead_letters: int | UnsetType = UNSET


class ProjectRows(Page[ProjectRow], frozen=True):
    """A page of projects with their applets; `total` counts all matching projects."""


def project_reply(
    project: Project, configs: Iterable[Config], *, channel_state: bool
) -> ProjectReply:
    """A project with its configurations.

    Args:
        channel_state: whether the node listens to the topic of the project.
    """
    values = {config.kind: config.value for config in configs}
    flow = values.get(PROJECT_FLOW)
    return ProjectReply(
        project_id=str(project.project_id),
        account_id=str(project.account_id),
        name=project.name,
        version=project.version or UNSET,
        protocol=project.protocol or UNSET,
        description=project.description or UNSET,
        public=project.public,
        dedicated=project.dedicated,
        envs=as_stored(values.get(PROJECT_ENV, b'{"env":[]}'), EnvironmentReply),
        database=as_stored(values.get(PROJECT_DATABASE, b'{"schemas":[]}'), DatabaseReply),
        flow=UNSET if flow is None else as_stored(flow, StoredFlow),
        channel_state=channel_state,
        **times(project),
    )


def created_project(project: ProjectReply) -> CreatedProjectReply:
    """A new project in the form of both generations of clients."""
    fields = msgspec.structs.asdict(project)
    names = PlainProject.__struct_fields__
    plain = PlainProject(**{name: fields[name] for name in names})
    return CreatedProjectReply(**fields, project=plain)


def project_row(project: Project, applets: Iterable[tuple[Applet, Resource | None]]) -> ProjectRow:
    """A project with its applets and their modules."""
    return ProjectRow(
        project_id=str(project.project_id),
        project_name=project.name,
        account_id=str(project.account_id),
        applets=[applet_row(applet, resource) for applet, resource in applets],
        **times(project),
    )
