"""Projects: commands that create and remove them."""

from __future__ import annotations

from fieldbrook.core import quotas
from fieldbrook.core.errors import ProjectNameConflictError
from fieldbrook.core.model import PROJECT_DATABASE, PROJECT_ENV, Config, Project
from fieldbrook.storage.registry.commands.accounts.access_keys import remove_access_keys_of
from fieldbrook.storage.registry.commands.change import Change, Commands, command
from fieldbrook.storage.registry.commands.projects.applets import drop_applet
from fieldbrook.storage.registry.commands.projects.publishers import make_public
from fieldbrook.storage.registry.usage import has_tables

_DEFAULTS = {
    PROJECT_DATABASE: b'{"dialect":"POSTGRES","schemas":[{"schema":"public","tables":[]}]}',
    PROJECT_ENV: b'{"env":[]}',
}


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
        configs: dict[str, bytes] | None = None,
        public: bool = False,
    ) -> Project:
        """Create a project.

        Args:
            configs: JSON by kind; the defaults for missing kinds have no variables and no tables.
            public: the project accepts events without a token, from its anonymous publisher.

        Raises:
            AccountNotFoundError: no such account.
            ProjectNameConflictError: a project of any account has this name.
            QuotaExceededError: the account would exceed its quota of projects, bytes or
                databases, or of publishers for a public project.
        """
        with self.change() as change:
            change.account(account_id)
            if change.now.project_named(name):
                raise ProjectNameConflictError(what=f"project {name}")
            given = {**_DEFAULTS, **(configs or {})}
            change.require_quota(account_id, quotas.PROJECTS)
            change.require_quota(account_id, quotas.BYTES)
            _require_database_quota(change, account_id, given[PROJECT_DATABASE])
            project = change.add(
                self.tables.projects,
                Project(
                    project_id=change.new_id(),
                    account_id=account_id,
                    name=name,
                    version=version,
                    protocol=protocol,
                    description=description,
                ),
            )
            for kind, value in given.items():
                _put_config(change, project.project_id, kind, value)
            if public:
                make_public(change, project)
            return change.project(project.project_id)

    @command
    def update_project(self, project_id: int, description: str) -> Project:
        """Change a project's description.

        Raises:
            ProjectNotFoundError: no such project.
        """
        with self.change() as change:
            project = change.project(project_id)
            return change.update(self.tables.projects, project, description=description)

    @command
    def set_dedicated(self, project_id: int, dedicated: bool) -> Project:
        """Give a project a worker of its own, or let it share one again.

        Raises:
            ProjectNotFoundError: no such project.
            QuotaExceededError: the account has as many dedicated projects as its quota allows.
        """
        with self.change() as change:
            project = change.project(project_id)
            if dedicated and not project.dedicated:
                change.require_quota(project.account_id, quotas.DEDICATED)
            return change.update(self.tables.projects, project, dedicated=dedicated)

    @command
    def put_config(self, project_id: int, kind: str, value: bytes) -> Config:
        """Set or replace a project's configuration of one kind.

        Raises:
            ProjectNotFoundError: no such project.
            QuotaExceededError: the account has SQL tables in as many projects as its quota allows.
        """
        with self.change() as change:
            project = change.project(project_id)
            found = change.now.config(project_id, kind)
            if kind == PROJECT_DATABASE and not (found and has_tables(found.value)):
                _require_database_quota(change, project.account_id, value)
            return _put_config(change, project_id, kind, value)

    @command
    def remove_project(self, project_id: int) -> Project:
        """Remove a project and everything in it; the account's resources remain.

        Raises:
            ProjectNotFoundError: no such project.
        """
        with self.change() as change:
            project = change.project(project_id)
            for publisher in change.now.publishers(project_id):
                change.remove(self.tables.publishers, publisher)
                remove_access_keys_of(change, publisher.publisher_id)
            for applet in change.now.applets(project_id):
                drop_applet(change, applet)
            for config in change.now.configs(project_id):
                change.remove(self.tables.configs, config)
            for job in change.now.cron_jobs(project_id):
                change.remove(self.tables.cron_jobs, job)
            for monitor in change.now.monitors(project_id):
                change.remove(self.tables.monitors, monitor)
            for abi in change.now.contract_abis(project_id):
                change.remove(self.tables.contract_abis, abi)
            for limit in change.now.traffic_limits(project_id):
                change.remove(self.tables.traffic_limits, limit)
            if bound := change.now.project_operator(project_id):
                change.remove(self.tables.project_operators, bound)
            change.remove(self.tables.projects, project)
            return project


def _require_database_quota(change: Change, account_id: int, database: bytes) -> None:
    if has_tables(database):
        change.require_quota(account_id, quotas.DATABASES)


def _put_config(change: Change, project_id: int, kind: str, value: bytes) -> Config:
    found = change.now.config(project_id, kind)
    if found is not None:
        return change.update(change.tables.configs, found, value=value)
    return change.add(
        change.tables.configs,
        Config(
            config_id=change.new_id(),
            project_id=project_id,
            kind=kind,
            value=value,
        ),
    )
