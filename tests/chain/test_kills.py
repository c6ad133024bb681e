"""A short run of `python -m tests.chain kills`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chain.kills import Plan, run


@pytest.mark.timeout(400)
@pytest.mark.parametrize("provider", ["", "bsc"])
@pytest.mark.thorough("bsc")
def test_what_was_acknowledged_is_on_chain_once_after_kills_reorganisations_and_lost_pools(
    tmp_path: Path, provider: str
) -> None:
    report = run(tmp_path, Plan(40, 4, 1, provider, 0.05 if provider else 0.0))
    assert not report.faults(), str(report)
    assert len(report.told) == 40
    assert report.kills == 4
