"""The node's settings: flags, then `FIELDBROOK_*` variables, then a TOML file, then defaults.

Importing this costs 0.1 s, so the command line does it only in commands that run a node.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from pydantic_settings import SettingsError as SourceError

from fieldbrook.core import networks, quotas
from fieldbrook.core.clock import zone_of
from fieldbrook.core.errors import SettingsError
from fieldbrook.core.host_port import read_host_port
from fieldbrook.core.quotas import Quotas

ENVIRONMENT_PREFIX = "FIELDBROOK_"
CONFIG_VARIABLE = "FIELDBROOK_CONFIG"
# Holds the number of an open file descriptor; this process reads its secrets from it, once.
SECRETS_VARIABLE = "FIELDBROOK_SECRETS_FD"
_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30
_ADDRESS = re.compile("0x[0-9a-f]{40}")
_SECRETS = frozenset({"mqtt_password", "chains", "postgres_dsn"})
_CHAINS_FORM = (
    'must be a list like [{"id": 4690, "name": "iotex-testnet", "endpoint": "https://..."}]'
)


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


def _empty_is_none(value: object) -> object:
    return None if value == "" else value


_MOST = 1 << 50
_QUOTA = "of one account, unless it is an administrator's; empty: no limit"

Quota = Annotated[int | None, BeforeValidator(_empty_is_none)]
Port = Annotated[int, Field(ge=1, le=65_535)]
Text = Annotated[str | None, BeforeValidator(_empty_is_none)]
File = Annotated[Path | None, BeforeValidator(_empty_is_none)]
LogLevel = Annotated[
    Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"], BeforeValidator(_upper)
]


HttpOrWebSocket = Annotated[str, Field(pattern=r"^(https?|wss?)://[^\s]+$")]


class Chain(BaseModel):
    """A chain that the node uses. Its endpoint URLs may hold keys and are never shown.

    When the name or the id is one of `networks`, the other one and the defaults of
    `confirmations` and `poll_ms` come from there. `endpoints` are tried in this order;
    `endpoint` is another way to write a single one. `websocket` only announces new blocks, so
    that the node sees them before the next poll. Transactions pay at most `max_fee_per_gas`
    wei per gas. A transaction that no block has included for `reprice_s` seconds is signed
    again with higher fees.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: int = Field(ge=1, lt=1 << 63)
    name: str = Field(min_length=1, max_length=64)
    endpoints: tuple[HttpOrWebSocket, ...] = Field(min_length=1, max_length=16, repr=False)
    websocket: str | None = Field(None, pattern=r"^wss?://[^\s]+$", repr=False)
    confirmations: int = Field(0, ge=0, le=10_000)
    poll_ms: int = Field(networks.DEFAULT_POLL_MS, ge=50, le=3_600_000)
    max_fee_per_gas: int = Field(500_000_000_000, ge=1, lt=1 << 63)
    reprice_s: int = Field(90, ge=1, le=86_400)

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        given = dict(value)
        if "endpoint" in given and "endpoints" not in given:
            given["endpoints"] = [given.pop("endpoint")]
        try:
            if given.get("name") in networks.NOT_EVM:
                raise ValueError(f"{given['name']} is no EVM chain: the node cannot talk to it")
            network = networks.BY_NAME.get(given.get("name", "")) or networks.BY_ID.get(
                given.get("id", 0)
            )
        except TypeError:  # an unhashable name or id; the validation of the field reports it
            return given
        if network is None:
            return given
        if given.get("id", network.chain_id) != network.chain_id:
            raise ValueError(f"the chain {network.name} has the id {network.chain_id}")
        return {
            "id": network.chain_id,
            "name": network.name,
            "confirmations": network.confirmations,
            "poll_ms": network.poll_ms,
            **given,
        }


