"""Quotas: what one account may have, by the settings, and for some accounts by an administrator.

Source: docs/decisions/0036-quotas.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fieldbrook.core.errors import QuotaExceededError
from fieldbrook.core.model import ADMIN, Account

PROJECTS, APPLETS, STRATEGIES, PUBLISHERS = "projects", "applets", "strategies", "publishers"
MODULES, BYTES, DATABASES, PROCESSES = "modules", "bytes", "databases", "processes"
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
}
NAMES = tuple(NOUNS)

# Where a limit comes from.
OF_SETTINGS, OF_ACCOUNT, OF_ROLE = "SETTINGS", "ACCOUNT", "ROLE"


@dataclass(frozen=True, slots=True)
class Quotas:
    """The limits of accounts that are no administrators', by name; one that is absent or None
    is no limit."""

    limits: Mapping[str, int | None] = field(default_factory=dict)

    def limit(self, account: Account, name: str) -> int | None:
        """How many an account may have; None: as many as it wants."""
        return self.limit_and_source(account, name)[0]

    def limit_and_source(self, account: Account, name: str) -> tuple[int | None, str]:
        """As `limit`, and where the limit comes from."""
        if name in account.quotas:
            return account.quotas[name], OF_ACCOUNT
        if account.role == ADMIN:
            return None, OF_ROLE
        return self.limits.get(name), OF_SETTINGS


def exceeded(account: Account, name: str, limit: int, used: int, adding: int) -> QuotaExceededError:
    """The refusal of what would be more than an account may have."""
    return QuotaExceededError(
        account=account.username,
        quota=name,
        what=NOUNS[name],
        limit=limit,
        used=used,
        adding=adding,
    )
