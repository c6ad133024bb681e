"""The records of the registry, in the form in which they are stored and sent between processes.

Identifiers are 63-bit integers here and decimal strings in JSON. Times are Unix
milliseconds (int). Records are msgspec structs encoded as arrays, so a field may be
added at the end with a default and old records still decode.
"""

from __future__ import annotations

import msgspec

DEFAULT_EVENT_TYPE = "DEFAULT"
EVENT_TYPE_LIMIT = 256  # characters; no strategy can have a longer event type
NAME_LIMIT = 256  # characters of an applet's name
DEFAULT_HANDLER = "start"

ADMIN, DEVELOPER = "ADMIN", "DEVELOPER"
ENABLED, DISABLED = "ENABLED", "DISABLED"
STARTED, STOPPED = "STARTED", "STOPPED"
# Isolation of an applet's events. PER_EVENT: a new instance for each event. PER_BATCH: one
# instance for the events that arrive together, which is faster, but an event may see the memory
# that earlier events left. PER_INSTANCE: one instance for a number of events; the first
# generation kept it for ever.
PER_EVENT, PER_BATCH, PER_INSTANCE = "EVENT", "BATCH", "INSTANCE"
REUSE_EVENTS = 1_000
REUSE_EVENTS_LIMIT = 1_000_000
CONTRACT_LOG, CHAIN_TX, CHAIN_HEIGHT = "contract_log", "chain_tx", "chain_height"
NODE_PUBLISHER = 1  # publisher id of the node's own events; allocated ids are much larger
# Name and key of the publisher that stands for senders without a token, in a public project.
ANONYMOUS = "anonymous"
EVENT, BLOCKCHAIN = "EVENT", "BLOCKCHAIN"
IDENTITY_ACCOUNT, IDENTITY_PUBLISHER = "ACCOUNT", "PUBLISHER"  # the identity of an access key
# State of an applet whose instance was removed: it runs no event until an instance is created.
REMOVED = "REMOVED"
MEMORY, REDIS = "MEMORY", "REDIS"
PROJECT_DATABASE, PROJECT_ENV, PROJECT_FLOW = "PROJECT_DATABASE", "PROJECT_ENV", "PROJECT_FLOW"
PROJECT_SPENDING = "PROJECT_SPENDING"
PROJECT_CHAINS = "PROJECT_CHAINS"
# The answer to an event if a chain that its handler needs is unavailable: the handler's code, or
# 503, so that the sender tries again.
CHAIN_CODE, CHAIN_RETRY = "CODE", "RETRY"


