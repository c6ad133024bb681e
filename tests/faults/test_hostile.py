"""The short form of the hostile requests; the long one is `python -m tests.faults.hostile`."""

from __future__ import annotations

from pathlib import Path

from tests.faults.hostile import Run, table


def test_hostile_requests_get_no_5xx_end_no_process_and_leave_nothing_held(tmp_path: Path) -> None:
    report = Run(tmp_path, 1_500, seed=7).run()
    assert not report.problems, table(report)
    assert report.answers["201"], table(report)
