"""The variables of a project. A running project reads new ones with the next batch of events."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fieldbrook.core.errors import FieldError
from fieldbrook.core.model import PROJECT_ENV
from fieldbrook.gateway.management.framework.answers import as_stored
from fieldbrook.gateway.management.framework.binding import json_key
from fieldbrook.gateway.management.framework.route import Call, Route
from fieldbrook.gateway.management.routes.projects.configurations.stored import (
    LATER,
    SEED,
    ConfigReply,
    put,
    refuse,
    stored_value,
)

ENV_LIMIT = 1_000
_KEY_LIMIT, _VALUE_LIMIT = 256, 64 << 10

Pairs = list[tuple[str, str]]


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """Variables of the project's applets, as pairs of key and value; they replace all old ones."""

    env: Pairs


def check_environment(pairs: Sequence[tuple[str, str]], at: str) -> list[FieldError]:
    """Check variables and return the errors; `at` is their place in the request."""
    if len(pairs) > ENV_LIMIT:
        return [FieldError(at, f"more than {ENV_LIMIT} variables", "body")]
    errors = []
    seen: set[str] = set()
    for n, (key, value) in enumerate(pairs):
        if not key:
            errors.append(FieldError(f"{at}[{n}][0]", "the key is empty", "body"))
        elif len(key) > _KEY_LIMIT:
            errors.append(FieldError(f"{at}[{n}][0]", f"longer than {_KEY_LIMIT}", "body"))
        elif key in seen:
            errors.append(FieldError(f"{at}[{n}][0]", f"{key} occurs twice", "body"))
        if len(value) > _VALUE_LIMIT:
            errors.append(FieldError(f"{at}[{n}][1]", f"longer than {_VALUE_LIMIT}", "body"))
        seen.add(key)
    return errors


class EnvironmentReply(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """The variables of a project: names with their values."""

    env: list[list[str]]


async def set_environment(call: Call[Environment, None]) -> ConfigReply:
    """Replace a project's variables; events that arrive after the answer see the new ones."""
    refuse(check_environment(call.body.env, "env"))
    return await put(call, PROJECT_ENV, msgspec.json.encode(call.body))


async def set_environment_silently(call: Call[Environment, None]) -> None:
    """Replace a project's variables; answered as for early clients, without a body."""
    await set_environment(call)


async def get_environment(call: Call[None, None]) -> EnvironmentReply:
    """The variables of a project."""
    return as_stored(stored_value(call, PROJECT_ENV), EnvironmentReply)


_SET = "CreateOrUpdateProjectEnv"
ROUTES: tuple[Route, ...] = (
    Route("POST", f"{SEED}/{PROJECT_ENV}", _SET, set_environment_silently),
    Route("GET", f"{SEED}/{PROJECT_ENV}", "GetProjectEnv", get_environment),
    Route("POST", f"{LATER}/{PROJECT_ENV}", _SET, set_environment),
    Route("GET", f"{LATER}/{PROJECT_ENV}", "GetProjectEnv", get_environment),
)
