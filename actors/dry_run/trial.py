"""Input and result of a dry run."""

from __future__ import annotations

from typing import Literal

import msgspec

from fieldbrook.core.host_calls import Shown
from fieldbrook.storage.sql.database import SqlLimits
from fieldbrook.wasm.limits import Limits

SHOWN_LIMIT = 500
"""The largest number of writes in a report; the same limit holds for statements and for effects."""
SHOWN_BYTES = 4 << 10
"""The size in bytes to which longer values in a report are cut."""


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """A handler and the event to run it over.

    `owner` is the id under which the applet's keys are stored (`kv.owner`). `database` is the
    project's database configuration as JSON, if it has one. Without `with_state` the run sees no
    keys and no rows.
    """

    project_id: int
    owner: int
    sha256: str
    handler: str
    event_type: str
    payload: bytes
    env: dict[str, str]
    database: bytes | None
    with_state: bool


class NodeParts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of the node that a run needs: folders, limits and settings.

    `tables` says whether the SQL tables of projects are SQLite files, which can be copied.
    `open_topics` are the filters of `mqtt_device_topics`. `chains` has the ids and names of the
    chains.
    """

    projects: str
    modules: str
    registry: str
    limits: Limits
    sql_limits: SqlLimits
    tables: bool
    api_hosts: tuple[str, ...]
    open_topics: tuple[str, ...]
    chains: tuple[tuple[int, str], ...]
    default_chain: int | None


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """The input of the child; `scratch` is a folder for this run alone."""

    trial: Trial
    node: NodeParts
    scratch: str


class Write(msgspec.Struct, frozen=True):
    """A key that the handler wrote; `before` is None for a new key."""

    key: Shown
    before: Shown | None
    after: Shown


class SqlStatement(msgspec.Struct, frozen=True, kw_only=True):
    """A statement, as the JSON that the handler gave. `error` is the reason if it failed, else "";
    `result` has its rows."""

    request: Shown
    result: Shown
    error: str
    elapsed_us: int


class SentEffect(msgspec.Struct, frozen=True):
    """A message, call or transaction that would be sent, or a metric that would be stored.

    `target` is the MQTT topic, the event type of an API call's answer, or the chain.
    """

    kind: Literal["mqtt", "api", "transaction", "metric"]
    target: str
    body: Shown


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a dry run.

    `error` is "" if the handler returned `code`, else the reason of the failure. `logs` are (level,
    source, text). `memory_bytes` is the linear memory of the handler after the run. `notes` say how
    the run differed from one on the node, and what the report leaves out.
    """

    code: int
    error: str
    logs: list[tuple[int, str, str]]
    writes: list[Write]
    statements: list[SqlStatement]
    effects: list[SentEffect]
    elapsed_us: int
    memory_bytes: int
    notes: list[str]