class Settings(BaseSettings):
    """All settings of a node; units are in the names.

    Create it with `load`, which explains invalid values.
    """

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX, extra="forbid", frozen=True, validate_default=True
    )

    data: Path = Field(Path("data"), description="folder of everything the node keeps")
    bind: str = Field("0.0.0.0", min_length=1, description="address of events and MQTT")  # noqa: S104
    http_port: Port = Field(8888, description="events and management")
    event_port: Annotated[Port | None, BeforeValidator(_empty_is_none)] = Field(
        None, description="a second port for events alone, e.g. 8889"
    )
    mqtt_port: Port = Field(1883, description="the embedded broker")
    dashboard_bind: str = Field("127.0.0.1", min_length=1, description="address of the dashboard")
    dashboard_port: Port = Field(3000, description="the dashboard")
    http_gateways: int = Field(
        0, ge=0, le=64, description="processes that serve http_port; 0 = one for every two cores"
    )
    shards: int = Field(
        0,
        ge=0,
        le=64,
        description="processes that run the handlers of one project where they are heavy; "
        "1 = its own alone, 0 = as many as there are cores",
    )
    mqtt_broker: Text = Field(None, description="host:port of an external broker")
    mqtt_username: Text = Field(None, description="at the external broker")
    mqtt_password: Text = Field(None, repr=False, description="at the external broker")
    mqtt_broker_tls: bool = Field(False, description="speak TLS to the external broker")
    mqtt_broker_ca: File = Field(
        None,
        description="PEM file of the authorities that may vouch for the external broker; "
        "empty: those the system trusts",
    )
    tls_certificate: File = Field(
        None,
        description="PEM file of the certificate, and its chain, that every HTTP port and the "
        "embedded broker show; they then speak TLS alone",
    )
    tls_key: File = Field(None, description="PEM file of the certificate's key, not encrypted")
    tls_client_ca: File = Field(
        None,
        description="PEM file of authorities: HTTP clients must show a certificate of one of them",
    )
    mqtt_tls: bool = Field(
        True, description="the embedded broker speaks TLS, too, when there is a certificate"
    )
    mqtt_memory_bytes: int = Field(
        2 << 30,
        ge=256 << 20,
        le=1 << 40,
        description="memory of the embedded broker; at more it ends and is started again",
    )
    mqtt_logins: bool = Field(
        True,
        description="the embedded broker lets in devices that send a user name and a password, "
        "whatever they are; otherwise only those that send none",
    )
    mqtt_sync: Literal["1s", "always"] = Field(
        "1s",
        description="when the embedded broker has the disk sync what it stores: every second, "
        "or before each acknowledgement",
    )
    mqtt_retained_limit: int = Field(
        1_000,
        ge=0,
        le=1_000_000,
        description="retained messages that the embedded broker keeps; those beyond it are "
        "handled and not retained",
    )
    mqtt_qos2_limit: int = Field(
        10_000,
        ge=0,
        le=1_000_000,
        description="QoS 2 messages that the embedded broker keeps for devices until they release "
        "them; at more it ends the connection",
    )
    mqtt_session_limit: int = Field(
        100_000,
        ge=1,
        le=10_000_000,
        description="sessions at the embedded broker, those of connected devices included; a "
        "device beyond it cannot connect",
    )
    mqtt_client_ca: File = Field(
        None,
        description="PEM file of authorities: clients of the embedded broker must show a "
        "certificate of one of them",
    )
    token_lifetime_s: int = Field(3_600, ge=1, le=31_536_000, description="of a login")
    body_limit_bytes: int = Field(_MIB, ge=_KIB, le=16 * _MIB, description="of one event")
    upload_limit_bytes: int = Field(10 * _MIB, ge=_KIB, le=256 * _MIB, description="of a module")
    disk_reserve_bytes: int = Field(
        20 * _MIB, ge=0, le=1 << 50, description="of the disk that uploads leave free"
    )
    api_hosts: str = Field("", description="hosts that applets may call, separated by commas")
    mqtt_device_topics: str = Field(
        "", description="MQTT topic filters that devices may subscribe to, separated by commas"
    )
    # Gateways give a project 15 s to answer: a handler's deadline must end well before.
    deadline_ms: int = Field(5_000, ge=10, le=10_000, description="of one handler run")
    memory_limit_bytes: int = Field(
        64 * _MIB, ge=64 * _KIB, le=4 * _GIB, description="of one handler run"
    )
    watchdog_s: int = Field(
        10, ge=1, le=600, description="of silence after which a process is killed and started again"
    )
    idle_s: int = Field(
        300, ge=1, le=604_800, description="after which a project's process is stopped"
    )
    spare_projects: int = Field(
        1, ge=0, le=64, description="processes kept ready for projects that start"
    )
    project_map_bytes: int = Field(
        _GIB, ge=_MIB, le=1 << 44, description="that one project's store may grow to"
    )
    postgres_dsn: Text = Field(
        None,
        repr=False,
        description="server for the tables of projects, postgresql://USER:PASSWORD@HOST/DATABASE; "
        "without one they are SQLite files",
    )
    sql_statement_ms: int = Field(
        1_000, ge=10, le=10_000, description="that one SQL statement of an applet may take"
    )
    sql_rows: int = Field(10_000, ge=1, le=1_000_000, description="that one SQL statement may give")
    sql_result_bytes: int = Field(
        4 * _MIB, ge=_KIB, le=64 * _MIB, description="that one SQL statement may give, as JSON"
    )
    sql_database_bytes: int = Field(
        256 * _MIB, ge=_MIB, le=1 << 44, description="that one project's tables may grow to"
    )
    replayable_bytes: int = Field(
        4 * _MIB, ge=0, le=_GIB, description="of payloads a project keeps to replay events; 0: none"
    )
    registry_map_bytes: int = Field(
        4 * _GIB, ge=_MIB, le=1 << 44, description="that the registry may grow to"
    )
    applet_versions_kept: int = Field(
        10, ge=1, le=1_000, description="modules of one applet that one can go back to"
    )
    cron_jobs_limit: int = Field(100, ge=0, le=100_000, description="cron jobs of one project")
    quota_projects: Quota = Field(100, ge=0, le=_MOST, description=f"projects {_QUOTA}")
    quota_applets: Quota = Field(1_000, ge=0, le=_MOST, description=f"applets {_QUOTA}")
    quota_modules: Quota = Field(1_000, ge=0, le=_MOST, description=f"modules {_QUOTA}")
    quota_bytes: Quota = Field(
        4 * _GIB,
        ge=0,
        le=_MOST,
        description=f"bytes in modules, key-value stores and SQLite files {_QUOTA}",
    )
    quota_strategies: Quota = Field(10_000, ge=0, le=_MOST, description=f"strategies {_QUOTA}")
    quota_publishers: Quota = Field(10_000, ge=0, le=_MOST, description=f"publishers {_QUOTA}")
    quota_databases: Quota = Field(
        50, ge=0, le=_MOST, description=f"projects with SQL tables {_QUOTA}"
    )
    quota_monitors: Quota = Field(
        1_000, ge=0, le=_MOST, description=f"monitors (finished ones count) {_QUOTA}"
    )
    quota_cron_jobs: Quota = Field(1_000, ge=0, le=_MOST, description=f"cron jobs {_QUOTA}")
    quota_abis: Quota = Field(200, ge=0, le=_MOST, description=f"contract ABIs {_QUOTA}")
    quota_operators: Quota = Field(100, ge=0, le=_MOST, description=f"operators {_QUOTA}")
    quota_access_keys: Quota = Field(
        100, ge=0, le=_MOST, description=f"access keys (those of publishers do not count) {_QUOTA}"
    )
    quota_processes: Quota = Field(20, ge=0, le=_MOST, description=f"running projects {_QUOTA}")
    cron_timezone: str = Field("UTC", description="zone that cron expressions are meant in")
    chains: tuple[Chain, ...] = Field(
        (),
        repr=False,
        description="chains that monitors watch and transactions go to, each a table of id, name "
        "and endpoints, see docs/reference/chains.md; in the variable a JSON list",
    )
    default_chain: Annotated[int | None, BeforeValidator(_empty_is_none)] = Field(
        None,
        ge=1,
        le=(1 << 63) - 1,
        description="id of the chain that calls of first-generation applets mean, which name none; "
        "empty: the only one of `chains`",
    )
    prover: Text = Field(None, description="URL that /system/gen_zk_proof is posted to")
    wallet_whitelist: str = Field(
        "",
        description="addresses that may sign in with their wallet, separated by commas, or *; "
        "empty: those that have an account",
    )
    wallet_domains: str = Field(
        "",
        description="hosts, with their ports, that wallets may sign in for, separated by commas; "
        "*: any; empty: the Host of the request",
    )
    wallet_nonce_required: bool = Field(
        True,
        description="a wallet signs a nonce of this node; false for clients that make their own",
    )
    wallet_chain: Annotated[int | None, BeforeValidator(_empty_is_none)] = Field(
        None,
        ge=1,
        le=(1 << 63) - 1,
        description="id of the chain whose contracts may sign in as wallets; empty: the only one "
        "of `chains`, none when there are several",
    )
    audit_rows: int = Field(
        100_000, ge=100, le=10_000_000, description="rows of the audit log that are kept"
    )
    core_dumps: bool = Field(
        False, description="for debugging: processes may leave core files, which hold secrets"
    )
    metrics: Literal["loopback", "token", "off"] = Field(
        "loopback",
        description="who may read /metrics: whoever asks from the machine itself and "
        "administrators, administrators alone, or nobody",
    )
    metrics_projects: int = Field(
        0,
        ge=0,
        le=1_000,
        description="projects that have figures of their own in /metrics; the rest share theirs",
    )
    log_level: LogLevel = Field("INFO", description="least important records that are logged")
    log_format: Literal["text", "json"] = Field("text", description="of the node's own log")

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
    def api_host_list(self) -> tuple[str, ...]:
        """The entries of `api_hosts`, in lower case."""
        return listed(self.api_hosts)

    @property
    def http_processes(self) -> int:
        """The number of processes that serve `http_port`.

        Without a setting it is one for every two cores that this process may use; the other
        cores are left to the projects.
        """
        return self.http_gateways or max(1, _cores() // 2)

    @property
    def shard_processes(self) -> int:
        """The number of processes that may run a project's handlers in addition to its own.

        Without a setting it is one less than the cores that this process may use, so that all
        cores can be busy.
        """
        return (self.shards or _cores()) - 1

    @field_validator("wallet_whitelist")
    @classmethod
    def _are_addresses(cls, value: str) -> str:
        if not all(word == "*" or _ADDRESS.fullmatch(word) for word in listed(value)):
            raise ValueError("must be addresses (0x and 40 hexadecimal digits), or *")
        return value

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

    @field_validator("mqtt_device_topics")
    @classmethod
    def _are_topic_filters(cls, value: str, info: ValidationInfo) -> str:
        filters = [part.strip() for part in value.split(",") if part.strip()]
        for topic_filter in filters:
            reason = _why_no_device_topic(topic_filter)
            if reason:
                raise ValueError(f"{topic_filter!r}: {reason}")
        if filters and info.data.get("mqtt_broker") is not None:
            raise ValueError(
                "is for the embedded broker: at the external one (mqtt_broker) its own access "
                "list says what devices may subscribe to"
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


# Characters that are special in NATS subjects, or that NATS refuses.
_NOT_IN_TOPICS = frozenset('."*>\\\x7f') | {chr(code) for code in range(32)}


def _why_no_device_topic(topic_filter: str) -> str:
    """The reason why devices must not subscribe to a topic filter; "" when they may."""
    levels = topic_filter.split("/")
    if any(letter in _NOT_IN_TOPICS or letter.isspace() for letter in topic_filter):
        return "a topic filter here has no blank, dot, quote, backslash, * or >"
    if "" in levels or levels[0].startswith("$"):
        return "a topic filter here has no empty level and does not begin with $"
    if any(("+" in level or "#" in level) and len(level) > 1 for level in levels):
        return "+ and # stand for whole levels"
    if "#" in levels[:-1]:
        return "# can be the last level alone"
    if levels in (["#"], ["+"], ["+", "#"]):
        return (
            "would show devices every project's events and the tokens in them; name topics, "
            "such as commands or commands/#"
        )
    if levels[1:2] == ["push"]:
        return "below PROJECT/push events enter: no device may read them"
    return ""


def _cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def load(*, config: Path | None = None, **given: Any) -> Settings:
    """Load the settings of this process from all sources.

    Args:
        config: a TOML file; by default the one that `FIELDBROOK_CONFIG` names, else none.
        given: values from the command line; None means not given.

    Raises:
        SettingsError: the file cannot be read or has an unknown key, or a value is not
            allowed. The reason names the setting, the value, its source and what is allowed.
    """
    flags = {name: value for name, value in given.items() if value is not None}
    environment = {**_read_environment(), **_read_secrets()}
    file_path = config or _config_from_environment()
    file = {} if file_path is None else _read_file(file_path)
    merged = {**file, **environment, **flags}

    def source(name: str) -> str:
        if name in flags:
            return "--" + name.replace("_", "-")
        if name in environment:
            return ENVIRONMENT_PREFIX + name.upper()
        return str(file_path) if name in file else "the default"

    try:
        return Settings(**merged)
    except ValidationError as error:
        reasons = (_explain(detail, merged, source(_name(detail))) for detail in error.errors())
        raise SettingsError(reason="; ".join(reasons)) from None


def as_environment(settings: Settings) -> dict[str, str]:
    """The environment variables from which `load` in another process makes the same settings.

    `data` becomes absolute. Settings without a value become empty variables, so that
    neither an inherited variable nor a file can fill them. Secrets are also left empty: the
    other process gets them through `secrets_of`.
    """
    values: Mapping[str, object] = {
        **settings.model_dump(),
        "data": settings.data.absolute(),
        **dict.fromkeys(_SECRETS),
        "chains": "[]",
    }
    return {
        ENVIRONMENT_PREFIX + name.upper(): "" if value is None else str(value)
        for name, value in values.items()
    }


def secrets_of(settings: Settings) -> bytes:
    """The secrets as JSON, for the descriptor that `SECRETS_VARIABLE` names in another process."""
    return json.dumps(settings.model_dump(mode="json", include=set(_SECRETS))).encode()


def forget_secrets() -> None:
    """Remove the secrets from this process's environment, so that no child inherits them."""
    for name in _SECRETS:
        os.environ.pop(ENVIRONMENT_PREFIX + name.upper(), None)


def listed(text: str) -> tuple[str, ...]:
    """The words of a list separated by commas, in lower case."""
    return tuple(part.strip().lower() for part in text.split(",") if part.strip())


def split_address(address: str) -> tuple[str, int]:
    """Split `host:port` into host and port; an IPv6 host must be in brackets.

    Raises:
        ValueError: the text is not of that form.
    """
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not host or (":" in host and not bracketed):
        raise ValueError("must be host:port, e.g. broker.example:1883 or [::1]:1883")
    if not (port.isascii() and port.isdecimal() and 1 <= int(port) <= 65_535):
        raise ValueError("must be host:port with a port of 1 to 65535")
    return host[1:-1] if bracketed else host, int(port)


def _read_environment() -> dict[str, Any]:
    try:
        return EnvSettingsSource(Settings)()
    except SourceError:
        reason = f"{ENVIRONMENT_PREFIX}CHAINS is not JSON: {_CHAINS_FORM}"
        raise SettingsError(reason=reason) from None


def _read_secrets() -> dict[str, Any]:
    number = os.environ.pop(SECRETS_VARIABLE, None)
    if number is None:
        return {}
    try:
        with os.fdopen(int(number), "rb") as file:
            secrets: dict[str, Any] = json.loads(file.read())
    except (OSError, ValueError):
        raise SettingsError(reason=f"{SECRETS_VARIABLE} is not for you to set") from None
    return {name: value for name, value in secrets.items() if name in _SECRETS}


def _config_from_environment() -> Path | None:
    named = os.environ.get(CONFIG_VARIABLE)
    return Path(named) if named else None


def _read_file(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SettingsError(reason=f"settings file {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # also a number that is too long
        raise SettingsError(reason=f"settings file {path} is not TOML: {error}") from None
    unknown = sorted(set(values) - set(Settings.model_fields))
    if unknown:
        known = ", ".join(sorted(Settings.model_fields))
        raise SettingsError(
            reason=f"settings file {path}: unknown setting {', '.join(unknown)}; known are {known}"
        )
    return values


def _name(detail: ErrorDetails) -> str:
    return str(detail["loc"][0]) if detail["loc"] else "settings"


def _explain(detail: ErrorDetails, values: Mapping[str, Any], source: str) -> str:
    name = _name(detail)
    value = "(not shown)" if name in _SECRETS else repr(values.get(name))
    return f"{name} = {value} (from {source}): {allowed(name, detail['msg'])}"


def allowed(name: str, otherwise: str = "") -> str:
    """Describe the values that a setting accepts; `otherwise` when its type says nothing more."""
    schema = Settings.model_json_schema()["properties"].get(name)
    if schema is None:
        return f"there is no such setting; there are {', '.join(sorted(Settings.model_fields))}"
    if "enum" in schema:
        return f"must be one of {', '.join(schema['enum'])}"
    if name == "chains":
        reason = otherwise.removeprefix("Value error, ")
        return f"{reason}; {_CHAINS_FORM}" if reason else ""
    schema = next((s for s in schema.get("anyOf", ()) if s.get("type") == "integer"), schema)
    if schema.get("type") == "boolean":
        return "must be true or false"
    if otherwise.startswith("Value error, "):  # our own validator explains more than a range
        return otherwise.removeprefix("Value error, ")
    if schema.get("type") == "integer":
        return f"must be a whole number from {schema['minimum']} to {schema['maximum']}"
    return otherwise
