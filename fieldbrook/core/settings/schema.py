"""The node's settings: their names, types, defaults and limits.

Importing this costs 0.1 s, so the command line does it only in commands that run a node.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PrivateAttr, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from fieldbrook.core import quotas
from fieldbrook.core.clock import zone_of
from fieldbrook.core.host_port import is_loopback, read_host_port
from fieldbrook.core.quotas import Quotas
from fieldbrook.core.settings.chain import Chain
from fieldbrook.core.settings.values import (
    listed,
    split_address,
    why_no_base_url,
    why_no_device_topic,
)

ENVIRONMENT_PREFIX = "FIELDBROOK_"
SECRETS = frozenset({"mqtt_password", "chains", "postgres_dsn", "otlp_headers"})
"""Settings that are never shown, and that have no flag, because all users see command lines."""

URLS = frozenset({"prover_url", "otlp_endpoint"})
"""Settings with a URL whose user, path or query may hold a key; only its host is ever shown."""

Source = Literal["default", "file", "environment", "option"]
"""Where the value of a setting comes from."""

_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30
_MOST = 1 << 50
_ADDRESS = re.compile("0x[0-9a-f]{40}")


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


def _empty_is_none(value: object) -> object:
    return None if value == "" else value


def _not_empty(value: object) -> object:
    if value == "":
        raise ValueError("must not be empty")
    return value


Port = Annotated[int, Field(ge=1, le=65_535)]
Text = Annotated[str | None, BeforeValidator(_empty_is_none)]
File = Annotated[Path | None, BeforeValidator(_empty_is_none)]
ChainId = Annotated[
    Annotated[int, Field(ge=1, le=(1 << 63) - 1)] | None, BeforeValidator(_empty_is_none)
]
Quota = Annotated[Annotated[int, Field(ge=0, le=_MOST)] | None, BeforeValidator(_empty_is_none)]
LogLevel = Annotated[
    Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"], BeforeValidator(_upper)
]


def _quota(default: int, counted: str) -> int:
    """A field that limits what one account may have. Typed as its value, as `Field` is."""
    value: int = Field(
        default,
        description=f"Number of {counted} per account. Commands that would exceed it are refused. "
        "Empty: no limit. Administrators have no limit.",
    )
    return value


class Settings(BaseSettings):
    """All settings of a node; units are in the names.

    Create it with `load`, which explains invalid values.
    """

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX, extra="forbid", frozen=True, validate_default=True
    )
    _warnings: tuple[str, ...] = PrivateAttr(())
    _sources: Mapping[str, Source] = PrivateAttr(default_factory=dict)

    data: Annotated[Path, BeforeValidator(_not_empty)] = Field(
        Path("data"), description="Folder of all data that the node stores."
    )
    bind: str = Field(
        "0.0.0.0",  # noqa: S104
        min_length=1,
        description="Address on which the node accepts events, management requests and MQTT.",
    )
    http_port: Port = Field(8888, description="Port of events and management over HTTP.")
    event_port: Annotated[Port | None, BeforeValidator(_empty_is_none)] = Field(
        None, description="Additional port for events only, e.g. 8889. Empty: none."
    )
    mqtt_port: Port = Field(1883, description="Port of events over MQTT.")
    dashboard_bind: str = Field(
        "127.0.0.1", min_length=1, description="Address on which the node serves the dashboard."
    )
    dashboard_port: Port = Field(3000, description="Port of the dashboard.")
    dashboard_plain: Annotated[
        Literal["serve", "redirect", "refuse"] | None, BeforeValidator(_empty_is_none)
    ] = Field(
        None,
        description="What `dashboard_port` does with plain http when `tls_certificate` is set. "
        "redirect: GET and HEAD to https, all else is refused. Empty: serve if `dashboard_bind` is "
        "the loopback and `tls_client_ca` is empty, else redirect.",
    )
    dashboard_hosts: str = Field(
        "",
        description="Host names of the dashboard in addresses of browsers, separated by commas, "
        "with *. for any one label. Addresses, localhost and the host of `public_url` are always "
        "allowed. Empty: the names in `tls_certificate`.",
    )
    ui: File = Field(
        None,
        description="Folder from which the dashboard is read again for each page, for those who "
        "develop it. Empty: the dashboard of this version.",
    )
    public_url: Text = Field(
        None,
        description="Address under which clients reach the node through a proxy, e.g. "
        "https://node.example. The dashboard shows it in its examples. Empty: the host and ports "
        "of the node itself.",
    )
    cluster_bind: Text = Field(
        None,
        description="Address of this host for the other hosts of its cluster. Empty: the node runs "
        "alone.",
    )
    cluster_port: Port = Field(8886, description="Port of connections between hosts.")
    engine_port: Port = Field(
        8887, description="Port of connections between the replication engines of hosts."
    )
    join: Text = Field(
        None,
        description="ADDRESS:PORT of a host whose cluster this node joins at its first start. "
        "Empty: it founds one, if `cluster_bind` is set.",
    )
    join_token: Text = Field(
        None,
        description="Token of the cluster that this node joins, valid for an hour. Empty: none.",
    )
    host_name: Text = Field(
        None,
        description="Name of this host in its cluster, never used again after the host is "
        "removed. Empty: the name of the machine.",
    )
    silence_ms: int = Field(
        1_500,
        ge=500,
        le=10_000,
        description="A host that is silent for this long counts as gone, and others take over its "
        "projects.",
    )
    cluster_file_bytes: int = Field(
        16 * _GIB,
        ge=64 * _MIB,
        le=_MOST,
        description="Disk space for the streams of the cluster on this host.",
    )
    http_gateways: int = Field(
        0,
        ge=0,
        le=64,
        description="Number of processes that serve `http_port`. 0: one for every 2 cores.",
    )
    handler_threads: int = Field(
        0,
        ge=0,
        le=64,
        description="Number of threads that run the handlers of one project when they are slow. "
        "1: one thread only. 0: one per core.",
    )
    mqtt_broker: Text = Field(
        None,
        description="HOST:PORT of an external MQTT broker, whose client the node is. Empty: "
        "devices connect to the node itself.",
    )
    mqtt_username: Text = Field(None, description="User name of the node at the external broker.")
    mqtt_password: Text = Field(
        None, repr=False, description="Password of the node at the external broker."
    )
    mqtt_broker_tls: bool = Field(False, description="Use TLS to the external broker.")
    mqtt_broker_ca: File = Field(
        None,
        description="PEM file of the authorities that the node trusts for the external broker's "
        "certificate. Empty: those of the system.",
    )
    tls_certificate: File = Field(
        None,
        description="PEM file of the certificate and its chain for all HTTP ports and the MQTT "
        "port, which then use TLS only. Empty: no TLS.",
    )
    tls_key: File = Field(
        None, description="PEM file of the certificate's private key, not encrypted."
    )
    tls_client_ca: File = Field(
        None,
        description="PEM file of authorities. HTTP clients without a certificate of one of them "
        "are refused. Empty: clients need no certificate.",
    )
    mqtt_tls: bool = Field(
        True, description="Use TLS on `mqtt_port` too, if `tls_certificate` is set."
    )
    mqtt_client_ca: File = Field(
        None,
        description="PEM file of authorities. MQTT clients without a certificate of one of them "
        "are refused. Empty: clients need no certificate.",
    )
    mqtt_anonymous: bool = Field(
        True,
        description="Whether MQTT clients may connect without the login of a publisher or an "
        "account. Each message still needs a token.",
    )
    mqtt_logins: bool = Field(
        True,
        description="Whether MQTT clients whose user name and password belong to no publisher or "
        "account are accepted like clients without a login. False: they are refused.",
    )
    mqtt_trust_connection: bool = Field(
        True,
        description="Whether the messages of a publisher that has logged in over MQTT may lack "
        "the token in their header.",
    )
    mqtt_connections: int = Field(
        20_000, ge=1, le=1_000_000, description="Number of MQTT connections at once."
    )
    mqtt_connections_per_address: int = Field(
        10_000,
        ge=1,
        le=1_000_000,
        description="Number of MQTT connections at once from one address.",
    )
    mqtt_connects_per_s: int = Field(
        1_000,
        ge=1,
        le=1_000_000,
        description="Number of MQTT clients that may connect per second. Further ones are told to "
        "try again.",
    )
    mqtt_share_percent: int = Field(
        50,
        ge=1,
        le=100,
        description="Percentage of each shared limit of MQTT clients that one address or login may "
        "use: connections, connections per second, sessions, retained messages, disk space and "
        "memory. 100: all, for a node behind a proxy.",
    )
    mqtt_receive_maximum: int = Field(
        64,
        ge=1,
        le=65_535,
        description="Number of messages of one MQTT connection that may lack their "
        "acknowledgement. With more, the node does not read from the connection.",
    )
    mqtt_keep_alive_s: int = Field(
        3_600,
        ge=0,
        le=65_535,
        description="Longest keep-alive time of MQTT 5 clients in seconds. 0: no limit.",
    )
    mqtt_session_limit: int = Field(
        100_000,
        ge=1,
        le=10_000_000,
        description="Number of MQTT sessions, including those of connected clients. At the limit "
        "further clients cannot connect.",
    )
    mqtt_session_expiry_s: int = Field(
        604_800,
        ge=0,
        le=315_360_000,
        description="Seconds for which the MQTT session of a client that is away is kept, if the "
        "client wants that. 0: not at all.",
    )
    mqtt_subscriptions: int = Field(
        100, ge=0, le=10_000, description="Number of subscriptions of one MQTT client."
    )
    mqtt_queued_messages: int = Field(
        1_000,
        ge=1,
        le=60_000,
        description="Number of messages that wait for one MQTT client. Further ones are dropped.",
    )
    mqtt_queued_bytes: int = Field(
        _MIB,
        ge=_KIB,
        le=_GIB,
        description="Bytes of the messages that wait for one MQTT client.",
    )
    mqtt_retained_limit: int = Field(
        1_000,
        ge=0,
        le=1_000_000,
        description="Number of retained MQTT messages. Further ones are refused.",
    )
    mqtt_retained_expiry_s: int = Field(
        0,
        ge=0,
        le=315_360_000,
        description="Seconds for which a retained MQTT message is kept. 0: until it is removed.",
    )
    mqtt_store_bytes: int = Field(
        _GIB,
        ge=16 * _MIB,
        le=_MOST,
        description="Disk space of MQTT sessions, waiting and retained messages, in bytes.",
    )
    token_lifetime_s: int = Field(
        3_600, ge=1, le=31_536_000, description="Seconds until a login expires."
    )
    body_limit_bytes: int = Field(
        _MIB,
        ge=_KIB,
        le=16 * _MIB,
        description="Size of one event, in bytes. Larger ones are refused: 413 over HTTP, a reason "
        "code or a closed connection over MQTT.",
    )
    upload_limit_bytes: int = Field(
        10 * _MIB,
        ge=_KIB,
        le=256 * _MIB,
        description="Size of an uploaded WebAssembly module, in bytes. Larger ones are refused.",
    )
    disk_reserve_bytes: int = Field(
        20 * _MIB,
        ge=0,
        le=_MOST,
        description="Disk space that uploads leave free, in bytes. Uploads that need it are "
        "refused.",
    )
    api_hosts: str = Field(
        "", description="Hosts that applets may call, separated by commas. Empty: none."
    )
    mqtt_device_topics: str = Field(
        "",
        description="MQTT topic filters that all clients may publish and subscribe to, separated "
        "by commas; # for all topics but those of events. Empty: none.",
    )
    # Gateways give a project 15 s to answer: a handler's deadline must end well before.
    deadline_ms: int = Field(
        5_000, ge=10, le=10_000, description="Milliseconds after which a handler run is ended."
    )
    memory_limit_bytes: int = Field(
        64 * _MIB,
        ge=64 * _KIB,
        le=4 * _GIB,
        description="Memory of one handler run, in bytes. At the limit `memory.grow` fails.",
    )
    watchdog_s: int = Field(
        10,
        ge=1,
        le=600,
        description="Seconds without an answer after which a process is killed and restarted.",
    )
    project_idle_s: int = Field(
        300,
        ge=1,
        le=604_800,
        description="Seconds without an event after which a project retires: its store is written "
        "and closed. The next event starts it again.",
    )
    workers: int = Field(
        0,
        ge=0,
        le=64,
        description="Number of processes that run projects. 0: one for each core.",
    )
    project_memory_bytes: int = Field(
        512 * _MIB,
        ge=16 * _MIB,
        le=_MOST,
        description="Memory of the instances that one project keeps and of its unwritten data, in "
        "bytes. A project with more is restarted.",
    )
    worker_memory_bytes: int = Field(
        4 * _GIB,
        ge=128 * _MIB,
        le=_MOST,
        description="Memory of one worker, in bytes, without maps of files. Above it, the "
        "project that uses most is restarted, or the worker if no project uses much.",
    )
    project_map_bytes: int = Field(
        _GIB,
        ge=_MIB,
        le=1 << 44,
        description="Size of one project's store, in bytes. At the limit its events are refused "
        "with 507 until data is removed.",
    )
    postgres_dsn: Text = Field(
        None,
        repr=False,
        description="PostgreSQL server for the tables of projects, as "
        "postgresql://USER:PASSWORD@HOST/DATABASE. Empty: SQLite files.",
    )
    sql_statement_ms: int = Field(
        1_000,
        ge=10,
        le=10_000,
        description="Milliseconds that one SQL statement of an applet may take. A slower one "
        "fails.",
    )
    sql_result_rows: int = Field(
        10_000,
        ge=1,
        le=1_000_000,
        description="Number of rows in the result of one SQL statement. A statement with more "
        "fails.",
    )
    sql_result_bytes: int = Field(
        4 * _MIB,
        ge=_KIB,
        le=64 * _MIB,
        description="Size of the result of one SQL statement as JSON, in bytes. A statement with "
        "more fails.",
    )
    sql_database_bytes: int = Field(
        256 * _MIB,
        ge=_MIB,
        le=1 << 44,
        description="Size of one project's SQL tables, in bytes. Statements that need more fail.",
    )
    history_bytes: int = Field(
        8 * _MIB,
        ge=64 * _KIB,
        le=_GIB,
        description="Size of the event history that a project keeps, in bytes; 8 MiB have about "
        "100,000 events. The oldest are removed first. Failed events are kept longer, in up to a "
        "quarter of this size in addition. At most an eighth of project_map_bytes is used.",
    )
    replayable_bytes: int = Field(
        4 * _MIB,
        ge=0,
        le=_GIB,
        description="Size of the payloads that a project keeps so that events can be replayed, in "
        "bytes. The oldest are removed first. 0: none are kept.",
    )
    applet_log_bytes: int = Field(
        64 * _MIB,
        ge=64 * _KIB,
        le=_GIB,
        description="Size of the log that a project's applets write, in bytes, and at most 100,000 "
        "rows. The oldest are removed first. At most an eighth of project_map_bytes is used.",
    )
    applet_metrics_bytes: int = Field(
        64 * _MIB,
        ge=64 * _KIB,
        le=_GIB,
        description="Size of the metrics that a project's applets submit, in bytes, and at most "
        "100,000 rows. The oldest are removed first. At most an eighth of project_map_bytes is "
        "used.",
    )
    dead_letter_bytes: int = Field(
        64 * _MIB,
        ge=64 * _KIB,
        le=_GIB,
        description="Size of the dead letters of a project, in bytes, and at most 10,000 letters. "
        "The oldest are removed first. At most an eighth of project_map_bytes is used.",
    )
    registry_map_bytes: int = Field(
        4 * _GIB,
        ge=_MIB,
        le=1 << 44,
        description="Size of the registry, in bytes. At the limit management commands are refused.",
    )
    applet_versions_kept: int = Field(
        10,
        ge=1,
        le=1_000,
        description="Number of versions of one applet that are kept for a rollback. The oldest is "
        "removed first.",
    )
    cron_jobs_limit: int = Field(
        100,
        ge=0,
        le=100_000,
        description="Number of cron jobs of one project. Further ones are refused.",
    )
    quota_projects: Quota = _quota(100, "projects")
    quota_applets: Quota = _quota(1_000, "applets")
    quota_modules: Quota = _quota(1_000, "WebAssembly modules")
    quota_bytes: Quota = Field(
        4 * _GIB,
        description="Size of the modules as uploaded and compiled, the key-value stores and the "
        "SQLite files of one account, in bytes. Above it, uploads and events are refused. Empty: "
        "no limit. Administrators have no limit.",
    )
    quota_strategies: Quota = _quota(10_000, "strategies")
    quota_publishers: Quota = _quota(10_000, "publishers")
    quota_databases: Quota = _quota(50, "projects with SQL tables")
    quota_monitors: Quota = _quota(1_000, "chain monitors, including finished ones,")
    quota_cron_jobs: Quota = _quota(1_000, "cron jobs")
    quota_abis: Quota = _quota(200, "contract ABIs")
    quota_operators: Quota = _quota(100, "operators")
    quota_access_keys: Quota = _quota(100, "access keys, not counting those of publishers,")
    quota_processes: Quota = Field(
        20,
        description="Number of projects of one account that run at the same time. At the limit one "
        "without events makes room for the next. Empty: no limit. Administrators have no limit.",
    )
    # None by default: each takes the memory of a process, whatever its account pays for.
    quota_dedicated: Quota = _quota(0, "projects with a worker of their own")
    cron_timezone: str = Field("UTC", description="Time zone of cron expressions.")
    chains: tuple[Chain, ...] = Field(
        (),
        repr=False,
        description="Blockchains for monitors and transactions: tables with id, name and endpoints "
        "(docs/reference/chains.md); in the variable a JSON list.",
    )
    default_chain: ChainId = Field(
        None,
        description="Id of the chain for calls of first-generation applets, which name none. "
        "Empty: the only one of `chains`.",
    )
    prover_url: Text = Field(
        None,
        description="URL of the prover that answers /system/gen_zk_proof. Empty: applets get 501.",
    )
    wallet_whitelist: str = Field(
        "",
        description="Addresses of the wallets that may sign in, separated by commas, or *. Empty: "
        "those that have an account.",
    )
    wallet_domains: str = Field(
        "",
        description="Hosts, with their ports, in the messages that wallets sign, separated by "
        "commas, or *. Empty: the host of the request.",
    )
    wallet_nonce_required: bool = Field(
        True,
        description="Wallets must sign a nonce that this node issued. False: for clients that make "
        "their own.",
    )
    wallet_chain: ChainId = Field(
        None,
        description="Id of the chain whose contracts may sign in as wallets. Empty: the only one "
        "of `chains`, or none if there are several.",
    )
    audit_rows: int = Field(
        100_000,
        ge=100,
        le=10_000_000,
        description="Number of rows in the audit log. The oldest is removed first.",
    )
    core_dumps: bool = Field(
        False, description="For debugging: allow core files of crashed processes, with secrets."
    )
    metrics: Literal["loopback", "token", "off"] = Field(
        "loopback",
        description="Who may read /metrics. loopback: administrators and programs on this "
        "machine. token: administrators. off: nobody.",
    )
    metrics_projects: int = Field(
        200,
        ge=0,
        le=1_000,
        description="Number of projects with metrics of their own in /metrics, 4 KiB of memory "
        "each. The others share one set of metrics.",
    )
    otlp_endpoint: Text = Field(
        None,
        description="URL of an OpenTelemetry collector for the traces of events, by OTLP over "
        "HTTP, e.g. http://127.0.0.1:4318/v1/traces. Empty: no event is traced.",
    )
    otlp_headers: Text = Field(
        None,
        repr=False,
        description="Header fields of requests to `otlp_endpoint`, as NAME=VALUE, separated by "
        "commas. Empty: none.",
    )
    otlp_queue_spans: int = Field(
        2_048,
        ge=64,
        le=65_536,
        description="Number of spans that wait for the collector in each process. Further ones are "
        "dropped and counted.",
    )
    trace_ratio: float = Field(
        1.0,
        ge=0,
        le=1,
        description="Share of the events that are traced if they have no `traceparent`: 0.01 is "
        "one of a hundred. An event with a `traceparent` is traced if that says so.",
    )
    log_level: LogLevel = Field("INFO", description="Lowest level of the log records to write.")
    log_format: Literal["text", "json"] = Field("text", description="Format of the node's log.")

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings of `load` for the operator, to be logged once logging is configured."""
        return self._warnings

    @property
    def sources(self) -> Mapping[str, Source]:
        """The source of each setting that `load` found; the others have their default."""
        return self._sources

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

    @field_validator("wallet_whitelist")
    @classmethod
    def _are_addresses(cls, value: str) -> str:
        if not all(word == "*" or _ADDRESS.fullmatch(word) for word in listed(value)):
            raise ValueError("must be addresses (0x and 40 hexadecimal digits), or *")
        return value

    @field_validator("public_url")
    @classmethod
    def _is_public_url(cls, value: str | None) -> str | None:
        if value is not None and (reason := why_no_base_url(value)):
            raise ValueError(reason)
        return value and value.rstrip("/")

    @field_validator("wallet_domains")
    @classmethod
    def _are_hosts(cls, value: str) -> str:
        for word in listed(value):
            if word != "*" and read_host_port(word) is None:
                raise ValueError(
                    f"{word!r}: must be a host with its port where that is not 80 or 443, "
                    "e.g. studio.example or localhost:3000, or *"
                )
        return value

    @field_validator("dashboard_hosts")
    @classmethod
    def _are_host_names(cls, value: str) -> str:
        for word in listed(value):
            found = read_host_port(word.removeprefix("*."))
            if found is None or found.host != word.removeprefix("*."):
                raise ValueError(f"{word!r}: must be a host name without a port")
        return value

    @field_validator("mqtt_device_topics")
    @classmethod
    def _are_topic_filters(cls, value: str, info: ValidationInfo) -> str:
        filters = [part.strip() for part in value.split(",") if part.strip()]
        for topic_filter in filters:
            reason = why_no_device_topic(topic_filter)
            if reason:
                raise ValueError(f"{topic_filter!r}: {reason}")
        if filters and info.data.get("mqtt_broker") is not None:
            raise ValueError(
                "applies to the node's own port only; an external broker (mqtt_broker) has its own "
                "access list"
            )
        return value

    @field_validator("mqtt_broker")
    @classmethod
    def _is_host_and_port(cls, value: str | None) -> str | None:
        if value is not None:
            split_address(value)
        return value

    @field_validator("postgres_dsn")
    @classmethod
    def _is_postgres(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if not value.startswith(("postgres://", "postgresql://")):
            raise ValueError("must be like postgresql://USER:PASSWORD@HOST/DATABASE")
        if importlib.util.find_spec("psycopg") is None:
            raise ValueError("needs a library: pip install 'fieldbrook[postgres]'")
        return value

    @field_validator("otlp_endpoint")
    @classmethod
    def _is_collector(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if not value.startswith(("http://", "https://")):
            raise ValueError("must be like http://127.0.0.1:4318/v1/traces")
        if importlib.util.find_spec("opentelemetry") is None:
            raise ValueError("needs a library: pip install 'fieldbrook[otel]'")
        return value

    @field_validator("otlp_headers")
    @classmethod
    def _are_header_fields(cls, value: str | None) -> str | None:
        for word in listed_as_is(value):
            name, is_pair, content = word.partition("=")
            if not (name.strip().isascii() and is_pair and content.isprintable()):
                raise ValueError("must be NAME=VALUE, separated by commas")
        return value

    @field_validator("cron_timezone")
    @classmethod
    def _is_zone(cls, value: str) -> str:
        zone_of(value)
        return value

    @field_validator("default_chain", "wallet_chain")
    @classmethod
    def _is_of_chains(cls, value: int | None, info: ValidationInfo) -> int | None:
        known = [chain.id for chain in info.data.get("chains", ())]
        if value is not None and value not in known:
            raise ValueError("must be the id of one of the chains")
        return value

    @field_validator("chains")
    @classmethod
    def _are_distinct(cls, value: tuple[Chain, ...]) -> tuple[Chain, ...]:
        if value and importlib.util.find_spec("web3") is None:
            raise ValueError("needs libraries: pip install 'fieldbrook[chains]'")
        if len({chain.id for chain in value}) < len(value):
            raise ValueError("each chain must have an id of its own")
        if len({chain.name for chain in value}) < len(value):
            raise ValueError("each chain must have a name of its own")
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Use no sources of pydantic: `load` merges them itself, so that errors name the source."""
        return (init_settings,)


def listed_as_is(value: str | None) -> list[str]:
    """The words of a list that is separated by commas, in their own case."""
    return [word.strip() for word in (value or "").split(",") if word.strip()]


def _cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
