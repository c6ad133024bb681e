"""All routes of the management interface."""

from __future__ import annotations

from fieldbrook.gateway.management.framework.route import Route
from fieldbrook.gateway.management.routes.accounts import (
    access_keys,
    accounts,
    administration,
    audit,
    logins,
    operators,
    quotas,
    wallets,
)
from fieldbrook.gateway.management.routes.chain import contract_abis, monitors, transactions
from fieldbrook.gateway.management.routes.data import key_values, tables
from fieldbrook.gateway.management.routes.events import (
    cron_jobs,
    dead_letter_replay,
    dead_letters,
    event_flow,
    event_history,
    event_replay,
    inspection,
    refused_events,
    traffic_limits,
)
from fieldbrook.gateway.management.routes.modules import dry_runs, traces
from fieldbrook.gateway.management.routes.modules import inspection as module_inspection
from fieldbrook.gateway.management.routes.node import (
    chains,
    cluster,
    configuration,
    mqtt,
    node_log,
    search,
    series,
    settings,
    stream,
)
from fieldbrook.gateway.management.routes.node import health as health_routes
from fieldbrook.gateway.management.routes.projects import (
    applets,
    instances,
    projects,
    publishers,
    resources,
    strategies,
    transfer,
)
from fieldbrook.gateway.management.routes.projects.configurations import (
    chain_settings,
    database,
    environment,
    flow,
)

ROUTES: tuple[Route, ...] = (
    *accounts.ROUTES,
    *logins.ROUTES,
    *administration.ROUTES,
    *quotas.ROUTES,
    *audit.ROUTES,
    *wallets.ROUTES,
    *operators.ROUTES,
    *access_keys.ROUTES,
    *projects.ROUTES,
    *transfer.ROUTES,
    *environment.ROUTES,
    *database.ROUTES,
    *flow.ROUTES,
    *chain_settings.ROUTES,
    *applets.ROUTES,
    *instances.ROUTES,
    *publishers.ROUTES,
    *strategies.ROUTES,
    *cron_jobs.ROUTES,
    *monitors.ROUTES,
    *contract_abis.ROUTES,
    *chains.ROUTES,
    *configuration.ROUTES,
    *search.ROUTES,
    *series.ROUTES,
    *stream.ROUTES,
    *transactions.ROUTES,
    *traffic_limits.ROUTES,
    *resources.ROUTES,
    *inspection.ROUTES,
    *key_values.ROUTES,
    *tables.ROUTES,
    *module_inspection.ROUTES,
    *dry_runs.ROUTES,
    *health_routes.ROUTES,
    *settings.ROUTES,
    *cluster.ROUTES,
    *node_log.ROUTES,
    *mqtt.ROUTES,
    *event_flow.ROUTES,
    *event_history.ROUTES,
    *event_replay.ROUTES,
    *traces.ROUTES,
    *refused_events.ROUTES,
    *dead_letters.ROUTES,
    *dead_letter_replay.ROUTES,
)
