"""The dashboard: what it takes in a browser and at the node, each figure beside its limit."""

from __future__ import annotations

from benchmarks.context import Context, Emit
from benchmarks.report import budget_table
from benchmarks.scenarios import dashboard_followers, dashboard_pages


def dashboard(context: Context, emit: Emit) -> None:
    """Pages of the dashboard and pages that follow events, each figure beside its limit."""
    parts = dashboard_pages.pages, dashboard_pages.tail, dashboard_followers.followers
    budgets = [budget for part in parts for budget in part(context, emit)]
    emit(budget_table(context.title("the limits of the dashboard"), budgets))
