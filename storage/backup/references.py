"""Finds broken references between records of the registry."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from fieldbrook.core.model import IDENTITY_PUBLISHER


class _Reference(NamedTuple):
    """A foreign key: the `field` of records in `table` has the id of a record in `named`."""

    table: str
    field: str
    named: str


_REFERENCES = (
    _Reference("projects", "account_id", "accounts"),
    _Reference("resources", "account_id", "accounts"),
    _Reference("applets", "project_id", "projects"),
    _Reference("applets", "resource_id", "resources"),
    _Reference("applet_versions", "applet_id", "applets"),
    _Reference("applet_versions", "resource_id", "resources"),
    _Reference("configs", "project_id", "projects"),
    _Reference("strategies", "project_id", "projects"),
    _Reference("strategies", "applet_id", "applets"),
    _Reference("publishers", "project_id", "projects"),
    _Reference("cron_jobs", "project_id", "projects"),
    _Reference("monitors", "project_id", "projects"),
    _Reference("contract_abis", "project_id", "projects"),
    _Reference("traffic_limits", "project_id", "projects"),
    _Reference("access_keys", "account_id", "accounts"),
    _Reference("operators", "account_id", "accounts"),
    _Reference("project_operators", "project_id", "projects"),
    _Reference("project_operators", "operator_id", "operators"),
)


def broken_references(rows: dict[str, dict[int, Any]]) -> Iterable[str]:
    """Find records that refer to a missing record, or that contradict the record to which they
    refer.

    Args:
        rows: the records of each table of the registry by their ids.

    Returns:
        A line for each defect; it begins with the table and the id.
    """
    for table, field, named in _REFERENCES:
        for number, record in rows[table].items():
            wanted = getattr(record, field)
            if wanted not in rows[named]:
                yield f"{table} {number}: {field} {wanted} is not an id of the {named}"
    applets, resources = rows["applets"], rows["resources"]
    for number, applet in applets.items():
        resource = resources.get(applet.resource_id)
        if resource is not None and resource.sha256 != applet.sha256:
            yield f"applets {number}: runs {applet.sha256}, its resource is {resource.sha256}"
    for number, strategy in rows["strategies"].items():
        applet = applets.get(strategy.applet_id)
        if applet is None:
            continue
        if applet.project_id != strategy.project_id:
            yield f"strategies {number}: its applet belongs to project {applet.project_id}"
    for number, key in rows["access_keys"].items():
        named = "publishers" if key.identity_type == IDENTITY_PUBLISHER else "accounts"
        if key.identity_id not in rows[named]:
            yield f"access_keys {number}: identity {key.identity_id} is not an id of the {named}"
    for number, config in rows["configs"].items():
        try:
            msgspec.json.decode(config.value)
        except (ValueError, RecursionError) as error:
            yield f"configs {number}: {config.kind} is not JSON: {error}"
