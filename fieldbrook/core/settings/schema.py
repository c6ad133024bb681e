"""The node's settings: their names, types, defaults and limits."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, structs

from fieldbrook.core import quotas
from fieldbrook.core.host_port import is_loopback
from fieldbrook.core.quotas import Quotas
from fieldbrook.core.settings.chain import Chain
from fieldbrook.core.settings.fields import Field, fields_of
from fieldbrook.core.settings.values import listed, listed_as_is

ENVIRONMENT_PREFIX = "FIELDBROOK_"
SECRETS = frozenset({"mqtt_password", "chains", "postgres_dsn", "otlp_headers"})
"""Settings that are never shown. They have no flag, because all users of a machine can see command
lines."""

URLS = frozenset({"prover_url", "otlp_endpoint"})
"""Settings with a URL whose user, path or query may contain a key; only the host is shown."""

Source = Literal["default", "file", "environment", "option"]
"""The source of a setting's value."""

_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30
_MOST = 1 << 50
_ABOUT = ("warnings", "sources")
"""The fields of `Settings` that are not settings."""

Port = Annotated[int, Meta(ge=1, le=65_535)]
Text = str | None
File = Path | None
ChainId = Annotated[int, Meta(ge=1, le=(1 << 63) - 1)] | None
Quota = Annotated[int, Meta(ge=0, le=_MOST)] | None
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]


def _per_account(counted: str) -> str:
    """Return the description of a limit for one account."""
    return (
        f"Number of {counted} per account. Commands that would exceed it are refused. Empty: no "
        "limit. Administrators have no limit."
    )


