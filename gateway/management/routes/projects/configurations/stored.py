"""Common functions of all configurations of a project: storing and returning them."""

from __future__ import annotations

from typing import Any

import msgspec

from fieldbrook.core.errors import (
    BadRequestError,
    ConfigNotFoundError,
    FieldError,
    ProjectNotFoundError,
)
from fieldbrook.core.model import Config
from fieldbrook.gateway.management.framework.answers import Timed, times
from fieldbrook.gateway.management.framework.ownership import own_project
from fieldbrook.gateway.management.framework.route import Call

SEED, LATER = "/project_config/{projectName}", "/project_config/x/{projectName}"


class ConfigReply(Timed, frozen=True):
    """A configuration of the project `relID`, without its value."""

    config_id: str
    rel_id: str
    type: str


async def put(call: Call[Any, None], kind: str, value: bytes) -> ConfigReply:
    """Store a configuration of the caller's project.

    Raises:
        ProjectNotFoundError: there is no such project.
    """
    config: Config = await call.context.registry.call(
        "put_config", project_id=own_project(call).project_id, kind=kind, value=value
    )
    return ConfigReply(
        config_id=str(config.config_id),
        rel_id=str(config.project_id),
        type=config.kind,
        **times(config),
    )


def stored_value(call: Call[None, None], kind: str, default: bytes | None = None) -> msgspec.Raw:
    """Return a stored configuration, or else the default of its kind.

    Raises:
        ConfigNotFoundError: there is neither a configuration nor a default, or the project does not
            exist. Clients expect this error for a removed project (interface document, 12.2,
            scenario 6).
    """
    name = call.path["projectName"]
    try:
        project = own_project(call)
    except ProjectNotFoundError:
        raise ConfigNotFoundError(kind=kind, project=name) from None
    config = call.context.reader.config(project.project_id, kind)
    value = default if config is None else config.value
    if value is None:
        raise ConfigNotFoundError(kind=kind, project=name)
    return msgspec.Raw(value)


def refuse(errors: list[FieldError]) -> None:
    """Refuse a request that has errors.

    Raises:
        BadRequestError: there are errors; it contains all of them.
    """
    if errors:
        raise BadRequestError(*errors)
