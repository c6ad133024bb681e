"""Events with which projects receive the outcomes of their transactions."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import msgspec

from fieldbrook.actors.wire import EXACT, KEYED, NAMED, WireEvent, keyed
from fieldbrook.core import clock
from fieldbrook.core.errors import (
    IdempotencyKeyReusedError,
    NodeError,
    StoreError,
    TooManyRequestsError,
)
from fieldbrook.core.model import NODE_PUBLISHER
from fieldbrook.gateway.links.pending_event import Outcome, Settle
from fieldbrook.observability import fault_points, metrics
from fieldbrook.storage.chain.transactions import Transaction, TransactionWriter
from fieldbrook.storage.registry.service import RegistryReader
from fieldbrook.wasm.host.api import decode, response

log = logging.getLogger(__name__)

_RETRY_S = 1.0

Submit = Callable[[int, WireEvent, Settle], None]


class OutcomeEvents:
    """Sends the outcomes of transactions to their projects.

    Args:
        rows: the stored transactions of the chain.
        reader: reads the registry.
        submit: sends an event to a project; raises a `NodeError` if it is refused.
    """

    def __init__(self, rows: TransactionWriter, reader: RegistryReader, submit: Submit) -> None:
        self._rows = rows
        self._reader = reader
        self._submit = submit

    async def send(self, row: Transaction) -> None:
        """Send the outcome of a finished transaction to its project, if a strategy is for it.

        Send it again until the project has handled it, then store that it was reported.
        """
        event = outcome_event(row)
        while self._is_wanted(row):
            done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
            try:
                metrics.add(metrics.EVENTS_RECEIVED)
                self._submit(row.project_id, event, done.set_result)
            except TooManyRequestsError:
                await asyncio.sleep(_RETRY_S)
                continue
            except NodeError as error:
                log.error("outcome %s cannot be delivered and is dropped: %s", event[2], error)
                break
            fault_points.hit("chain.before_outcome_event")
            outcome = await done
            # A reused id: the project already has this outcome, from before a reorganisation
            # moved the transaction to another block.
            if not isinstance(outcome, NodeError) or isinstance(outcome, IdempotencyKeyReusedError):
                break
            log.warning("outcome %s was not handled and is sent again: %s", event[2], outcome)
            await asyncio.sleep(_RETRY_S)
        fault_points.hit("chain.outcome_event_committed")
        while not self._reported(row):
            await asyncio.sleep(_RETRY_S)
        fault_points.hit("chain.outcome_delivery_stored")

    def _reported(self, row: Transaction) -> bool:
        """Store that the project has received an outcome; return False if the store fails.

        If a reorganisation has changed the transaction's state since, the new state still counts
        as unreported.
        """
        now = self._rows.unfinished.get(row.transaction_id, row)
        reported = now.state == row.state
        outcomes = [*now.outcomes, row.state]
        try:
            self._rows.put(msgspec.structs.replace(now, reported=reported, outcomes=outcomes))
        except StoreError as error:
            log.error("outcome of transaction %s: %s", row.name, error)
            return False
        return True

    def _is_wanted(self, row: Transaction) -> bool:
        """Return whether the project has a strategy for the outcome's event type.

        Strategies for `DEFAULT` do not count, because they were written for device messages.
        Outcomes of API calls are always wanted, because the call named their event type. Also
        return True if the registry cannot be read.
        """
        with contextlib.suppress(StoreError):
            if self._reader.project(row.project_id) is None:
                return False
            if row.api:
                return True
            found = self._reader.strategies(row.project_id)
            return any(strategy.event_type == row.event_type for strategy in found)
        return True


def outcome_event(row: Transaction) -> WireEvent:
    """Make the event with a transaction's outcome. Each call gives the same id and payload."""
    body = json.dumps(outcome(row), separators=(",", ":")).encode()
    if row.api:
        request = decode(row.api)
        header = request["Header"] if request else {}
        short = {"transactionID": row.name, "state": row.state}
        text = json.dumps(short, separators=(",", ":")).encode()
        body = response(HTTPStatus.OK, header, text)
    again = f"-{len(row.outcomes)}" if row.outcomes else ""
    event_id = f"sent-{row.name}-{row.state}{again}"
    # The id is also the idempotency key. A reorganisation may move the transaction to another block
    # while the project handles the event. The next event then has the same id and another payload.
    kind, name = NAMED | KEYED | EXACT, keyed(event_id, event_id)
    return row.event_type, NODE_PUBLISHER, event_id, body, clock.now_ms(), kind, name


def outcome(row: Transaction) -> dict[str, Any]:
    """Return a transaction's outcome as the payload of an event."""
    return {
        "transactionID": row.name,
        "chainID": row.chain_id,
        "state": row.state,
        "hash": row.mined,
        "hashes": [tried.hash for tried in row.attempts],
        "eventID": row.event_id,
        "from": row.sender,
        "to": row.to,
        "nonce": row.nonce,
        "blockNumber": row.block_number,
        "blockHash": row.block_hash,
        "gasUsed": row.gas_used,
        "gasPrice": str(row.gas_price),
        "reason": row.reason,
    }