class Record(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """Base of every stored value; the registry sets the times when it adds a record."""

    created_at: int = 0
    updated_at: int = 0


class Account(Record, frozen=True, kw_only=True):
    """A user who manages projects.

    `password_hash` is in argon2's encoded form. Login tokens of another `token_generation` are
    no longer valid. `quotas` are the limits that an administrator set for this account instead
    of those in the settings (None: no limit). `over_storage` is true while the account has more
    bytes stored than its quota allows.
    """

    account_id: int
    username: str
    role: str
    password_hash: str
    state: str = ENABLED
    avatar: str = ""
    token_generation: int = 0
    quotas: dict[str, int | None] = msgspec.field(default_factory=dict)
    over_storage: bool = False


class Project(Record, frozen=True, kw_only=True):
    """The unit of isolation: one name (channel and topic), one actor, one store.

    A `dedicated` project has a worker of its own.
    """

    project_id: int
    account_id: int
    name: str
    version: str = ""
    protocol: str = ""
    description: str = ""
    public: bool = False
    dedicated: bool = False


class Resource(Record, frozen=True, kw_only=True):
    """An uploaded module, stored once per content. `handlers` are its exports `(i32) -> i32`.

    A `deleted` resource is hidden from all lists. It is removed when no applet runs it and no
    kept version of an applet needs it.

    `compiled_size` is the size of its compiled form in bytes at the upload; 0 if an earlier version
    of the node stored it.
    """

    resource_id: int
    account_id: int
    sha256: str
    md5: str
    size: int
    filename: str
    handlers: list[str]
    deleted: bool = False
    compiled_size: int = 0

    @property
    def stored_size(self) -> int:
        """The bytes that count for the quota of the resource's account."""
        return self.size + self.compiled_size

    def exports(self, handler: str) -> bool:
        """Return whether the module exports this handler.

        A strategy whose handler is not exported is kept, and its events become dead letters.
        """
        return handler in self.handlers


class Applet(Record, frozen=True, kw_only=True):
    """A module in a project, with its one instance.

    `isolation` is PER_EVENT, PER_BATCH or PER_INSTANCE; with PER_INSTANCE an instance serves
    `reuse_events` events. `version` is the number of the kept version that runs. Applets of
    a project with the same `cache_prefix` share one key-value store. `cache_mode` is stored
    and has no effect.
    """

    applet_id: int
    project_id: int
    resource_id: int
    name: str
    wasm_name: str
    instance_id: int
    sha256: str
    state: str = STARTED
    isolation: str = PER_EVENT
    version: int = 0
    cache_mode: str = MEMORY
    cache_prefix: str = ""
    reuse_events: int = REUSE_EVENTS


class AppletVersion(Record, frozen=True, kw_only=True):
    """A module that an applet runs or ran, kept for rollback. Numbers count up from 1.

    `author_id` is the account that uploaded it; 0 in records of older versions of the node.
    """

    version_id: int
    applet_id: int
    number: int
    resource_id: int
    sha256: str
    wasm_name: str
    author_id: int = 0


class Config(Record, frozen=True, kw_only=True):
    """One configuration of a project, at most one of each kind. `value` is JSON."""

    config_id: int
    project_id: int
    kind: str
    value: bytes


class Strategy(Record, frozen=True, kw_only=True):
    """The rule `event type -> handler of an applet`."""

    strategy_id: int
    project_id: int
    applet_id: int
    event_type: str
    handler: str
    auto_collect_metric: bool | None = None


class Publisher(Record, frozen=True, kw_only=True):
    """A device or client that may send events to one project. `token` is the current one.

    `event_types` are the types that it may send; an empty list allows all types.
    `token_expires_at` and `token_issued_at` are Unix milliseconds; `token_expires_at` 0 means
    that the token never expires.
    """

    publisher_id: int
    project_id: int
    name: str
    key: str
    token: str
    event_types: list[str] = msgspec.field(default_factory=list)
    token_expires_at: int = 0
    token_issued_at: int = 0


class CronJob(Record, frozen=True, kw_only=True):
    """A schedule that sends events to a project. `expression` is the text that the user sent."""

    cron_job_id: int
    project_id: int
    expression: str
    event_type: str


class Monitor(Record, frozen=True, kw_only=True):
    """A watch on a chain: matching logs, a transaction or a height become events of a project.

    `kind` determines which of the fields after `event_type` are used. Contract logs use
    `address`, `topics` (four, "" matches any) and the blocks (`block_end` 0: no end); a
    transaction uses `tx_hash`; a height uses `height`. `block_current` is the next block to
    scan. A `finished` monitor sends no more events. `event` is the signature that selects the
    logs. `event_abi` is the ABI declaration (JSON) that decodes them, if any, and `abi_name`
    is the project's ABI that the declaration was taken from, if any.
    """

    monitor_id: int
    project_id: int
    kind: str
    chain_id: int
    event_type: str
    chain_name: str = ""
    address: str = ""
    topics: list[str] = msgspec.field(default_factory=list)
    block_start: int = 0
    block_end: int = 0
    block_current: int = 0
    tx_hash: str = ""
    height: int = 0
    paused: bool = False
    finished: bool = False
    event: str = ""
    event_abi: str = ""
    abi_name: str = ""


class ContractAbi(Record, frozen=True, kw_only=True):
    """A contract's JSON ABI that a project keeps under a name; `content` is its JSON."""

    abi_id: int
    project_id: int
    name: str
    content: bytes


class TrafficLimit(Record, frozen=True, kw_only=True):
    """A limit of `threshold` calls of a kind per window of `duration_ms` in a project.

    Windows follow each other from `start_at` (Unix ms) on. `publisher_threshold` is the limit
    of each single publisher; 0 means that publishers have no limit of their own. `duration` is
    the length as the client sent it, e.g. `1h30m`; it is empty in records of older versions.
    """

    traffic_limit_id: int
    project_id: int
    threshold: int
    duration_ms: int
    api_type: str
    start_at: int
    publisher_threshold: int = 0
    duration: str = ""


class AccessKey(Record, frozen=True, kw_only=True):
    """A token with rights of its own, for an account or for one of its publishers.

    `account_id` is the owner. `identity_id` is the identity that the key acts as: that account
    or a publisher. `digest` is the SHA-256 of the key's random part. `expires_at` (0: never)
    and `last_used` (0: not yet; accurate to about a minute) are Unix milliseconds.
    `privileges` maps groups of operations to permissions.
    """

    access_key_id: int
    account_id: int
    identity_id: int
    identity_type: str
    name: str
    digest: bytes
    issued_at_s: int
    expires_at: int = 0
    description: str = ""
    privileges: dict[str, str] = msgspec.field(default_factory=dict)
    last_used: int = 0


class Operator(Record, frozen=True, kw_only=True):
    """A key of an account that signs for its projects.

    `kind` is 1 for ECDSA over secp256k1, 2 for ED25519. The keys are encrypted with
    `operator_keys.Vault`, which binds them to `address`.
    """

    operator_id: int
    account_id: int
    name: str
    kind: int
    address: str
    sealed_key: bytes
    sealed_paymaster: bytes = b""


class ProjectOperator(Record, frozen=True, kw_only=True):
    """The operator that a project uses instead of its account's default."""

    project_id: int
    operator_id: int


class Event(msgspec.Struct, array_like=True, frozen=True):
    """One admitted event on its way to a project. `received_at` is Unix milliseconds."""

    event_type: str
    publisher_id: int
    event_id: str
    payload: bytes
    received_at: int
