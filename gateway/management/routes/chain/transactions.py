"""Transactions of projects: reading them, and commands of administrators on stuck ones.

Transactions are named `<chain id>-<number>`; numbers increase with time over all chains.

Source: ours; states as in the interface document, 5.7.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from fieldbrook.chain.blocks.logs import normalize_hex
from fieldbrook.chain.transaction import TransactionRefusedError
from fieldbrook.core.clock import now_ms, rfc3339
from fieldbrook.core.errors import (
    BlockchainNotFoundError,
    TransactionNotFoundError,
    TransactionRefusedByChainError,
)
from fieldbrook.core.model import ADMIN, Project
from fieldbrook.core.settings import Chain
from fieldbrook.gateway.chain_client import CANCEL, PARK, RELEASE, RESUME, RETRY
from fieldbrook.gateway.management.framework.binding import RowLimit, Sfid, Text, json_key
from fieldbrook.gateway.management.framework.ownership import own_project
from fieldbrook.gateway.management.framework.route import Auth, Call, Route
from fieldbrook.storage.chain.transactions import (
    INIT,
    LEASED,
    STATES,
    Spending,
    Transaction,
    TransactionReader,
    parse_name,
)

DAY_MS = 86_400_000
# In a path, this stands for any project, for administrators only: transactions stay when their
# project is removed. No project can have this name.
ANY_PROJECT = "x"

State = Literal["INIT", "PENDING", "IN_BLOCK", "CONFIRMED", "FAILED"]


class ListTransactions(msgspec.Struct, frozen=True, kw_only=True):
    """The newest transactions with numbers below `before`, and filters.

    `hash` is the hash of any attempt of a transaction, `from` the address that signs it; both may
    lack `0x`. `stuck` selects transactions that were refused and block their account.
    """

    before: Sfid | None = None
    limit: RowLimit = 100
    states: list[State] = msgspec.field(name="state", default_factory=list)
    chain_id: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] = msgspec.field(
        name="chainID", default=0
    )
    event_id: Text = msgspec.field(name="eventID", default="")
    hash: Annotated[str, msgspec.Meta(max_length=66)] = ""
    sender: Annotated[str, msgspec.Meta(max_length=42)] = msgspec.field(name="from", default="")
    stuck: bool = False


class TransactionReply(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """A transaction. Amounts are in wei, as decimal digits; `hash` is the mined one or the last.
    `signatures` counts the attempts; `stuckSince` is when the chain refused it; a mined one has
    `blockNumber` and `feeWei`."""

    transaction_id: str
    chain_id: int
    project_id: str
    event_id: str
    operator_name: str
    from_: str
    to: str
    value: str
    nonce: int
    hash: str
    state: str
    reason: str
    stuck: bool
    stuck_since: str | UnsetType = UNSET
    signatures: int
    block_number: int | UnsetType = UNSET
    fee_wei: str | UnsetType = UNSET
    created_at: str
    updated_at: str


class AttemptReply(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """One signed form of a transaction. `why` it was signed again; `cancels`: it does nothing."""

    hash: str
    nonce: int
    max_fee_per_gas: str
    max_priority_fee_per_gas: str | UnsetType = UNSET
    signed_at: str
    why: str | UnsetType = UNSET
    cancels: bool | UnsetType = UNSET


class WholeTransaction(TransactionReply, frozen=True, kw_only=True, rename=json_key):
    """A transaction with its data, its block once it is mined, and all its attempts."""

    data: str
    gas: int
    event_type: str
    sent_at: str | UnsetType = UNSET
    block_hash: str | UnsetType = UNSET
    gas_used: int | UnsetType = UNSET
    gas_price: str | UnsetType = UNSET
    attempts: list[AttemptReply]


class TransactionPage(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """Transactions, newest first; `next` is the `before` of the following request."""

    data: list[TransactionReply]
    next: str | UnsetType = UNSET


class ChainSpending(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """A project's transactions of one chain by state, and what they cost."""

    chain_id: int
    init: int
    pending: int
    in_block: int = msgspec.field(name="in_block")
    confirmed: int
    failed: int
    gas_used: str
    fees_wei: str
    spent_today_wei: str


