"""Projects: commands that create and remove them."""

from __future__ import annotations

from collections.abc import Sequence

from fieldbrook.errors import AccountNotFoundError, ProjectNameConflictError
from fieldbrook.model import Project
from fieldbrook.storage.commands.access_keys import remove_access_keys_of
from fieldbrook.storage.commands.change import Commands, command


class ProjectCommands(Commands):
    """Commands on projects."""

    @command
    def create_project(
        self,
        account_id: int,
        name: str,
        version: str = "",
        protocol: str = "",
        description: str = "",
        env: Sequence[tuple[str, str]] = (),
    ) -> Project:
        """Create a project.

        Raises:
            AccountNotFoundError: no such account.
            ProjectNameConflictError: the name is taken, by whomever.
        """
        with self.change() as change:
            if change.now.account(account_id) is None:
                raise AccountNotFoundError(account=account_id)
            if change.now.project_named(name):
                raise ProjectNameConflictError(what=f"project {name}")
            return change.put(
                self.tables.projects,
                Project(
                    project_id=change.new_id(),
                    account_id=account_id,
                    name=name,
                    version=version,
                    protocol=protocol,
                    description=description,
                    env=list(env),
                    created_at=change.time_ms,
                    updated_at=change.time_ms,
                ),
            )

    @command
    def remove_project(self, project_id: int) -> Project:
        """Remove a project and everything in it; resources remain.

        Raises:
            ProjectNotFoundError: no such project.
        """
        with self.change() as change:
            project = change.project(project_id)
            for strategy in change.now.strategies(project_id):
                change.remove(self.tables.strategies, strategy)
            for publisher in change.now.publishers(project_id):
                change.remove(self.tables.publishers, publisher)
                remove_access_keys_of(change, self.tables, publisher.publisher_id)
            for applet in change.now.applets(project_id):
                change.remove(self.tables.applets, applet)
            for job in change.now.cron_jobs(project_id):
                change.remove(self.tables.cron_jobs, job)
            for monitor in change.now.monitors(project_id):
                change.remove(self.tables.monitors, monitor)
            for limit in change.now.traffic_limits(project_id):
                change.remove(self.tables.traffic_limits, limit)
            change.remove(self.tables.projects, project)
            return project
