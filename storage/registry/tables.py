"""The registry's tables, their indexes, and the database `meta`.

`meta` holds the schema version (`storage.lmdb.schema`), the change counter, the last assigned id,
and a mark that quotas have been applied to this registry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lmdb

from fieldbrook.core.model import (
    AccessKey,
    Account,
    Applet,
    AppletVersion,
    Config,
    ContractAbi,
    CronJob,
    Monitor,
    Operator,
    Project,
    ProjectOperator,
    Publisher,
    Resource,
    Strategy,
    TrafficLimit,
)
from fieldbrook.storage.lmdb.environment import store_errors
from fieldbrook.storage.lmdb.ids import to_key
from fieldbrook.storage.lmdb.schema import open_meta
from fieldbrook.storage.lmdb.table import OpenTable, Table, open_database, text_key

if TYPE_CHECKING:
    Database = lmdb._Database

SCHEMA = 1
WHAT = "a registry"
CHANGES_CELL, LAST_ID_CELL = b"changes", b"last_id"
QUOTAS_CELL = b"quotas"  # present once quotas have been applied to this registry's accounts

ACCOUNTS = Table(
    "accounts",
    Account,
    lambda a: a.account_id,
    {
        "account_names": lambda a: text_key(a.username),
        "account_roles": lambda a: text_key(a.role) + b"\0" + to_key(a.account_id),
    },
)
PROJECTS = Table(
    "projects",
    Project,
    lambda p: p.project_id,
    {
        "project_names": lambda p: text_key(p.name),
        "account_projects": lambda p: to_key(p.account_id) + to_key(p.project_id),
    },
)
RESOURCES = Table(
    "resources",
    Resource,
    lambda r: r.resource_id,
    {"resource_contents": lambda r: to_key(r.account_id) + bytes.fromhex(r.sha256)},
)
APPLETS = Table(
    "applets",
    Applet,
    lambda a: a.applet_id,
    {
        "applet_names": lambda a: to_key(a.project_id) + text_key(a.name),
        "project_applets": lambda a: to_key(a.project_id) + to_key(a.applet_id),
        "resource_applets": lambda a: to_key(a.resource_id) + to_key(a.applet_id),
        "instances": lambda a: to_key(a.instance_id),
    },
)
APPLET_VERSIONS = Table(
    "applet_versions",
    AppletVersion,
    lambda v: v.version_id,
    {
        "version_numbers": lambda v: to_key(v.applet_id) + to_key(v.number),
        "resource_versions": lambda v: to_key(v.resource_id) + to_key(v.version_id),
    },
)
CONFIGS = Table(
    "configs",
    Config,
    lambda c: c.config_id,
    {"project_configs": lambda c: to_key(c.project_id) + text_key(c.kind)},
)
STRATEGIES = Table(
    "strategies",
    Strategy,
    lambda s: s.strategy_id,
    {
        "strategy_rules": lambda s: to_key(s.applet_id) + text_key(s.event_type, s.handler),
        "project_strategies": lambda s: to_key(s.project_id) + to_key(s.strategy_id),
        "applet_strategies": lambda s: to_key(s.applet_id) + to_key(s.strategy_id),
    },
)
PUBLISHERS = Table(
    "publishers",
    Publisher,
    lambda p: p.publisher_id,
    {
        "publisher_keys": lambda p: to_key(p.project_id) + text_key(p.key),
        "project_publishers": lambda p: to_key(p.project_id) + to_key(p.publisher_id),
        "publisher_tokens": lambda p: text_key(p.token),
    },
)
CRON_JOBS = Table(
    "cron_jobs",
    CronJob,
    lambda c: c.cron_job_id,
    {
        "cron_rules": lambda c: to_key(c.project_id) + text_key(c.expression, c.event_type),
        "project_cron_jobs": lambda c: to_key(c.project_id) + to_key(c.cron_job_id),
    },
)
MONITORS = Table(
    "monitors",
    Monitor,
    lambda m: m.monitor_id,
    {
        "monitor_rules": lambda m: monitor_rule(m),
        "project_monitors": lambda m: to_key(m.project_id) + to_key(m.monitor_id),
        "chain_monitors": lambda m: to_key(m.chain_id) + to_key(m.monitor_id),
    },
)
CONTRACT_ABIS = Table(
    "contract_abis",
    ContractAbi,
    lambda a: a.abi_id,
    {
        "contract_abi_names": lambda a: to_key(a.project_id) + text_key(a.name),
        "project_contract_abis": lambda a: to_key(a.project_id) + to_key(a.abi_id),
    },
)
TRAFFIC_LIMITS = Table(
    "traffic_limits",
    TrafficLimit,
    lambda t: t.traffic_limit_id,
    {
        "traffic_rules": lambda t: to_key(t.project_id) + text_key(t.api_type),
        "project_traffic_limits": lambda t: to_key(t.project_id) + to_key(t.traffic_limit_id),
    },
)
OPERATORS = Table(
    "operators",
    Operator,
    lambda o: o.operator_id,
    {
        "operator_names": lambda o: to_key(o.account_id) + text_key(o.name),
        "account_operators": lambda o: to_key(o.account_id) + to_key(o.operator_id),
    },
)
PROJECT_OPERATORS = Table(
    "project_operators",
    ProjectOperator,
    lambda p: p.project_id,
    {"operator_projects": lambda p: to_key(p.operator_id) + to_key(p.project_id)},
)


def monitor_rule(monitor: Monitor) -> bytes:
    """Return the key that must be unique among a project's unfinished monitors.

    Hex texts are compared without case and without the prefix `0x`.
    """
    words = (
        monitor.kind,
        monitor.event_type,
        str(monitor.chain_id),
        *(text.lower().removeprefix("0x") for text in (monitor.address, monitor.tx_hash)),
        *(topic.lower().removeprefix("0x") for topic in monitor.topics),
        *(str(n) for n in (monitor.block_start, monitor.block_end, monitor.height)),
    )
    if monitor.finished:
        words = (*words, "finished", str(monitor.monitor_id))
    return to_key(monitor.project_id) + text_key(*words)


ACCESS_KEYS = Table(
    "access_keys",
    AccessKey,
    lambda k: k.access_key_id,
    {
        "access_key_digests": lambda k: k.digest,
        "access_key_names": lambda k: to_key(k.account_id) + text_key(k.name),
        "account_access_keys": lambda k: to_key(k.account_id) + to_key(k.access_key_id),
        "identity_access_keys": lambda k: to_key(k.identity_id) + to_key(k.access_key_id),
    },
)


def login_key(login_id: str, began_s: int) -> bytes:
    """Return the key of a login that was ended; `began_s` is Unix seconds."""
    return to_key(began_s) + login_id.encode()


class RegistryTables:
    """The tables of one open environment."""

    def __init__(self, environment: lmdb.Environment, *, create: bool) -> None:
        with store_errors(environment.path()):
            self.meta = open_meta(environment, WHAT, SCHEMA, create=create, unmarked=0)
            self.accounts = OpenTable(environment, ACCOUNTS, create=create)
            self.projects = OpenTable(environment, PROJECTS, create=create)
            self.resources = OpenTable(environment, RESOURCES, create=create)
            self.applets = OpenTable(environment, APPLETS, create=create)
            self.applet_versions = OpenTable(environment, APPLET_VERSIONS, create=create)
            self.configs = OpenTable(environment, CONFIGS, create=create)
            self.strategies = OpenTable(environment, STRATEGIES, create=create)
            self.publishers = OpenTable(environment, PUBLISHERS, create=create)
            self.cron_jobs = OpenTable(environment, CRON_JOBS, create=create)
            self.monitors = OpenTable(environment, MONITORS, create=create)
            self.contract_abis = OpenTable(environment, CONTRACT_ABIS, create=create)
            self.traffic_limits = OpenTable(environment, TRAFFIC_LIMITS, create=create)
            self.access_keys = OpenTable(environment, ACCESS_KEYS, create=create)
            self.operators = OpenTable(environment, OPERATORS, create=create)
            self.project_operators = OpenTable(environment, PROJECT_OPERATORS, create=create)
            self.audit = open_database(environment, "audit", create)
            # Keys only, with empty values: the expiry time of a nonce, followed by its digest.
            self.wallet_nonces = open_database(environment, "wallet_nonces", create)
            # `login_key` -> when the last token of the login expires.
            self.ended_logins = open_database(environment, "ended_logins", create)
            if create:
                _fill_new_indexes(environment, [*vars(self).values()])

    def databases(self) -> dict[str, Database]:
        """All databases of the registry by their names."""
        found: dict[str, Database] = {}
        for name, value in vars(self).items():
            if isinstance(value, OpenTable):
                found |= value.databases()
            else:
                found[name] = value
        return found


def _fill_new_indexes(environment: lmdb.Environment, tables: list[Any]) -> None:
    """Fill indexes that the version that last wrote this registry did not have yet."""
    with environment.begin() as txn:
        opened = [table for table in tables if isinstance(table, OpenTable)]
        lacking = [(table, name) for table in opened for name in table.missing_indexes(txn)]
    if lacking:
        with environment.begin(write=True) as txn:
            for table, name in lacking:
                table.fill(txn, name)