class Settings(Struct, frozen=True, kw_only=True):
    """All settings of a node; units are in the names.

    Create it with `load`, which reads and checks the values. The annotation of a setting contains
    its type, its limits and its description; nothing evaluates it before `settings_fields` does.
    """

    data: Annotated[Path, "Folder of all data that the node stores."] = Path("data")
    bind: Annotated[
        str,
        Meta(min_length=1),
        "Address on which the node accepts events, management requests and MQTT.",
    ] = "0.0.0.0"  # noqa: S104
    http_port: Annotated[Port, "Port of events and management over HTTP."] = 8888
    event_port: Annotated[
        Port | None, "Additional port for events only, e.g. 8889. Empty: none."
    ] = None
    mqtt_port: Annotated[Port, "Port of events over MQTT."] = 1883
    dashboard_bind: Annotated[
        str, Meta(min_length=1), "Address on which the node serves the dashboard."
    ] = "127.0.0.1"
    dashboard_port: Annotated[Port, "Port of the dashboard."] = 3000
    dashboard_plain: Annotated[
        Literal["serve", "redirect", "refuse"] | None,
        "What `dashboard_port` does with plain http when `tls_certificate` is set. redirect: GET "
        "and HEAD to https, all else is refused. Empty: serve if `dashboard_bind` is the loopback "
        "and `tls_client_ca` is empty, else redirect.",
    ] = None
    dashboard_hosts: Annotated[
        str,
        "Host names of the dashboard in addresses of browsers, separated by commas, with *. for "
        "any one label. Addresses, localhost and the host of `public_url` are always allowed. "
        "Empty: the names in `tls_certificate`.",
    ] = ""
    ui: Annotated[
        File,
        "Folder from which the dashboard is read again for each page, for those who develop it. "
        "Empty: the dashboard of this version.",
    ] = None
    public_url: Annotated[
        Text,
        "Address under which clients reach the node through a proxy, e.g. https://node.example. "
        "The dashboard shows it in its examples. Empty: the host and ports of the node itself.",
    ] = None
    trusted_proxies: Annotated[
        str,
        "Addresses and networks of reverse proxies, separated by commas, e.g. "
        "127.0.0.1,10.0.0.0/8. A request over HTTP from one of them counts for the client that its "
        "X-Forwarded-For names last. Empty: all requests of a proxy count for one client.",
    ] = ""
    cluster_bind: Annotated[
        Text, "Address of this host for the other hosts of its cluster. Empty: the node runs alone."
    ] = None
    cluster_port: Annotated[Port, "Port of connections between hosts."] = 8886
    engine_port: Annotated[
        Port, "Port of connections between the replication engines of hosts."
    ] = 8887
    join: Annotated[
        Text,
        "ADDRESS:PORT of a host whose cluster this node joins at its first start. Empty: it "
        "founds one, if `cluster_bind` is set.",
    ] = None
    join_token: Annotated[
        Text, "Token of the cluster that this node joins, valid for an hour. Empty: none."
    ] = None
    host_name: Annotated[
        Text,
        "Name of this host in its cluster, never used again after the host is removed. Empty: the "
        "name of the machine.",
    ] = None
    silence_ms: Annotated[
        int,
        Meta(ge=500, le=10_000),
        "A host that is silent for this long counts as gone, and others take over its projects.",
    ] = 1_500
    cluster_file_bytes: Annotated[
        int, Meta(ge=64 * _MIB, le=_MOST), "Disk space for the streams of the cluster on this host."
    ] = 16 * _GIB
    http_gateways: Annotated[
        int,
        Meta(ge=0, le=64),
        "Number of processes that serve `http_port`. 0: one for every 2 cores.",
    ] = 0
    handler_threads: Annotated[
        int,
        Meta(ge=0, le=64),
        "Number of threads that run the handlers of one project when they are slow. 1: one thread "
        "only. 0: one per core.",
    ] = 0
    mqtt_broker: Annotated[
        Text,
        "HOST:PORT of an external MQTT broker, whose client the node is. Empty: devices connect "
        "to the node itself.",
    ] = None
    mqtt_username: Annotated[Text, "User name of the node at the external broker."] = None
    mqtt_password: Annotated[Text, "Password of the node at the external broker."] = None
    mqtt_broker_tls: Annotated[bool, "Use TLS to the external broker."] = False
    mqtt_broker_ca: Annotated[
        File,
        "PEM file of the authorities that the node trusts for the external broker's certificate. "
        "Empty: those of the system.",
    ] = None
    tls_certificate: Annotated[
        File,
        "PEM file of the certificate and its chain for all HTTP ports and the MQTT port, which "
        "then use TLS only. Empty: no TLS.",
    ] = None
    tls_key: Annotated[File, "PEM file of the certificate's private key, not encrypted."] = None
    tls_client_ca: Annotated[
        File,
        "PEM file of authorities. HTTP clients without a certificate of one of them are refused. "
        "Empty: clients need no certificate.",
    ] = None
    mqtt_tls: Annotated[bool, "Use TLS on `mqtt_port` too, if `tls_certificate` is set."] = True
    mqtt_client_ca: Annotated[
        File,
        "PEM file of authorities. MQTT clients without a certificate of one of them are refused. "
        "Empty: clients need no certificate.",
    ] = None
    mqtt_anonymous: Annotated[
        bool,
        "Whether MQTT clients may connect without the login of a publisher or an account. Each "
        "message still needs a token.",
    ] = True
    mqtt_logins: Annotated[
        bool,
        "Whether MQTT clients whose user name and password belong to no publisher or account are "
        "accepted like clients without a login. False: they are refused.",
    ] = True
    mqtt_trust_connection: Annotated[
        bool,
        "Whether the messages of a publisher that has logged in over MQTT may lack the token in "
        "their header.",
    ] = True
    mqtt_connections: Annotated[
        int, Meta(ge=1, le=1_000_000), "Number of MQTT connections at once."
    ] = 20_000
    mqtt_connections_per_address: Annotated[
        int, Meta(ge=1, le=1_000_000), "Number of MQTT connections at once from one address."
    ] = 10_000
    mqtt_connects_per_s: Annotated[
        int,
        Meta(ge=1, le=1_000_000),
        "Number of MQTT clients that may connect per second. Further ones are told to try again.",
    ] = 1_000
    mqtt_share_percent: Annotated[
        int,
        Meta(ge=1, le=100),
        "Percentage of each shared limit of MQTT clients that one address or login may use: "
        "connections, connections per second, sessions, retained messages, disk space and memory. "
        "100: all, for a node behind a proxy.",
    ] = 50
    mqtt_receive_maximum: Annotated[
        int,
        Meta(ge=1, le=65_535),
        "Number of messages of one MQTT connection that may lack their acknowledgement. With "
        "more, the node does not read from the connection.",
    ] = 64
    mqtt_keep_alive_s: Annotated[
        int,
        Meta(ge=0, le=65_535),
        "Longest keep-alive time of MQTT 5 clients in seconds. 0: no limit.",
    ] = 3_600
    mqtt_session_limit: Annotated[
        int,
        Meta(ge=1, le=10_000_000),
        "Number of MQTT sessions, including those of connected clients. At the limit further "
        "clients cannot connect.",
    ] = 100_000
    mqtt_session_expiry_s: Annotated[
        int,
        Meta(ge=0, le=315_360_000),
        "Seconds for which the MQTT session of a client that is away is kept, if the client wants "
        "that. 0: not at all.",
    ] = 604_800
    mqtt_subscriptions: Annotated[
        int, Meta(ge=0, le=10_000), "Number of subscriptions of one MQTT client."
    ] = 100
    mqtt_queued_messages: Annotated[
        int,
        Meta(ge=1, le=60_000),
        "Number of messages that wait for one MQTT client. Further ones are dropped.",
    ] = 1_000
    mqtt_queued_bytes: Annotated[
        int, Meta(ge=_KIB, le=_GIB), "Bytes of the messages that wait for one MQTT client."
    ] = _MIB
    mqtt_retained_limit: Annotated[
        int, Meta(ge=0, le=1_000_000), "Number of retained MQTT messages. Further ones are refused."
    ] = 1_000
    mqtt_retained_expiry_s: Annotated[
        int,
        Meta(ge=0, le=315_360_000),
        "Seconds for which a retained MQTT message is kept. 0: until it is removed.",
    ] = 0
    mqtt_store_bytes: Annotated[
        int,
        Meta(ge=16 * _MIB, le=_MOST),
        "Disk space of MQTT sessions, waiting and retained messages, in bytes.",
    ] = _GIB
    token_lifetime_s: Annotated[
        int, Meta(ge=1, le=31_536_000), "Seconds until a login expires."
    ] = 3_600
    body_limit_bytes: Annotated[
        int,
        Meta(ge=_KIB, le=16 * _MIB),
        "Size of one event, in bytes. Larger ones are refused: 413 over HTTP, a reason code or a "
        "closed connection over MQTT.",
    ] = _MIB
    upload_limit_bytes: Annotated[
        int,
        Meta(ge=_KIB, le=256 * _MIB),
        "Size of an uploaded WebAssembly module, in bytes. Larger ones are refused.",
    ] = 10 * _MIB
    disk_reserve_bytes: Annotated[
        int,
        Meta(ge=0, le=_MOST),
        "Disk space that uploads leave free, in bytes. Uploads that need it are refused.",
    ] = 20 * _MIB
    api_hosts: Annotated[str, "Hosts that applets may call, separated by commas. Empty: none."] = ""
    mqtt_device_topics: Annotated[
        str,
        "MQTT topic filters that all clients may publish and subscribe to, separated by commas; # "
        "for all topics but those of events. Empty: none.",
    ] = ""
    # Gateways give a project 15 s to answer, so a handler's deadline must end well before.
    deadline_ms: Annotated[
        int, Meta(ge=10, le=10_000), "Milliseconds after which a handler run is ended."
    ] = 5_000
    memory_limit_bytes: Annotated[
        int,
        Meta(ge=64 * _KIB, le=4 * _GIB),
        "Memory of one handler run, in bytes. At the limit `memory.grow` fails.",
    ] = 64 * _MIB
    watchdog_s: Annotated[
        int,
        Meta(ge=1, le=600),
        "Seconds without an answer after which a process is killed and restarted.",
    ] = 10
    project_idle_s: Annotated[
        int,
        Meta(ge=1, le=604_800),
        "Seconds without an event after which a project retires: its store is written and closed. "
        "The next event starts it again.",
    ] = 300
    workers: Annotated[
        int, Meta(ge=0, le=64), "Number of processes that run projects. 0: one for each core."
    ] = 0
    project_memory_bytes: Annotated[
        int,
        Meta(ge=16 * _MIB, le=_MOST),
        "Memory of the instances that one project keeps and of its unwritten data, in bytes. A "
        "project with more is restarted.",
    ] = 512 * _MIB
    worker_memory_bytes: Annotated[
        int,
        Meta(ge=128 * _MIB, le=_MOST),
        "Memory of one worker, in bytes, without maps of files. Above it, the project that uses "
        "most is restarted, or the worker if no project uses much.",
    ] = 4 * _GIB
    project_map_bytes: Annotated[
        int,
        Meta(ge=_MIB, le=1 << 44),
        "Size of one project's store, in bytes. At the limit its events are refused with 507 "
        "until data is removed.",
    ] = _GIB
    postgres_dsn: Annotated[
        Text,
        "PostgreSQL server for the tables of projects, as "
        "postgresql://USER:PASSWORD@HOST/DATABASE. Empty: SQLite files.",
    ] = None
    sql_statement_ms: Annotated[
        int,
        Meta(ge=10, le=10_000),
        "Milliseconds that one SQL statement of an applet may take. A slower one fails.",
    ] = 1_000
    sql_result_rows: Annotated[
        int,
        Meta(ge=1, le=1_000_000),
        "Number of rows in the result of one SQL statement. A statement with more fails.",
    ] = 10_000
    sql_result_bytes: Annotated[
        int,
        Meta(ge=_KIB, le=64 * _MIB),
        "Size of the result of one SQL statement as JSON, in bytes. A statement with more fails.",
    ] = 4 * _MIB
    sql_database_bytes: Annotated[
        int,
        Meta(ge=_MIB, le=1 << 44),
        "Size of one project's SQL tables, in bytes. Statements that need more fail.",
    ] = 256 * _MIB
    history_bytes: Annotated[
        int,
        Meta(ge=64 * _KIB, le=_GIB),
        "Size of the event history that a project keeps, in bytes; 8 MiB have about 100,000 "
        "events. The oldest are removed first. Failed events are kept longer, in up to a quarter "
        "of this size in addition. At most an eighth of project_map_bytes is used.",
    ] = 8 * _MIB
    replayable_bytes: Annotated[
        int,
        Meta(ge=0, le=_GIB),
        "Size of the payloads that a project keeps so that events can be replayed, in bytes. The "
        "oldest are removed first. 0: none are kept.",
    ] = 4 * _MIB
    applet_log_bytes: Annotated[
        int,
        Meta(ge=64 * _KIB, le=_GIB),
        "Size of the log that a project's applets write, in bytes, and at most 100,000 rows. The "
        "oldest are removed first. At most an eighth of project_map_bytes is used.",
    ] = 64 * _MIB
    applet_metrics_bytes: Annotated[
        int,
        Meta(ge=64 * _KIB, le=_GIB),
        "Size of the metrics that a project's applets submit, in bytes, and at most 100,000 rows. "
        "The oldest are removed first. At most an eighth of project_map_bytes is used.",
    ] = 64 * _MIB
    dead_letter_bytes: Annotated[
        int,
        Meta(ge=64 * _KIB, le=_GIB),
        "Size of the dead letters of a project, in bytes, and at most 10,000 letters. The oldest "
        "are removed first. At most an eighth of project_map_bytes is used.",
    ] = 64 * _MIB
    registry_map_bytes: Annotated[
        int,
        Meta(ge=_MIB, le=1 << 44),
        "Size of the registry, in bytes. When 64 MiB of it are left, or a sixteenth if that is "
        "less, management commands that add something are refused.",
    ] = 4 * _GIB
    applet_versions_kept: Annotated[
        int,
        Meta(ge=1, le=1_000),
        "Number of versions of one applet that are kept for a rollback. The oldest is removed "
        "first.",
    ] = 10
    cron_jobs_limit: Annotated[
        int, Meta(ge=0, le=100_000), "Number of cron jobs of one project. Further ones are refused."
    ] = 100
    quota_projects: Annotated[Quota, _per_account("projects")] = 100
    quota_applets: Annotated[Quota, _per_account("applets")] = 1_000
    quota_modules: Annotated[Quota, _per_account("WebAssembly modules")] = 1_000
    quota_bytes: Annotated[
        Quota,
        "Size of the modules as uploaded and compiled, the key-value stores and the SQLite files "
        "of one account, in bytes. Above it, uploads and events are refused. Empty: no limit. "
        "Administrators have no limit.",
    ] = 4 * _GIB
    quota_strategies: Annotated[Quota, _per_account("strategies")] = 10_000
    quota_publishers: Annotated[Quota, _per_account("publishers")] = 10_000
    quota_databases: Annotated[Quota, _per_account("projects with SQL tables")] = 50
    quota_monitors: Annotated[Quota, _per_account("chain monitors, including finished ones,")] = (
        1_000
    )
    quota_cron_jobs: Annotated[Quota, _per_account("cron jobs")] = 1_000
    quota_abis: Annotated[Quota, _per_account("contract ABIs")] = 200
    quota_operators: Annotated[Quota, _per_account("operators")] = 100
    quota_access_keys: Annotated[
        Quota, _per_account("access keys, not counting those of publishers,")
    ] = 100
    quota_processes: Annotated[
        Quota,
        "Number of projects of one account that run at the same time. At the limit one without "
        "events makes room for the next. Empty: no limit. Administrators have no limit.",
    ] = 20
    # The default is 0, because each takes the memory of a process.
    quota_dedicated: Annotated[Quota, _per_account("projects with a worker of their own")] = 0
    cron_timezone: Annotated[str, "Time zone of cron expressions."] = "UTC"
    chains: Annotated[
        tuple[Chain, ...],
        "Blockchains for monitors and transactions: tables with id, name and endpoints "
        "(docs/reference/chains.md); in the variable a JSON list.",
    ] = ()
    default_chain: Annotated[
        ChainId,
        "Id of the chain for calls of first-generation applets, which name none. Empty: the only "
        "one of `chains`.",
    ] = None
    prover_url: Annotated[
        Text, "URL of the prover that answers /system/gen_zk_proof. Empty: applets get 501."
    ] = None
    wallet_whitelist: Annotated[
        str,
        "Addresses of the wallets that may sign in, separated by commas, or *. Empty: those that "
        "have an account.",
    ] = ""
    wallet_domains: Annotated[
        str,
        "Hosts, with their ports, in the messages that wallets sign, separated by commas, or *. "
        "Empty: the host of the request.",
    ] = ""
    wallet_nonce_required: Annotated[
        bool,
        "Wallets must sign a nonce that this node issued. False: for clients that make their own.",
    ] = True
    wallet_chain: Annotated[
        ChainId,
        "Id of the chain whose contracts may sign in as wallets. Empty: the only one of `chains`, "
        "or none if there are several.",
    ] = None
    audit_rows: Annotated[
        int,
        Meta(ge=100, le=10_000_000),
        "Number of rows in the audit log. The oldest is removed first.",
    ] = 100_000
    core_dumps: Annotated[
        bool, "For debugging: allow core files of crashed processes, with secrets."
    ] = False
    metrics: Annotated[
        Literal["loopback", "token", "off"],
        "Who may read /metrics. loopback: administrators and programs on this machine. token: "
        "administrators. off: nobody.",
    ] = "loopback"
    metrics_projects: Annotated[
        int,
        Meta(ge=0, le=1_000),
        "Number of projects with metrics of their own in /metrics, 4 KiB of memory each. The "
        "others share one set of metrics.",
    ] = 200
    otlp_endpoint: Annotated[
        Text,
        "URL of an OpenTelemetry collector for the traces of events, by OTLP over HTTP, e.g. "
        "http://127.0.0.1:4318/v1/traces. Empty: no event is traced.",
    ] = None
    otlp_headers: Annotated[
        Text,
        "Header fields of requests to `otlp_endpoint`, as NAME=VALUE, separated by commas. Empty: "
        "none.",
    ] = None
    otlp_queue_spans: Annotated[
        int,
        Meta(ge=64, le=65_536),
        "Number of spans that wait for the collector in each process. Further ones are dropped "
        "and counted.",
    ] = 2_048
    trace_ratio: Annotated[
        float,
        Meta(ge=0, le=1),
        "Share of the events that are traced if they have no `traceparent`: 0.01 is one of a "
        "hundred. An event with a `traceparent` is traced if that says so.",
    ] = 1.0
    log_level: Annotated[LogLevel, "Lowest level of the log records to write."] = "INFO"
    log_format: Annotated[Literal["text", "json"], "Format of the node's log."] = "text"

    # These are not settings, see `_ABOUT`.
    warnings: tuple[str, ...] = ()
    """Warnings of `load` for the operator, to be logged once logging is configured."""
    sources: Mapping[str, Source] = {}
    """The source of each setting that `load` found; the others have their default."""

    def __repr__(self) -> str:
        """Return every setting except the secrets."""
        shown = (name for name in self.__struct_fields__ if name not in SECRETS)
        return f"Settings({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    def changed(self, **values: Any) -> Settings:
        """Return a copy with other values of some settings; the values are not checked."""
        return structs.replace(self, **values)

    @property
    def plain_dashboard(self) -> Literal["serve", "redirect", "refuse"]:
        """The treatment of plain http on the dashboard port, see `dashboard_plain`."""
        if self.dashboard_plain is not None:
            return self.dashboard_plain
        local = self.dashboard_bind == "localhost" or is_loopback(self.dashboard_bind)
        kept = self.tls_certificate is None or (local and self.tls_client_ca is None)
        return "serve" if kept else "redirect"

    @property
    def contract_wallet_chain(self) -> Chain | None:
        """The chain whose contracts may sign in as wallets, or None."""
        if self.wallet_chain is None:
            return self.chains[0] if len(self.chains) == 1 else None
        return next((chain for chain in self.chains if chain.id == self.wallet_chain), None)

    @property
    def quotas(self) -> Quotas:
        """The default quotas of accounts."""
        return Quotas({name: getattr(self, f"quota_{name}") for name in quotas.NAMES})

    @property
    def mqtt_device_topic_list(self) -> tuple[str, ...]:
        """The filters of `mqtt_device_topics`."""
        parts = (part.strip() for part in self.mqtt_device_topics.split(","))
        return tuple(part for part in parts if part)

    @property
    def api_host_list(self) -> tuple[str, ...]:
        """The entries of `api_hosts`, in lower case."""
        return listed(self.api_hosts)

    @property
    def otlp_header_fields(self) -> dict[str, str]:
        """The fields of `otlp_headers` by their names."""
        pairs = (word.partition("=") for word in listed_as_is(self.otlp_headers))
        return {name.strip().lower(): content.strip() for name, _, content in pairs}

    @property
    def http_processes(self) -> int:
        """The number of processes that serve `http_port`.

        Without a setting it is one for every two cores that this process may use; the other
        cores are left to the projects.
        """
        return self.http_gateways or max(1, _cores() // 2)

    @property
    def worker_processes(self) -> int:
        """The number of processes that projects share."""
        return self.workers or _cores()

    @property
    def look_ahead_threads(self) -> int:
        """The number of threads that run slow handlers beside a project's own thread.

        Without a setting it is one less than the cores that this process may use, so that all
        cores can be busy.
        """
        return (self.handler_threads or _cores()) - 1


def settings_fields() -> Mapping[str, Field]:
    """The settings by name, in the order of the documentation."""
    fields = fields_of(Settings)
    return {name: field for name, field in fields.items() if name not in _ABOUT}


def _cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
