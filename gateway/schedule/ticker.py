"""The scheduler: a gateway that turns the due times (ticks) of cron jobs into events.

A tick is sent to its project like an event of a device. Its event id consists of the job and the
due time, so deduplication recognises a tick that is sent again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from functools import partial

from fieldbrook.actors.wire import BY_CRON, NAMED, WireEvent
from fieldbrook.core import clock
from fieldbrook.core.errors import (
    InvalidCronExpressionsError,
    NodeError,
    StoreError,
    TooManyRequestsError,
    UnavailableError,
)
from fieldbrook.core.model import DEFAULT_EVENT_TYPE, NODE_PUBLISHER, CronJob
from fieldbrook.gateway.base import GatewayActor, essential
from fieldbrook.gateway.links.pending_event import Outcome, Settle
from fieldbrook.gateway.schedule.cron import LATE_MS, Plan, Schedule, Tick, parse_schedule
from fieldbrook.observability import metrics
from fieldbrook.storage.lmdb.condition import STATES, store_condition
from fieldbrook.storage.registry.service import RegistryReader

log = logging.getLogger(__name__)

_POLL_S = 1.0  # a change of the jobs or of the clock is noticed within this time
_MIN_WAIT_S = 0.01
_RETRY_S = 1.0
_TEMPORARY = (TooManyRequestsError, UnavailableError, StoreError)

Submit = Callable[[int, WireEvent, Settle], None]
CallLater = Callable[[float, Callable[[], None]], object]


def tick_event(job: CronJob, due_ms: int, now_ms: int) -> WireEvent:
    """Create the event of a tick; its payload has the due time (interface document, 5.7)."""
    due = datetime.fromtimestamp(due_ms / 1_000, UTC)
    payload = {"ID": str(job.cron_job_id), "Timestamp": f"{due:%Y-%m-%dT%H:%M:%S}Z"}
    return (
        job.event_type or DEFAULT_EVENT_TYPE,
        NODE_PUBLISHER,
        f"cron-{job.cron_job_id}-{due:%Y%m%dT%H%M%S}Z",
        json.dumps(payload, separators=(",", ":")).encode(),
        now_ms,
        NAMED | BY_CRON,
        "",
    )


class Ticker:
    """Sends the due ticks of the registry's cron jobs as events, each time `run_once` is called.

    Args:
        submit: sends an event to a project; like `project_client.ProjectClient.submit`.
        later: calls a function after some seconds; like `loop.call_later`.
        now_ms: the wall clock.
    """

    def __init__(
        self,
        reader: RegistryReader,
        zone: tzinfo,
        submit: Submit,
        call_later: CallLater,
        now_ms: clock.Clock = clock.now_ms,
    ) -> None:
        self._reader = reader
        self._zone = zone
        self._submit = submit
        self._call_later = call_later
        self._now_ms = now_ms
        self._plan = Plan(now_ms())
        self._version = -1
        self._jobs: dict[int, CronJob] = {}
        self._schedules: dict[int, Schedule] = {}  # by job id, without invalid ones
        self._running: dict[int, bool] = {}  # by job id: whether a skipped tick was logged

    def run_once(self) -> float:
        """Send the due ticks; return the seconds to wait before the next turn.

        Raises:
            StoreError: the registry cannot be read; nothing was sent.
        """
        now_ms = self._now_ms()
        self._refresh(now_ms)
        for tick in self._plan.pop_due(now_ms):
            self._tick(tick)
        next_ms = self._plan.next_ms()
        if next_ms is None:
            return _POLL_S
        return min(_POLL_S, max(_MIN_WAIT_S, (next_ms - now_ms) / 1_000))

    def _refresh(self, now_ms: int) -> None:
        version = self._reader.version()
        if version == self._version:
            return
        old_jobs, old_schedules = self._jobs, self._schedules
        self._jobs = {job.cron_job_id: job for job in self._reader.cron_jobs()}
        self._schedules = {}
        for job in self._jobs.values():
            if old_jobs.get(job.cron_job_id) == job:  # parsing ten thousand jobs takes two seconds
                if job.cron_job_id in old_schedules:
                    self._schedules[job.cron_job_id] = old_schedules[job.cron_job_id]
                continue
            # The expression was checked at its creation, but a newer cronsim may refuse it.
            try:
                schedule = parse_schedule(job.expression, self._zone, job.created_at)
            except InvalidCronExpressionsError as error:
                log.error(
                    "cron job %d never runs, because its expression is invalid: %s",
                    job.cron_job_id,
                    error,
                )
            else:
                self._schedules[job.cron_job_id] = schedule
        self._plan.replace(self._schedules.items(), now_ms)
        self._version = version

    def _tick(self, tick: Tick) -> None:
        job = self._jobs[tick.job_id]
        if tick.job_id in self._running:
            if not self._running[tick.job_id]:
                log.warning(
                    "cron job %d: ticks are skipped while the last one is still being handled",
                    job.cron_job_id,
                )
            self._running[tick.job_id] = True
            return
        self._running[tick.job_id] = False
        self._send(job, tick)

    def _send(self, job: CronJob, tick: Tick) -> None:
        event = tick_event(job, tick.due_ms, self._now_ms())
        metrics.add(metrics.EVENTS_RECEIVED)
        try:
            self._submit(job.project_id, event, partial(self._settled, job, tick))
        except NodeError as error:
            self._settled(job, tick, error)

    def _settled(self, job: CronJob, tick: Tick, outcome: Outcome) -> None:
        if not isinstance(outcome, NodeError):
            self._running.pop(tick.job_id, None)
            return
        metrics.refused(outcome.key)
        late = self._now_ms() - tick.due_ms > LATE_MS
        if isinstance(outcome, _TEMPORARY) and not late and job.cron_job_id in self._jobs:
            self._call_later(_RETRY_S, lambda: self._send(job, tick))
            return
        self._running.pop(tick.job_id, None)
        log.error("the tick of cron job %d was not handled: %s", tick.job_id, outcome)


class Scheduler(GatewayActor):
    """The gateway actor of cron jobs."""

    async def open(self) -> None:
        """Open the registry and start the ticker."""
        self._reader = RegistryReader(self.settings.data / "registry")
        ticker = Ticker(
            self._reader,
            clock.zone_of(self.settings.cron_timezone),
            self._submit_event,
            self.loop.call_later,
        )
        self._turns = essential(self.loop.create_task(self._run(ticker)))

    def registry_reader(self) -> RegistryReader:
        """See `GatewayActor`."""
        return self._reader

    async def refuse_more(self) -> None:
        """Stop sending ticks."""
        self._turns.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._turns

    def _submit_event(self, project_id: int, event: WireEvent, settle: Settle) -> None:
        # Like an MQTT message, a tick survives the death of the project's worker. It becomes a
        # dead letter after two deaths with only this tick in flight.
        self.projects[project_id].submit(event, settle, resend=True)

    async def _run(self, ticker: Ticker) -> None:
        while True:
            try:
                wait_s = ticker.run_once()
                self.health.clear(*STATES)
            except StoreError as error:
                self.health.raise_(store_condition(error), f"the registry: {error}")
                wait_s = _POLL_S
            await asyncio.sleep(wait_s)
