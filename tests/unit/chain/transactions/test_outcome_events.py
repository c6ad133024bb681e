"""Events with the outcomes of transactions, in the form that a project recognises."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from fieldbrook.actors.project.execution.deduplication import remember, stored_result
from fieldbrook.actors.wire import EXACT, NAMED
from fieldbrook.chain.transactions.outcome_events import outcome_event
from fieldbrook.core.errors import IdempotencyKeyReusedError
from fieldbrook.storage.chain.transactions import CONFIRMED, FAILED
from fieldbrook.storage.project.store import ProjectStore
from tests.unit.chain.transactions.broadcast.test_finality import row

HANDLED = ((7, 0, ""),)


def test_a_project_handles_an_outcome_once_whatever_block_its_transaction_is_in(
    tmp_path: Path,
) -> None:
    first, later = row(3, CONFIRMED, block=5), row(3, CONFIRMED, block=9)
    with closing(ProjectStore(tmp_path, 1 << 20)) as store:
        assert stored_result(store, outcome_event(first)) is None
        remember(store, outcome_event(first), HANDLED)
        store.commit()
        assert stored_result(store, outcome_event(first)) == HANDLED, "a repetition"
        with pytest.raises(IdempotencyKeyReusedError):
            stored_result(store, outcome_event(later))
        other = msgspec.structs.replace(later, state=FAILED, outcomes=[CONFIRMED])
        assert stored_result(store, outcome_event(other)) is None, "another outcome"


def test_an_outcome_that_a_project_handled_before_an_upgrade_is_recognised(tmp_path: Path) -> None:
    event = outcome_event(row(3, CONFIRMED, block=5))
    with closing(ProjectStore(tmp_path, 1 << 20)) as store:
        remember(store, (*event[:5], NAMED | EXACT, ""), HANDLED)
        store.commit()
        assert stored_result(store, event) == HANDLED
