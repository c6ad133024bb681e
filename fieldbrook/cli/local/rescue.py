"""`fieldbrook rescue`: turns the last host of a cluster into a single node."""

from __future__ import annotations

from fieldbrook.cli.console import current
from fieldbrook.cli.errors import EXIT_REFUSED, expected_errors
from fieldbrook.cli.options import confirm
from fieldbrook.cli.output import note, note_unless_json, show_json, show_rows
from fieldbrook.cli.text import counted
from fieldbrook.core.settings import Settings

_COLUMNS = {
    "name": "PROJECT",
    "batch": "LAST BATCH",
    "batches": "BATCHES ADDED",
    "damage": "DAMAGE AFTER IT",
}


def carry_out(settings: Settings, yes: bool) -> int:
    """Rescue the data folder of the settings, and print the result; return the exit code.

    Without `yes` the user is asked before anything is changed.
    """
    with expected_errors():
        from fieldbrook.cluster.rescue import require_rescuable, rescue

        require_rescuable(settings.data)
    confirm(f"make a single node of {settings.data}? It can never return to its cluster", yes)
    with expected_errors():
        done = rescue(settings)
    damaged = sum(bool(project.damage) for project in done.projects)
    defects = damaged or done.registry_damage or done.missing
    if current().json:
        projects = [project._asdict() for project in done.projects]
        show_json({**done._asdict(), "projects": projects, "kept": str(done.kept)})
    else:
        show_rows([project._asdict() for project in done.projects], _COLUMNS, "no projects")
    note_unless_json(
        f"the data folder is that of a single node; its last record is of {done.last_at}. What the "
        f"hosts {' and '.join(done.hosts)} have acknowledged after it is lost"
    )
    note_unless_json(f"{done.kept} has the streams of the cluster: remove it when all is well")
    for sha256 in done.missing:
        note(f"module {sha256} is missing: upload it again")
    if done.registry_damage:
        note(f"newer changes of accounts and projects may be lost: {done.registry_damage}")
    if damaged:
        projects_damaged = counted(damaged, "project")
        note(f"newer events of {projects_damaged} may be lost, because files are damaged")
    return EXIT_REFUSED if defects else 0
