"""Monitors and their progress as clients get them."""

from __future__ import annotations

from fieldbrook.core.model import CHAIN_TX, CONTRACT_LOG, Monitor, Project
from fieldbrook.gateway.management.framework.views import Json, times_json
from fieldbrook.storage.chain.store import Cursor


def monitor_json(
    monitor: Monitor,
    project: Project,
    cursor: Cursor | None = None,
    newest: int = 0,
    *,
    known: bool = True,
    reachable: bool = True,
) -> Json:
    """A monitor; each kind has its own fields. Source: interface document, 5.8.

    Args:
        cursor: the progress of the monitor; None before it has begun.
        newest: the newest block from which events may be sent.
        known: whether the settings still name the monitor's chain.
        reachable: whether the last request to the chain was answered.
    """
    shared: Json = {
        "projectID": str(monitor.project_id),
        "projectName": project.name,
        "eventType": monitor.event_type,
        "chainID": monitor.chain_id,
        **({"chainName": monitor.chain_name} if monitor.chain_name else {}),
        "paused": monitor.paused,
        "finished": monitor.finished,
        **_progress_json(monitor, cursor, newest, known, reachable),
        **times_json(monitor),
    }
    identifier = str(monitor.monitor_id)
    if monitor.kind == CONTRACT_LOG:
        current = monitor.block_current
        if cursor is not None and not monitor.finished:
            current = max(current, cursor.block + 1)
        return {
            "contractlogID": identifier,
            "contractAddress": monitor.address,
            "blockStart": monitor.block_start,
            "blockCurrent": current,
            "blockEnd": monitor.block_end,
            **{f"topic{n}": topic for n, topic in enumerate(monitor.topics)},
            **({"event": monitor.event} if monitor.event else {}),
            **({"abiName": monitor.abi_name} if monitor.abi_name else {}),
            **shared,
        }
    if monitor.kind == CHAIN_TX:
        return {"chaintxID": identifier, "txAddress": monitor.tx_hash, **shared}
    return {"chainHeightID": identifier, "height": monitor.height, **shared}


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


def _has_told_all(monitor: Monitor, cursor: Cursor) -> bool:
    """Whether a monitor has sent all its events and only waits until they are final."""
    if monitor.kind == CHAIN_TX:
        return cursor.stands
    return 0 < monitor.block_end <= cursor.block


def _progress_json(
    monitor: Monitor, cursor: Cursor | None, newest: int, known: bool, reachable: bool
) -> Json:
    if monitor.finished:
        state = "FINISHED"
    elif not known:
        state = "NO_CHAIN"
    elif monitor.paused:
        state = "PAUSED"
    elif cursor is not None and cursor.error:
        state = "FAILING"
    elif not reachable:
        state = "UNREACHABLE"
    elif cursor is not None and cursor.rewind >= 0:
        state = "TAKING_BACK"
    elif cursor is not None and _has_told_all(monitor, cursor):
        state = "TOLD"
    else:
        state = "ACTIVE"
    if cursor is None:
        return {"state": state}
    lag = 0 if monitor.finished else monitor_lag(monitor, cursor, newest)
    return {
        "state": state,
        "events": cursor.events,
        "removedEvents": cursor.removed,
        "lag": lag,
        "failures": cursor.failures,
        **({"lastError": cursor.error} if cursor.error else {}),
        **({"blockHash": "0x" + cursor.block_hash.hex()} if cursor.block_hash else {}),
    }
