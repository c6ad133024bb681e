"""The settings that the node runs with, for administrators. Secrets are never shown.

Source: ours; the original interface has no such route.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from fieldbrook.chain.rpc.endpoint_url import public_part
from fieldbrook.core.settings import SECRETS, URLS, Settings, Source, settings_fields
from fieldbrook.gateway.management.framework.route import Auth, Call, Route

Value = str | int | bool

_IS_SET = "set"
_TOKEN = "join_token"  # noqa: S105 - the name of a setting that has a flag although it is secret


class SettingRow(msgspec.Struct, frozen=True, kw_only=True):
    """A setting.

    `value` and `default` are absent when there is none. The value of a secret is `set`, of a URL
    that may hold a key its scheme and host. `needsRestart`: a changed value is used after a restart
    of the node.
    """

    name: str
    value: Value | UnsetType = UNSET
    default: Value | UnsetType = UNSET
    source: Source
    needs_restart: bool = msgspec.field(name="needsRestart")
    description: str


class SettingList(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of the node, in the order of the documentation."""

    data: list[SettingRow]
    total: int


async def list_settings(call: Call[None, None]) -> SettingList:
    """Every setting with its value, default and source. Secrets are `set` or absent."""
    rows = setting_rows(call.context.settings)
    return SettingList(data=rows, total=len(rows))


def setting_rows(settings: Settings) -> list[SettingRow]:
    """Make the views of all settings."""
    return [
        SettingRow(
            name=name,
            value=_shown(name, getattr(settings, name)),
            default=_shown(name, field.default),
            source=settings.sources.get(name, "default"),
            needs_restart=True,  # the processes get their settings when the node starts
            description=field.description,
        )
        for name, field in settings_fields().items()
    ]


def _shown(name: str, value: Any) -> Value | UnsetType:
    if value is None or value == ():
        return UNSET
    if name in SECRETS or name == _TOKEN:
        return _IS_SET
    if name in URLS:
        return public_part(value)
    return str(value) if isinstance(value, Path) else value


ROUTES: tuple[Route, ...] = (Route("GET", "/setting", "ListSettings", list_settings, Auth.ADMIN),)
