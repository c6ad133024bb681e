"""The state of the node's chains: newest block, monitors, transactions and errors.

Only administrators see the endpoints, and of these only the scheme and the host: the rest of a
URL may hold a key.
"""

from __future__ import annotations

from typing import Any

from fieldbrook.core.clock import rfc3339
from fieldbrook.core.errors import BlockchainNotFoundError
from fieldbrook.core.model import ADMIN
from fieldbrook.core.settings import Chain
from fieldbrook.gateway.management.framework.route import Call, Route
from fieldbrook.gateway.management.framework.views import Json
from fieldbrook.gateway.management.routes.chain.monitor_rows import monitor_lag
from fieldbrook.gateway.management.routes.chain.transactions import transactions_json
from fieldbrook.storage.chain.store import ChainState


async def list_chains(call: Call[None, None]) -> Json:
    """The chains of the settings, each with its newest known block and its monitors' states."""
    rows = [_chain_json(call, chain) for chain in call.context.chains]
    return {"data": rows, "total": len(rows)}


async def get_chain(call: Call[None, None]) -> Json:
    """One chain, by its id or its name."""
    wanted = call.path["chain"]
    for chain in call.context.chains:
        if wanted in (str(chain.id), chain.name):
            return _chain_json(call, chain)
    raise BlockchainNotFoundError(chain=wanted[:64])


def _chain_json(call: Call[Any, Any], chain: Chain) -> Json:
    store = call.context.chain_reader(chain.id)
    state = ChainState() if store is None else store.state()
    answer: Json = {
        "chainID": chain.id,
        "name": chain.name,
        "confirmations": chain.confirmations,
        "pollMs": chain.poll_ms,
        "state": "UNREACHABLE" if state.error else "OK" if state.head_ms else "UNKNOWN",
        "head": state.head,
        **({"headAt": rfc3339(state.head_ms)} if state.head_ms else {}),
        "reorganisations": state.reorganisations,
        "deepestReorganisation": state.deepest,
        "failures": state.failures,
        "events": state.events,
        **({"transactions": transactions_json(store.transactions)} if store else {}),
        "monitors": _monitors_json(call, chain, state.head - chain.confirmations),
    }
    if call.account.role == ADMIN:
        answer |= {
            **({"lastError": state.error} if state.error else {}),
            "endpoints": [
                {
                    "endpoint": endpoint.name,
                    "head": endpoint.head,
                    "failures": endpoint.failures,
                    "state": endpoint.reason or "OK",
                }
                for endpoint in state.endpoints
            ],
        }
    return answer


def _monitors_json(call: Call[Any, Any], chain: Chain, newest: int) -> Json:
    """The number of a chain's monitors in each state, and their greatest lag in blocks."""
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
    return {**counts, "greatestLag": lag}


ROUTES: tuple[Route, ...] = (
    Route("GET", "/chain", "ListChain", list_chains),
    Route("GET", "/chain/{chain}", "GetChain", get_chain),
)
