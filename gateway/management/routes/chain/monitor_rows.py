"""Answers about monitors: what each selects, its state and its progress.

Source: interface document, 5.8.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from fieldbrook.core.model import CHAIN_TX, CONTRACT_LOG, Monitor, Project
from fieldbrook.gateway.management.framework.answers import Page, times
from fieldbrook.gateway.management.framework.binding import json_key
from fieldbrook.storage.chain.store import Cursor


class MonitorReply(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """The fields of all kinds of monitors. Those of one kind come before them, because its class
    is not `kw_only`.

    `lag` counts the blocks that the monitor has yet to process. The progress is absent before the
    monitor has begun.
    """

    project_id: str
    project_name: str
    event_type: str
    chain_id: int
    chain_name: str | UnsetType = UNSET
    paused: bool
    finished: bool
    state: str
    events: int | UnsetType = UNSET
    removed_events: int | UnsetType = UNSET
    lag: int | UnsetType = UNSET
    failures: int | UnsetType = UNSET
    last_error: str | UnsetType = UNSET
    block_hash: str | UnsetType = UNSET
    created_at: str
    updated_at: str


class ContractLogReply(MonitorReply, frozen=True):
    """A monitor of the logs of a contract. `blockCurrent` is the next block; `blockEnd` is 0
    without an end."""

    contractlog_id: str
    contract_address: str
    block_start: int
    block_current: int
    block_end: int
    topic0: str
    topic1: str
    topic2: str
    topic3: str
    event: str | UnsetType = UNSET
    abi_name: str | UnsetType = UNSET


class ChainTxReply(MonitorReply, frozen=True):
    """A monitor of a transaction."""

    chaintx_id: str
    tx_address: str


class ChainHeightReply(MonitorReply, frozen=True):
    """A monitor of a height."""

    chain_height_id: str
    height: int


class ContractLogPage(Page[ContractLogReply], frozen=True):
    """A page of monitors of contracts; `total` counts all matching ones."""


class ChainTxPage(Page[ChainTxReply], frozen=True):
    """A page of monitors of transactions; `total` counts all matching ones."""


class ChainHeightPage(Page[ChainHeightReply], frozen=True):
    """A page of monitors of heights; `total` counts all matching ones."""


def monitor_reply(
    monitor: Monitor,
    project: Project,
    cursor: Cursor | None = None,
    newest: int = 0,
    *,
    known: bool = True,
    reachable: bool = True,
) -> MonitorReply:
    """A monitor; each kind has its own fields.

    Args:
        cursor: the progress of the monitor; None before it has begun.
        newest: the newest block from which events may be sent.
        known: whether the settings still contain the monitor's chain.
        reachable: whether the last request to the chain was answered.
    """
    identifier = str(monitor.monitor_id)
    shared = {
        "project_id": str(monitor.project_id),
        "project_name": project.name,
        "event_type": monitor.event_type,
        "chain_id": monitor.chain_id,
        "chain_name": monitor.chain_name or UNSET,
        "paused": monitor.paused,
        "finished": monitor.finished,
        "state": _state(monitor, cursor, known, reachable),
        **_progress(monitor, cursor, newest),
        **times(monitor),
    }
    if monitor.kind == CONTRACT_LOG:
        return _contract_log(monitor, cursor, shared)
    if monitor.kind == CHAIN_TX:
        return ChainTxReply(chaintx_id=identifier, tx_address=monitor.tx_hash, **shared)
    return ChainHeightReply(chain_height_id=identifier, height=monitor.height, **shared)


def monitor_lag(monitor: Monitor, cursor: Cursor, newest: int) -> int:
    """The number of blocks that a monitor has yet to process.

    Args:
        newest: the newest block from which events may be sent.

    Returns:
        The number of blocks; 0 for monitors of transactions and heights.
    """
    if monitor.kind != CONTRACT_LOG:
        return 0
    last = min(newest, monitor.block_end) if monitor.block_end else newest
    return max(0, last - cursor.block)


def _contract_log(
    monitor: Monitor, cursor: Cursor | None, shared: dict[str, Any]
) -> ContractLogReply:
    current = monitor.block_current
    if cursor is not None and not monitor.finished:
        current = max(current, cursor.block + 1)
    topic0, topic1, topic2, topic3 = monitor.topics
    return ContractLogReply(
        contractlog_id=str(monitor.monitor_id),
        contract_address=monitor.address,
        block_start=monitor.block_start,
        block_current=current,
        block_end=monitor.block_end,
        topic0=topic0,
        topic1=topic1,
        topic2=topic2,
        topic3=topic3,
        event=monitor.event or UNSET,
        abi_name=monitor.abi_name or UNSET,
        **shared,
    )


def _has_told_all(monitor: Monitor, cursor: Cursor) -> bool:
    """Return whether a monitor has sent all its events and only waits until they are final."""
    if monitor.kind == CHAIN_TX:
        return cursor.stands
    return 0 < monitor.block_end <= cursor.block


def _state(monitor: Monitor, cursor: Cursor | None, known: bool, reachable: bool) -> str:
    if monitor.finished:
        return "FINISHED"
    if not known:
        return "NO_CHAIN"
    if monitor.paused:
        return "PAUSED"
    if cursor is not None and cursor.error:
        return "FAILING"
    if not reachable:
        return "UNREACHABLE"
    if cursor is not None and cursor.rewind >= 0:
        return "TAKING_BACK"
    if cursor is not None and _has_told_all(monitor, cursor):
        return "TOLD"
    return "ACTIVE"


def _progress(monitor: Monitor, cursor: Cursor | None, newest: int) -> dict[str, Any]:
    """Return the fields of the progress; there are none before the monitor has begun."""
    if cursor is None:
        return {}
    return {
        "events": cursor.events,
        "removed_events": cursor.removed,
        "lag": 0 if monitor.finished else monitor_lag(monitor, cursor, newest),
        "failures": cursor.failures,
        "last_error": cursor.error or UNSET,
        "block_hash": "0x" + cursor.block_hash.hex() if cursor.block_hash else UNSET,
    }
