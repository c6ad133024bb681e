"""Quotas: limits of one account, from the settings or set by an administrator for that account.

Source: docs/decisions/0036-quotas.md.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from fieldbrook.core.errors import QuotaExceededError
from fieldbrook.core.model import ADMIN, Account

PROJECTS, APPLETS, STRATEGIES, PUBLISHERS = "projects", "applets", "strategies", "publishers"
MODULES, BYTES, DATABASES, PROCESSES = "modules", "bytes", "databases", "processes"
DEDICATED = "dedicated"
MONITORS, CRON_JOBS, ABIS = "monitors", "cron_jobs", "abis"
OPERATORS, ACCESS_KEYS = "operators", "access_keys"

NOUNS: dict[str, str] = {
    PROJECTS: "projects",
    APPLETS: "applets",
    MODULES: "modules",
    BYTES: "bytes in modules and in the stores of projects",
    STRATEGIES: "strategies",
    PUBLISHERS: "publishers",
    DATABASES: "projects with SQL tables",
    MONITORS: "monitors, finished ones included",
    CRON_JOBS: "cron jobs",
    ABIS: "contract ABIs",
    OPERATORS: "operators",
    ACCESS_KEYS: "access keys",
    PROCESSES: "projects that run at once",
    DEDICATED: "projects with a worker of their own",
}
NAMES = tuple(NOUNS)

# The sources of a limit.
OF_SETTINGS, OF_ACCOUNT, OF_ROLE = "SETTINGS", "ACCOUNT", "ROLE"


class Quotas(msgspec.Struct, frozen=True):
    """The default limits of accounts, by name of the quota; absent or None means no limit.

    Administrators have no limits unless their account has a quota of its own.
    """

    limits: Mapping[str, int | None] = msgspec.field(default_factory=dict)

    def limit(self, account: Account, name: str) -> int | None:
        """Return the limit of an account for one quota; None means no limit."""
        return self.limit_and_source(account, name)[0]

    def limit_and_source(self, account: Account, name: str) -> tuple[int | None, str]:
        """Return the limit and its source: `OF_ACCOUNT`, `OF_ROLE` or `OF_SETTINGS`."""
        if name in account.quotas:
            return account.quotas[name], OF_ACCOUNT
        if account.role == ADMIN:
            return None, OF_ROLE
        return self.limits.get(name), OF_SETTINGS


def exceeded(account: Account, name: str, limit: int, used: int, adding: int) -> QuotaExceededError:
    """Make the error for a command that would exceed an account's quota."""
    return QuotaExceededError(
        account=account.username,
        quota=name,
        what=NOUNS[name],
        limit=limit,
        used=used,
        adding=adding,
    )
