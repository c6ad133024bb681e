"""Settings that were renamed or removed: they are accepted for one more version, with a warning."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from fieldbrook.core.errors import SettingsError
from fieldbrook.core.settings.schema import ENVIRONMENT_PREFIX

RENAMED: Mapping[str, str] = {
    "idle_s": "project_idle_s",
    "prover": "prover_url",
    "shards": "handler_threads",
    "sql_rows": "sql_result_rows",
}
"""New names by old names. Remove an entry in the version after the renaming."""

REMOVED: Mapping[str, str] = {
    "mqtt_memory_bytes": "devices connect to the node itself, see the other settings of MQTT",
    "mqtt_qos2_limit": "it follows from mqtt_receive_maximum",
    "mqtt_sync": "a message is acknowledged when its event is committed",
    "spare_projects": "projects start in running processes, see the setting workers",
}
"""Settings without effect, with their replacements. Remove an entry in the version after the
removal."""


def use_new_names(
    values: Mapping[str, Any], spelled: Callable[[str], str], warnings: list[str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Replace old names in the values of one source, drop removed settings, and add a warning for
    each.

    Args:
        values: the settings in this source.
        spelled: returns the name of a setting in the form of this source, e.g. `--http-port`.
        warnings: gets one sentence for each of them.

    Returns:
        The values by new name, and the old names that this source uses, also by new name.

    Raises:
        SettingsError: the source contains both names of a setting.
    """
    renamed = dict(values)
    old_names: dict[str, str] = {}
    for old, new in RENAMED.items():
        if old not in values:
            continue
        if new in values:
            raise SettingsError(
                reason=f"{spelled(old)} is the old name of {spelled(new)}, and both are given; "
                f"remove {spelled(old)}"
            )
        renamed[new] = renamed.pop(old)
        old_names[new] = old
        warnings.append(
            f"{spelled(old)} was renamed and will stop working in the next version; "
            f"use {spelled(new)}"
        )
    for old, instead in REMOVED.items():
        if renamed.pop(old, None) is not None:
            warnings.append(f"{spelled(old)} was removed and has no effect: {instead}")
    return renamed, old_names


def values_of_old_variables() -> dict[str, str]:
    """Return the values of old settings in the environment, by old name; case does not matter."""
    by_variable = {(ENVIRONMENT_PREFIX + old).lower(): old for old in (*RENAMED, *REMOVED)}
    return {
        by_variable[name.lower()]: value
        for name, value in os.environ.items()
        if name.lower() in by_variable
    }
