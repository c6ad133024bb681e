"""The values the node is about, as they lie in the registry and travel between its parts.

Identifiers are 63-bit integers here and decimal strings in JSON. Times are Unix
milliseconds (int). Records are msgspec structs encoded as arrays, so a field may be
added at the end with a default and old records still decode.
"""

from __future__ import annotations

import msgspec

DEFAULT_EVENT_TYPE = "DEFAULT"
DEFAULT_HANDLER = "start"

ADMIN, DEVELOPER = "ADMIN", "DEVELOPER"
ENABLED, DISABLED = "ENABLED", "DISABLED"
STARTED, STOPPED = "STARTED", "STOPPED"
# An instance per event, or one for as many events as arrive together: faster, but an event
# may find in memory what others left there.
PER_EVENT, PER_BATCH = "EVENT", "BATCH"


class Record(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """Base of every stored value."""

    created_at: int
    updated_at: int


class Account(Record, frozen=True, kw_only=True):
    """Somebody who manages projects. `password_hash` is argon2's encoded form."""

    account_id: int
    username: str
    role: str
    password_hash: str
    state: str = ENABLED
    avatar: str = ""


class Project(Record, frozen=True, kw_only=True):
    """The unit of isolation: one name (channel and topic), one actor, one store."""

    project_id: int
    account_id: int
    name: str
    version: str = ""
    protocol: str = ""
    description: str = ""
    env: list[tuple[str, str]] = msgspec.field(default_factory=list)


class Resource(Record, frozen=True, kw_only=True):
    """An uploaded module, stored once per content. `handlers` are its exports `(i32) -> i32`."""

    resource_id: int
    account_id: int
    sha256: str
    md5: str
    size: int
    filename: str
    handlers: list[str]


class Applet(Record, frozen=True, kw_only=True):
    """A module in a project, with its one instance (the state events meet).

    `isolation` is PER_EVENT or PER_BATCH.
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


class Strategy(Record, frozen=True, kw_only=True):
    """The rule `event type -> handler of an applet`."""

    strategy_id: int
    project_id: int
    applet_id: int
    event_type: str
    handler: str
    auto_collect_metric: bool | None = None


class Publisher(Record, frozen=True, kw_only=True):
    """A device or client that may send events to one project. `token` is the current one."""

    publisher_id: int
    project_id: int
    name: str
    key: str
    token: str


class Event(msgspec.Struct, array_like=True, frozen=True):
    """One admitted event on its way to a project. `received_at` is Unix milliseconds."""

    event_type: str
    publisher_id: int
    event_id: str
    payload: bytes
    received_at: int
