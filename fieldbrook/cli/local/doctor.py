"""Shows the findings of `fieldbrook doctor`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from fieldbrook.cli.console import current
from fieldbrook.cli.errors import EXIT_REFUSED
from fieldbrook.cli.output import note, show_json, show_rows
from fieldbrook.core.findings import Finding

COLUMNS = {"check": "CHECK", "state": "STATE", "text": "RESULT"}


def show(findings: Iterable[Finding]) -> int:
    """Print the findings; return the exit code, which is 1 if a check failed."""
    rows = [dataclasses.asdict(finding) for finding in findings]
    failed = sum(row["state"] == "failed" for row in rows)
    if current().json:
        show_json({"usable": not failed, "checks": rows})
    else:
        show_rows(rows, COLUMNS, "")
        warnings = sum(row["state"] == "warning" for row in rows)
        note(f"{failed} failed, {warnings} warnings, of {len(rows)} checks")
    return EXIT_REFUSED if failed else 0
