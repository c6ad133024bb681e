"""The metrics: their columns in a row, and counting."""

from __future__ import annotations

import pytest

from fieldbrook.observability import metrics
from fieldbrook.observability.metrics_table import Table

pytestmark = pytest.mark.usefixtures("own_row")


def test_no_two_columns_overlap_and_all_fit_into_a_row() -> None:
    taken = [family.first + at for family in metrics.FAMILIES for at in range(family.columns)]
    assert taken == list(range(metrics.COLUMNS))
    names = [family.name for family in metrics.FAMILIES]
    assert len(set(names)) == len(names)
    table = Table(2)
    table.row(0)[metrics.COLUMNS - 1] = 1.0
    assert table.row(1).tolist() == [0.0] * len(table.row(1))


def test_a_latency_is_counted_in_the_first_bucket_that_holds_it() -> None:
    family = next(f for f in metrics.FAMILIES if f.name == "fieldbrook_event_duration_seconds")
    metrics.EVENT_SECONDS.observe(0.001)
    metrics.EVENT_SECONDS.observe_all([0.0011, 99.0])
    columns = metrics.here.row[family.first : family.first + family.columns].tolist()
    assert columns[:2] == [1.0, 1.0]
    assert columns[-2] == 1.0
    assert columns[-1] == pytest.approx(99.0021)


def test_an_unknown_error_is_counted_as_an_internal_one() -> None:
    metrics.refused("Unheard")
    assert metrics.here.row[metrics.EVENTS_REFUSED["InternalServerError"]] == 1
