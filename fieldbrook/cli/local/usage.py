"""Shows the result of `fieldbrook usage`: the data that takes disk space, and the settings that
limit it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from fieldbrook.cli.console import current
from fieldbrook.cli.output import note, note_unless_json, show_json, show_rows

if TYPE_CHECKING:
    from fieldbrook.core.settings import Settings
    from fieldbrook.storage.usage import ProjectUsage, Usage


class _Kind(NamedTuple):
    """A kind of data: its name for users, the settings of its limit, the object to which the limit
    applies, and the effect at the limit."""

    what: str
    settings: tuple[str, ...]
    each: str
    full: str


_OLDEST = "oldest go"
_PROJECT_KINDS = {
    "pairs": _Kind("keys of handlers", ("project_map_bytes",), "project", "507, until removed"),
    "history": _Kind("event history", ("history_bytes",), "project", _OLDEST),
    "payloads": _Kind("payloads for replays", ("replayable_bytes",), "project", _OLDEST),
    "traces": _Kind("traces", (), "project", _OLDEST),
    "logs": _Kind("applet log", ("applet_log_bytes",), "project", _OLDEST),
    "metrics": _Kind("applet metrics", ("applet_metrics_bytes",), "project", _OLDEST),
    "deadLetters": _Kind("dead letters", ("dead_letter_bytes",), "project", _OLDEST),
    "results": _Kind("results of events", (), "project", "after a day, or a million"),
    "outbox": _Kind("messages to deliver", ("project_map_bytes",), "project", "507, until sent"),
    "sql": _Kind("SQL tables (SQLite)", ("sql_database_bytes",), "project", "statements fail"),
    "free": _Kind("free pages of stores", ("project_map_bytes",), "project", "used again"),
    "other": _Kind("lock files of stores", (), "project", ""),
}
_FOLDER_KINDS = {
    "registry": _Kind("registry", ("registry_map_bytes",), "node", "commands refused"),
    "audit": _Kind("- audit log in it", ("audit_rows",), "node", _OLDEST),
    "modules": _Kind("modules", ("quota_bytes",), "account", "uploads refused"),
    "journal": _Kind("journals", (), "worker", "8 to 128 MiB"),
    "mqtt": _Kind("MQTT sessions", ("mqtt_store_bytes",), "node", "clients refused"),
    "chains": _Kind("chains", (), "chain", "transactions: oldest go"),
    "refused": _Kind("refused events", (), "gateway", _OLDEST),
    "uploads": _Kind("uploads in progress", (), "node", "go at the start"),
    "rollback": _Kind("copies before upgrades", (), "node", "remove by hand"),
}
_COLUMNS = {
    "what": "WHAT",
    "size": "SIZE",
    "limit": "LIMIT",
    "each": "FOR EACH",
    "setting": "SETTING",
    "full": "AT THE LIMIT",
}
_PROJECT_COLUMNS = {
    "name": "PROJECT",
    "size": "SIZE",
    "pairs": "KEYS",
    "history": "HISTORY",
    "logs": "LOG",
    "deadLetters": "DEAD LETTERS",
    "sql": "SQL",
    "free": "FREE",
    "problem": "PROBLEM",
}


def show(usage: Usage, settings: Settings, projects: int) -> None:
    """Print the sizes, and the largest `projects` projects."""
    rows = [*_rows(usage, settings)]
    largest = [_project_row(project) for project in usage.projects[:projects]]
    if current().json:
        show_json(
            {
                "bytes": usage.bytes,
                "freeBytes": usage.free_disk,
                "projectCount": len(usage.projects),
                "parts": rows,
                "projects": [
                    {
                        "projectID": str(project.project_id),
                        "name": project.name,
                        "bytes": project.bytes,
                        "parts": dict(project.parts),
                        "problem": project.problem,
                    }
                    for project in usage.projects[:projects]
                ],
            }
        )
        return
    show_rows(rows, _COLUMNS, "")
    note_unless_json(
        f"{size_text(usage.bytes)} in all, with {len(usage.projects)} projects; "
        f"the disk has {size_text(usage.free_disk)} left"
    )
    if largest:
        note("the largest projects:")
        show_rows(largest, _PROJECT_COLUMNS, "")


def _rows(usage: Usage, settings: Settings) -> Iterator[dict[str, Any]]:
    sizes = {**usage.folders, "audit": usage.audit}
    for name, kind in _FOLDER_KINDS.items():
        yield _row(kind, sizes.get(name, 0), settings)
    for name, kind in _PROJECT_KINDS.items():
        yield _row(kind, usage.parts.get(name, 0), settings)


def _row(kind: _Kind, size: int, settings: Settings) -> dict[str, Any]:
    setting = next(iter(kind.settings), "")
    limit: int | None = getattr(settings, setting) if setting else None
    in_bytes = setting.endswith("_bytes")
    if in_bytes and setting in _SHARED_LIMITS and limit is not None:
        limit = min(limit, settings.project_map_bytes // 8)
    text = "" if limit is None else size_text(limit) if in_bytes else f"{limit} rows"
    return {
        "what": kind.what,
        "bytes": size,
        "size": size_text(size),
        "limit": text,
        "limitBytes": limit if in_bytes else None,
        "each": kind.each,
        "setting": setting,
        "full": kind.full,
    }


_SHARED_LIMITS = frozenset(
    {
        *("history_bytes", "replayable_bytes", "applet_log_bytes"),
        *("applet_metrics_bytes", "dead_letter_bytes"),
    }
)
"""Settings of which a project uses at most an eighth of its store's limit."""


def _project_row(project: ProjectUsage) -> dict[str, Any]:
    shown = {name: size_text(project.parts.get(name, 0)) for name in _PROJECT_COLUMNS}
    return {
        **shown,
        "name": project.name or f"({project.project_id})",
        "size": size_text(project.bytes),
        "problem": project.problem,
    }


def size_text(size: int) -> str:
    """Return a size for users, in the largest unit in which it is at least 1."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"