class TransactionTotals(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """A chain's transactions by state, and what they cost. `stuck` ones were refused by the
    chain; while `parked`, none is sent."""

    parked: bool
    stuck: int
    init: int
    pending: int
    in_block: int = msgspec.field(name="in_block")
    confirmed: int
    failed: int
    gas_used: str
    fees_wei: str


class TransactionState(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """A project's transactions, per chain; `weiPerDay` is its limit, null for none."""

    wei_per_day: str | None
    data: list[ChainSpending]


class ParkedChain(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """Whether sending to a chain is paused."""

    chain_id: int
    parked: bool


class ReleasedLeases(msgspec.Struct, frozen=True, kw_only=True, rename=json_key):
    """The project whose nonces of a chain were released."""

    chain_id: int
    project_id: str


async def list_transactions(call: Call[None, ListTransactions]) -> TransactionPage:
    """Transactions of a project, newest first; `next` is the `before` of the following request."""
    return _list(call, own_project(call))


async def list_all_transactions(call: Call[None, ListTransactions]) -> TransactionPage:
    """Transactions of all projects, newest first."""
    return _list(call, None)


async def get_transaction(call: Call[None, None]) -> WholeTransaction:
    """One transaction with all its attempts. For administrators, the project `x` stands for any
    project, also a removed one."""
    row = _own_transaction(call)
    return _whole(row, _blocking_transactions(call, [row]))


async def transaction_state(call: Call[None, None]) -> TransactionState:
    """A project's transactions by state and its spending, per chain."""
    project = own_project(call)
    limit = call.context.reader.spending_limit(project.project_id)
    return TransactionState(
        wei_per_day=None if limit is None else str(limit),
        data=[
            _spending(chain_id, rows, project.project_id)
            for chain_id, rows in _chains(call).items()
        ],
    )


async def cancel_transaction(call: Call[None, None]) -> WholeTransaction:
    """Cancel a transaction: use its nonce for one that does nothing. A transaction that is in a
    block already stays as it is."""
    return await _run_command(call, CANCEL)


async def retry_transaction(call: Call[None, None]) -> WholeTransaction:
    """Sign a transaction again with the same nonce and higher fees, within the chain's cap."""
    return await _run_command(call, RETRY)


async def park_chain(call: Call[None, None]) -> ParkedChain:
    """Pause sending to a chain: committed transactions wait, sent ones are still watched."""
    return await _set_parked(call, PARK)


async def resume_chain(call: Call[None, None]) -> ParkedChain:
    """Resume sending to a parked chain, beginning with the transactions that wait."""
    return await _set_parked(call, RESUME)


async def release_leases(call: Call[None, None]) -> ReleasedLeases:
    """Release the nonces that are leased to a project whose store is lost. Without the store it
    is unknown whether the events of these nonces were committed, and other transactions wait for
    them. Refused while the project is connected to the chain's process. If the store comes back,
    the transactions that it had committed are still sent."""
    project, chain = own_project(call), _named_chain(call)
    await _send_command(call, chain.id, RELEASE, project.project_id)
    return ReleasedLeases(chain_id=chain.id, project_id=str(project.project_id))


def transaction_totals(rows: TransactionReader) -> TransactionTotals:
    """The totals of a chain."""
    unfinished = rows.read_unfinished()
    totals = [*rows.all_spending().values()]
    return TransactionTotals(
        parked=rows.parked,
        stuck=sum(bool(row.refused_at) for row in unfinished),
        **_counts(unfinished),
        confirmed=sum(spent.confirmed for spent in totals),
        failed=sum(spent.failed for spent in totals),
        gas_used=str(sum(spent.gas_used for spent in totals)),
        fees_wei=str(sum(int(spent.fees_wei) for spent in totals)),
    )


def _counts(rows: Iterable[Transaction]) -> dict[str, Any]:
    """The numbers of unfinished transactions: `init`, `pending` and `in_block`."""
    counts = Counter(row.state for row in rows)
    return {state.lower(): counts[state] for state in STATES[:3]}


def _chains(call: Call[Any, Any]) -> dict[int, TransactionReader]:
    """The transactions by chain id, for the chains of the settings that have a store."""
    found = {}
    for chain in call.context.chains:
        store = call.context.chain_reader(chain.id)
        if store is not None:
            found[chain.id] = store.transactions
    return found


def _list(call: Call[None, ListTransactions], project: Project | None) -> TransactionPage:
    query = call.query
    hash_, sender = normalize_hex(query.hash), normalize_hex(query.sender)

    def matches(row: Transaction) -> bool:
        return (
            (not query.states or row.state in query.states)
            and query.event_id in ("", row.event_id)
            and sender in ("", row.sender.lower())
            and (not query.stuck or bool(row.refused_at))
            and (not hash_ or any(tried.hash == hash_ for tried in row.attempts))
        )

    pages = [
        rows.page(query.limit, query.before or 0, project.project_id if project else None, matches)
        for chain_id, rows in _chains(call).items()
        if query.chain_id in (0, chain_id)
    ]
    newest = heapq.nlargest(
        query.limit, (row for page in pages for row in page.rows), key=lambda r: r.transaction_id
    )
    more = any(page.before for page in pages) or sum(len(p.rows) for p in pages) > len(newest)
    blocking = _blocking_transactions(call, newest)
    return TransactionPage(
        data=[TransactionReply(**_fields(row, blocking)) for row in newest],
        next=str(newest[-1].transaction_id) if more and newest else UNSET,
    )


def _blocking_transactions(
    call: Call[Any, Any], rows: Sequence[Transaction]
) -> Mapping[tuple[int, str], str]:
    """The refused transactions that block the accounts of waiting rows.

    Returns:
        The name of the blocking transaction by chain id and sender.
    """
    chains = {row.chain_id for row in rows if row.state == INIT and not row.reason}
    found = _chains(call) if chains else {}
    return {
        (row.chain_id, row.sender): row.name
        for chain_id in chains & found.keys()
        for row in found[chain_id].read_unfinished()
        if row.refused_at
    }


def _own_transaction(call: Call[Any, Any]) -> Transaction:
    name = call.path["transaction"]
    any_project = call.path["projectName"] == ANY_PROJECT and call.account.role == ADMIN
    project_id = None if any_project else own_project(call).project_id
    numbers = parse_name(name)
    rows = None if numbers is None else _chains(call).get(numbers[0])
    row = None if rows is None or numbers is None else rows.get(numbers[1])
    if row is None or project_id not in (None, row.project_id) or row.state == LEASED:
        raise TransactionNotFoundError(transaction=name[:64])
    return row


async def _run_command(call: Call[None, None], command: str) -> WholeTransaction:
    row = _own_transaction(call)
    await _send_command(call, row.chain_id, command, row.transaction_id)
    return _whole(_own_transaction(call), {})


async def _set_parked(call: Call[None, None], command: str) -> ParkedChain:
    chain = _named_chain(call)
    await _send_command(call, chain.id, command, 0)
    return ParkedChain(chain_id=chain.id, parked=command == PARK)


def _named_chain(call: Call[Any, Any]) -> Chain:
    wanted = call.path["chain"]
    for chain in call.context.chains:
        if wanted in (str(chain.id), chain.name):
            return chain
    raise BlockchainNotFoundError(chain=wanted[:64])


async def _send_command(call: Call[None, None], chain_id: int, command: str, target: int) -> None:
    try:
        await call.context.chain_command(chain_id, command, target)
    except TransactionRefusedError as error:
        raise TransactionRefusedByChainError(reason=str(error)) from error


def _fields(row: Transaction, blocking: Mapping[tuple[int, str], str]) -> dict[str, Any]:
    """The fields of a `TransactionReply`."""
    blocker = blocking.get((row.chain_id, row.sender))
    waits = row.state == INIT and not row.reason and blocker is not None
    return {
        "transaction_id": row.name,
        "chain_id": row.chain_id,
        "project_id": str(row.project_id),
        "event_id": row.event_id,
        "operator_name": row.operator_name,
        "from_": row.sender,
        "to": row.to,
        "value": row.value,
        "nonce": row.nonce,
        "hash": row.mined or row.last.hash,
        "state": row.state,
        "reason": f"waits for {blocker}, which is refused" if waits else row.reason,
        "stuck": bool(row.refused_at),
        "stuck_since": rfc3339(row.refused_at) if row.refused_at else UNSET,
        "signatures": len(row.attempts),
        "block_number": row.block_number if row.mined else UNSET,
        "fee_wei": str(row.gas_used * row.gas_price) if row.mined else UNSET,
        "created_at": rfc3339(row.created_at),
        "updated_at": rfc3339(row.updated_at),
    }


def _whole(row: Transaction, blocking: Mapping[tuple[int, str], str]) -> WholeTransaction:
    mined = bool(row.mined)
    return WholeTransaction(
        **_fields(row, blocking),
        data="0x" + row.data.hex(),
        gas=row.gas,
        event_type=row.event_type,
        sent_at=rfc3339(row.sent_at) if row.sent_at else UNSET,
        block_hash=row.block_hash if mined else UNSET,
        gas_used=row.gas_used if mined else UNSET,
        gas_price=str(row.gas_price) if mined else UNSET,
        attempts=[
            AttemptReply(
                hash=tried.hash,
                nonce=tried.nonce,
                max_fee_per_gas=str(tried.limit),
                max_priority_fee_per_gas=str(tried.priority) if tried.priority >= 0 else UNSET,
                signed_at=rfc3339(tried.made_at),
                why=tried.why or UNSET,
                cancels=True if tried.cancels else UNSET,
            )
            for tried in row.attempts
        ],
    )


def _spending(chain_id: int, rows: TransactionReader, project_id: int) -> ChainSpending:
    spent = rows.spending(project_id)
    own = (row for row in rows.read_unfinished() if row.project_id == project_id)
    return ChainSpending(
        chain_id=chain_id,
        **_counts(own),
        confirmed=spent.confirmed,
        failed=spent.failed,
        gas_used=str(spent.gas_used),
        fees_wei=spent.fees_wei,
        spent_today_wei=_today(spent),
    )


def _today(spent: Spending) -> str:
    return spent.day_wei if spent.day == now_ms() // DAY_MS else "0"


_OF, _ONE = "/tx/{projectName}", "/tx/{projectName}/{transaction}"

ROUTES: tuple[Route, ...] = (
    Route("GET", "/tx", "ListAllTransactions", list_all_transactions, auth=Auth.ADMIN),
    Route("GET", _OF, "ListTransactions", list_transactions),
    Route("GET", _OF + "/state", "GetTransactionState", transaction_state),
    Route("GET", _ONE, "GetTransaction", get_transaction),
    Route("POST", _ONE + "/cancel", "CancelTransaction", cancel_transaction, auth=Auth.ADMIN),
    Route("POST", _ONE + "/retry", "RetryTransaction", retry_transaction, auth=Auth.ADMIN),
    Route("POST", "/chain/{chain}/park", "ParkChain", park_chain, auth=Auth.ADMIN),
    Route("POST", "/chain/{chain}/resume", "ResumeChain", resume_chain, auth=Auth.ADMIN),
    Route(
        "POST",
        "/chain/{chain}/release/{projectName}",
        "ReleaseLeases",
        release_leases,
        auth=Auth.ADMIN,
    ),
)
