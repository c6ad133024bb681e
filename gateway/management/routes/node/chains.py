"""The state of the node's chains: newest block, monitors, transactions and errors.

Only administrators see the endpoints, and of these only the scheme and the host: the rest of a
URL may hold a key.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from fieldbrook.core.clock import rfc3339
from fieldbrook.core.errors import BlockchainNotFoundError
from fieldbrook.core.model import ADMIN
from fieldbrook.core.networks import BY_ID
from fieldbrook.core.settings import Chain
from fieldbrook.gateway.management.framework.answers import Page
from fieldbrook.gateway.management.framework.binding import json_key
from fieldbrook.gateway.management.framework.route import Call, Route
from fieldbrook.gateway.management.routes.chain.monitor_rows import monitor_lag
from fieldbrook.gateway.management.routes.chain.transactions import (
    TransactionTotals,
    transaction_totals,
)
from fieldbrook.storage.chain.store import ChainState


class EndpointReply(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint of a chain, without the parts of its URL that may hold a key. `state` is `OK`,
    or the reason why it is not used."""

    endpoint: str
    head: int
    failures: int
    state: str


class MonitorTotals(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """The number of a chain's monitors in each state, and their greatest lag in blocks."""

    active: int
    paused: int
    failing: int
    finished: int
    greatest_lag: int


class FeesReply(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """The rules for the fees of transactions, in wei per gas. Without `priorityFee` the node offers
    what endpoints suggest."""

    rule: str
    priority_fee: str | UnsetType = UNSET
    max_fee_per_gas: str
    reprice_s: int


class ChainReply(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """A chain of the settings. `state` is `OK`, `UNREACHABLE`, or `UNKNOWN` before the first
    answer of an endpoint. `network` is the name of the known chain with this id, and `finality` the
    number of blocks after which its blocks are final. Contents of blocks up to `confirmedHead`
    become events. `websocket` is `OK` while it announces blocks, else the reason. Only
    administrators see `lastError`, `websocket` and `endpoints`."""

    chain_id: int
    name: str
    network: str | UnsetType = UNSET
    finality: int
    confirmations: int
    block_tag: str
    poll_ms: int
    log_range: int
    fees: FeesReply
    state: str
    head: int
    confirmed_head: int | UnsetType = UNSET
    head_at: str | UnsetType = UNSET
    reorganisations: int
    deepest_reorganisation: int
    failures: int
    events: int
    transactions: TransactionTotals | UnsetType = UNSET
    monitors: MonitorTotals
    last_error: str | UnsetType = UNSET
    websocket: str | UnsetType = UNSET
    endpoints: list[EndpointReply] | UnsetType = UNSET


class ChainPage(Page[ChainReply], frozen=True):
    """All chains of the settings."""


async def list_chains(call: Call[None, None]) -> ChainPage:
    """The chains of the settings, each with its newest known block and its monitors' states."""
    rows = [_reply(call, chain) for chain in call.context.chains]
    return ChainPage(rows, len(rows))


async def get_chain(call: Call[None, None]) -> ChainReply:
    """One chain, by its id or its name."""
    wanted = call.path["chain"]
    for chain in call.context.chains:
        if wanted in (str(chain.id), chain.name):
            return _reply(call, chain)
    raise BlockchainNotFoundError(chain=wanted[:64])


def _reply(call: Call[Any, Any], chain: Chain) -> ChainReply:
    store = call.context.chain_reader(chain.id)
    state = ChainState() if store is None else store.state()
    administrator = call.account.role == ADMIN
    network = BY_ID.get(chain.id)
    return ChainReply(
        chain_id=chain.id,
        name=chain.name,
        network=UNSET if network is None else network.name,
        finality=chain.finality,
        confirmations=chain.confirmations,
        block_tag=chain.block_tag,
        poll_ms=chain.poll_ms,
        log_range=chain.log_range,
        fees=FeesReply(
            rule=chain.fees,
            priority_fee=UNSET if chain.priority_fee is None else str(chain.priority_fee),
            max_fee_per_gas=str(chain.max_fee_per_gas),
            reprice_s=chain.reprice_s,
        ),
        state="UNREACHABLE" if state.error else "OK" if state.head_ms else "UNKNOWN",
        head=state.head,
        confirmed_head=state.confirmed if state.confirmed >= 0 else UNSET,
        head_at=rfc3339(state.head_ms) if state.head_ms else UNSET,
        reorganisations=state.reorganisations,
        deepest_reorganisation=state.deepest,
        failures=state.failures,
        events=state.events,
        transactions=transaction_totals(store.transactions) if store else UNSET,
        monitors=_monitors(call, chain, state.confirmed),
        last_error=(administrator and state.error) or UNSET,
        websocket=(administrator and state.websocket) or UNSET,
        endpoints=_endpoints(state) if administrator else UNSET,
    )


def _endpoints(state: ChainState) -> list[EndpointReply]:
    return [
        EndpointReply(
            endpoint=endpoint.name,
            head=endpoint.head,
            failures=endpoint.failures,
            state=endpoint.reason or "OK",
        )
        for endpoint in state.endpoints
    ]


def _monitors(call: Call[Any, Any], chain: Chain, newest: int) -> MonitorTotals:
    store = call.context.chain_reader(chain.id)
    cursors = {} if store is None else store.cursors()
    counts = {"active": 0, "paused": 0, "failing": 0, "finished": 0}
    lag = 0
    for monitor in call.context.reader.monitors_of_chain(chain.id):
        cursor = cursors.get(monitor.monitor_id)
        if monitor.finished:
            counts["finished"] += 1
        elif monitor.paused:
            counts["paused"] += 1
        else:
            counts["failing" if cursor is not None and cursor.error else "active"] += 1
            if cursor is not None:
                lag = max(lag, monitor_lag(monitor, cursor, newest))
    return MonitorTotals(**counts, greatest_lag=lag)


ROUTES: tuple[Route, ...] = (
    Route("GET", "/chain", "ListChain", list_chains),
    Route("GET", "/chain/{chain}", "GetChain", get_chain),
)
