"""Cron jobs: commands that create and remove them."""

from __future__ import annotations

from fieldbrook.core import quotas
from fieldbrook.core.errors import CronJobConflictError, CronJobLimitError, CronJobNotFoundError
from fieldbrook.core.model import CronJob
from fieldbrook.storage.lmdb.ids import to_key
from fieldbrook.storage.lmdb.table import text_key
from fieldbrook.storage.registry.commands.change import Commands, command


class CronJobCommands(Commands):
    """Commands on cron jobs."""

    @command
    def create_cron_job(
        self, project_id: int, expression: str, event_type: str, limit: int
    ) -> CronJob:
        """Create a cron job, unless the project has `limit` of them already.

        Raises:
            ProjectNotFoundError: no such project.
            CronJobConflictError: the project has one of that expression and event type.
            CronJobLimitError: the project has `limit` cron jobs already.
            QuotaExceededError: the account has as many as its quota allows.
        """
        with self.change() as change:
            project = change.project(project_id)
            key = to_key(project_id) + text_key(expression, event_type)
            if self.tables.cron_jobs.find(change.txn, "cron_rules", key):
                raise CronJobConflictError(what=f"[{expression}] [type: {event_type}]")
            if len(change.now.cron_jobs(project_id)) >= limit:
                raise CronJobLimitError(project=project.name, limit=limit)
            change.require_quota(project.account_id, quotas.CRON_JOBS)
            return change.add(
                self.tables.cron_jobs,
                CronJob(
                    cron_job_id=change.new_id(),
                    project_id=project_id,
                    expression=expression,
                    event_type=event_type,
                ),
            )

    @command
    def remove_cron_job(self, cron_job_id: int) -> CronJob:
        """Remove a cron job.

        Raises:
            CronJobNotFoundError: no such cron job.
        """
        with self.change() as change:
            job = change.now.cron_job(cron_job_id)
            if job is None:
                raise CronJobNotFoundError(cron_job=cron_job_id)
            change.remove(self.tables.cron_jobs, job)
            return job
