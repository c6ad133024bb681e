"""Which projects the health route lists, and their fields."""

from __future__ import annotations

from pathlib import Path

import pytest

from fieldbrook.actors.supervisor.child import Child
from fieldbrook.actors.supervisor.child_metrics import ChildMetrics
from fieldbrook.gateway.management.routes.node.health import current_health
from fieldbrook.observability import metrics, metrics_table
from tests.support.management import started


@pytest.mark.parametrize("named", [0, 10])
def test_a_running_project_is_listed_with_what_it_has_used_itself(
    named: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_table.shared, "table", None)
    monkeypatch.setattr(type(metrics.here), "row", metrics.private_row())
    server, context = started(tmp_path)
    owner = server.account("ada").account.account_id
    ids = [server.writer.create_project(owner, name).project_id for name in ("one", "two")]
    table = ChildMetrics()
    table.create(named)
    for project_id, busy_s in zip(ids, (5.0, 2.0), strict=True):
        child = Child(f"project:{project_id}")
        table.assign(child)
        table.table.attach(child.slot)[metrics.BUSY_SECONDS] += busy_s
        loads = {load.project_id: load for load in current_health(context).running}
        load = loads[str(project_id)]
        assert (load.busy_seconds, load.restarts) == (busy_s, 0)
        table.release(child, died=True)
    server.writer.close()
