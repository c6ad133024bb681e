"""Nonces: prepares transactions (checks, gas, fees, nonce, signature) and leases nonces to runs.

A lease is a prepared transaction whose event is not committed yet. The nonces of an account
have no gaps for two reasons: nothing is broadcast before its event is committed, and an account
serves one project at a time. The leases of a batch end, committed or dropped, before another
project gets one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Protocol

import msgspec

from fieldbrook.actors.project.traffic import window_of
from fieldbrook.chain.errors import MalformedAnswerError, RpcError
from fieldbrook.chain.rpc.answers import hex_bytes, quantity
from fieldbrook.chain.transaction import (
    ContractCall,
    Fees,
    Market,
    TransactionRefusedError,
    fees_for,
    gas_limit,
    intrinsic_gas,
    parse_call,
    revert_reason,
    sign,
    worst_cost,
)
from fieldbrook.core.clock import Clock, now_ms
from fieldbrook.core.durations import format_duration
from fieldbrook.core.errors import ChainUnavailableError, StoreError
from fieldbrook.core.model import BLOCKCHAIN, Operator
from fieldbrook.core.settings import Chain
from fieldbrook.observability import fault_points
from fieldbrook.security.operator_keys import ECDSA, Vault
from fieldbrook.storage.chain.transactions import (
    IN_BLOCK,
    INIT,
    LEASED,
    Attempt,
    Spending,
    Transaction,
    TransactionWriter,
)
from fieldbrook.storage.registry.service import RegistryReader

log = logging.getLogger(__name__)

REQUEST_LIMIT_S = 1.6  # a project waits 2 s for the answer
ENDPOINT_LIMIT_S = 0.7  # after this time the next endpoint is asked
UNFINISHED_LIMIT = 1_000  # unfinished transactions of one project
_MARKET_KEPT_S = 2.0
_PRIORITY_WEI = 1_000_000_000
_DROPPED_KEPT = 1_024
_NO_WINDOW = -1
DAY_MS = 86_400_000
LEGACY = -1
RESULT_LIMIT_BYTES = 4 << 20
"""Limit of the data that a contract call returns to a guest."""


class Rpc(Protocol):
    """The part of `chain.rpc.client.ChainClient` that this module uses."""

    async def call(
        self, method: str, params: list[Any], *, limit_s: float | None = None
    ) -> Any: ...


class Wanted(NamedTuple):
    """A project's request for a transaction; see `actors.project.chains`."""

    key: bytes
    operator: str | None
    request: bytes
    event_id: str
    event_type: str
    api: bytes


class _Account:
    """The nonces of one address."""

    def __init__(self) -> None:
        self.open: dict[bytes, Transaction] = {}  # leases, in the order of their nonces
        self.dropped: dict[bytes, Transaction] = {}  # dropped leases that a new run may reuse
        self.busy = False
        self.changed = asyncio.Condition()

    def is_free_for(self, project_id: int) -> bool:
        return not self.busy and all(row.project_id == project_id for row in self.open.values())


class Leases:
    """Prepares transactions, and records which leases were committed or dropped.

    Args:
        chain: the settings of the chain.
        rpc: the client of the chain.
        rows: the stored transactions of the chain, including leases from before a crash.
        reader: reads the registry.
        vault: decrypts the keys of operators.
        clock: returns Unix milliseconds.
    """

    def __init__(
        self,
        chain: Chain,
        rpc: Rpc,
        rows: TransactionWriter,
        reader: RegistryReader,
        vault: Vault,
        clock: Clock = now_ms,
    ) -> None:
        self._chain = chain
        self._rpc = rpc
        self._rows = rows
        self._reader = reader
        self._vault = vault
        self._clock = clock
        self._accounts: dict[str, _Account] = {}
        self._market: tuple[float, Market, int] | None = None
        for row in rows.unfinished.values():
            if row.state == LEASED:
                self._account(row.sender).open[row.call_key] = row

    # ---------------------------------------------------------------- what projects ask for

    async def prepare(
        self,
        project_id: int,
        wanted: Wanted,
        held: Collection[bytes],
        waits: Callable[[], bool] = lambda: True,
    ) -> Transaction:
        """Sign a transaction and lease its nonce to a run.

        Args:
            project_id: the project that asks.
            wanted: the request.
            held: call keys of the leases that the project's batch holds. Its other leases are
                dropped.
            waits: returns whether the project still waits on the connection of the request.

        Raises:
            TransactionRefusedError: the transaction was refused, for the reason given.
            StoreError: it could not be stored.
        """
        call = parse_call(wanted.request, sends=True)
        operator = self._operator(project_id, wanted.operator)
        try:
            async with asyncio.timeout(REQUEST_LIMIT_S), self.turn(operator.address, project_id):
                # Inside the turn, so that leases of earlier requests are known here.
                if waits():
                    await self.keep_only(project_id, held)
                row = await self._made(project_id, wanted, call, operator)
                if not waits():
                    raise TransactionRefusedError("nobody waits for it any more")
                return self._lease(self._account(operator.address), row)
        except TimeoutError:
            if not self._account(operator.address).is_free_for(project_id):
                reason = f"the key of operator {operator.name} is in use by another project"
                raise TransactionRefusedError(reason) from None
            raise TransactionRefusedError("no endpoint answers in time") from None
        except ChainUnavailableError as error:
            raise TransactionRefusedError(str(error)) from error

    async def call(self, request: bytes) -> bytes:
        """Call a contract without a transaction and return its result.

        Raises:
            TransactionRefusedError: the call was refused, for the reason given.
            ChainUnavailableError: no endpoint answered in time.
        """
        wanted = parse_call(request, sends=False)
        fields = {"to": wanted.to, "data": "0x" + wanted.data.hex()}
        try:
            async with asyncio.timeout(REQUEST_LIMIT_S):
                result = await self._call("eth_call", [fields, "latest"])
        except TimeoutError:
            reason = "no endpoint answers in time"
            raise ChainUnavailableError(chain=self._chain.id, reason=reason) from None
        except RpcError as error:
            raise TransactionRefusedError(reason_of(error)) from error
        return returned(result)

    async def settle(self, project_id: int, committed: Collection[bytes]) -> None:
        """End the leases of a batch: keep those in `committed` as transactions, drop the others."""
        leased = {row.call_key: row for row in self._leases_of(project_id)}
        await self._close(
            [leased[key] for key in committed if key in leased],
            [row for key, row in leased.items() if key not in set(committed)],
        )

    async def resolve(
        self, project_id: int, committed: Collection[bytes], held: Collection[bytes]
    ) -> None:
        """End leases after a lost connection, as the project reports them.

        Leases in `committed` become transactions, leases in `held` stay open, and the project's
        other leases are dropped.
        """
        done, kept = set(committed), set(held)
        rows = self._leases_of(project_id)
        await self._close(
            [row for row in rows if row.call_key in done],
            [row for row in rows if row.call_key not in done | kept],
        )

    async def keep_only(self, project_id: int, held: Collection[bytes]) -> None:
        """Drop all leases of a project except `held`."""
        kept = set(held)
        await self._close([], [r for r in self._leases_of(project_id) if r.call_key not in kept])

    async def accept(self, row: Transaction) -> None:
        """Accept a transaction from a project's outbox, whose event is therefore committed."""
        known = self._rows.get(row.transaction_id)
        if known is None:
            # The chain's store was lost, or restored to a state before this lease.
            log.warning("transaction %s was not known here any more", row.name)
            await self._close([row], [])
        elif known.state == LEASED:
            await self._close([known], [])

    def projects(self) -> set[int]:
        """Return the ids of projects with open leases."""
        return {row.project_id for a in self._accounts.values() for row in a.open.values()}

    # ---------------------------------------------------------------- accounts

    @asynccontextmanager
    async def turn(self, address: str, project_id: int) -> AsyncIterator[None]:
        """Lock an account for one project; waits while another project has leases of it."""
        account = self._account(address)
        async with account.changed:
            await account.changed.wait_for(lambda: account.is_free_for(project_id))
            account.busy = True
        try:
            yield
        finally:
            account.busy = False
            await self._notify(account)

    async def next_nonce(self, address: str) -> int:
        """Return the first nonce above those used on the chain and by the node's transactions."""
        counted = number(await self._call("eth_getTransactionCount", [address, "pending"]))
        ours = [row.nonce + 1 for row in self._rows.unfinished.values() if row.sender == address]
        return max([counted, *ours])

    async def market(self) -> tuple[Market, int]:
        """Return the chain's fees, at most `_MARKET_KEPT_S` old, and the gas limit of a block."""
        now = asyncio.get_running_loop().time()
        if self._market is not None and now - self._market[0] < _MARKET_KEPT_S:
            return self._market[1], self._market[2]
        block = await self._call("eth_getBlockByNumber", ["latest", False])
        base = block.get("baseFeePerGas")
        if base is None:
            price = number(await self._call("eth_gasPrice", []))
            market = Market(None, 0, price)
        else:
            market = Market(number(base), await self._priority(), 0)
        self._market = now, market, number(block["gasLimit"])
        return market, self._market[2]

    def secret_of(self, row: Transaction) -> bytes | None:
        """Return the private key that signed a transaction, None if it is gone.

        If the operator was removed, another operator of the project's account with the same
        key is used.
        """
        operator = self._reader.operator(row.operator_id)
        project = None if operator else self._reader.project(row.project_id)
        if project is not None:
            others = self._reader.operators(project.account_id)
            operator = next((other for other in others if other.address == row.sender), None)
        if operator is None or operator.address != row.sender:
            return None
        return self._vault.open(operator.sealed_key, operator.address)

    def _account(self, address: str) -> _Account:
        return self._accounts.setdefault(address, _Account())

    def _leases_of(self, project_id: int) -> list[Transaction]:
        return [
            row
            for account in self._accounts.values()
            for row in account.open.values()
            if row.project_id == project_id
        ]

    async def _notify(self, account: _Account) -> None:
        async with account.changed:
            account.changed.notify_all()

    async def _close(
        self, committed: Iterable[Transaction], dropped: Iterable[Transaction]
    ) -> None:
        """End leases, first in the store, then in memory."""
        now = self._clock()
        done = [
            msgspec.structs.replace(row, state=INIT, created_at=now, updated_at=now)
            for row in committed
        ]
        lost = list(dropped)
        if done:
            fault_points.hit("chain.commits")
            self._rows.commit(done, self._spent(done, now))
            fault_points.hit("chain.committed")
        if lost:
            fault_points.hit("chain.drops")
            self._rows.drop(lost)
            fault_points.hit("chain.dropped")
        touched = set()
        for row in [*done, *lost]:
            account = self._account(row.sender)
            account.open.pop(row.call_key, None)
            touched.add(row.sender)
        for row in lost:
            dropped_here = self._account(row.sender).dropped
            dropped_here[row.call_key] = row
            if len(dropped_here) > _DROPPED_KEPT:
                del dropped_here[next(iter(dropped_here))]
        for address in touched:
            await self._notify(self._account(address))

    # ---------------------------------------------------------------- one transaction

    def _operator(self, project_id: int, name: str | None) -> Operator:
        project = self._reader.project(project_id)
        if project is None:
            raise TransactionRefusedError("the project is gone")
        if name:
            operator = self._reader.operator_named(project.account_id, name)
        else:
            operator = self._reader.operator_of_project(project)
        if operator is None:
            reason = f"the project's account has no operator {(name or 'default')[:64]!r}"
            raise TransactionRefusedError(reason)
        if operator.kind != ECDSA:
            raise TransactionRefusedError(
                f"operator {operator.name} has an ED25519 key, which cannot sign for an EVM chain"
            )
        return operator

    async def _made(
        self, project_id: int, wanted: Wanted, call: ContractCall, operator: Operator
    ) -> Transaction:
        """Make the transaction, or reuse the lease of the same call; it is not leased yet.

        Raises:
            TransactionRefusedError: a limit, the funds or the chain do not allow it.
        """
        account = self._account(operator.address)
        again = account.open.get(wanted.key) or account.dropped.get(wanted.key)
        if again is not None and _is_same(again, call, operator, self._chain.id):
            if wanted.key in account.open:
                return again
            if again.nonce == await self.next_nonce(operator.address):
                return again
        now = self._clock()
        self._check_rate(project_id, now)
        gas, nonce, balance, (market, block_gas) = await self._ask(operator.address, call)
        if gas > block_gas:
            raise TransactionRefusedError(f"gasLimit: a block has {block_gas}")
        if gas < intrinsic_gas(call.data):
            raise TransactionRefusedError(f"gasLimit: it needs {intrinsic_gas(call.data)} at least")
        fees = fees_for(market, self._chain.max_fee_per_gas)
        cost = worst_cost(call, gas, fees)
        self._check_funds(operator, balance, cost)
        self._check_spending(project_id, cost, now)
        secret = self._vault.open(operator.sealed_key, operator.address)
        signed = sign(secret, self._chain.id, nonce, call, gas, fees)
        fault_points.hit("chain.signed")
        return Transaction(
            transaction_id=self._rows.new_id(),
            chain_id=self._chain.id,
            project_id=project_id,
            call_key=wanted.key,
            event_id=wanted.event_id,
            operator_id=operator.operator_id,
            operator_name=operator.name,
            sender=operator.address,
            to=call.to,
            value=str(call.value),
            data=call.data,
            gas=gas,
            attempts=[attempt(signed.hash, signed.raw, nonce, fees, now)],
            event_type=wanted.event_type,
            api=wanted.api,
            created_at=now,
            updated_at=now,
        )

    def _lease(self, account: _Account, row: Transaction) -> Transaction:
        self._rows.put(row)
        fault_points.hit("chain.leased")
        account.open[row.call_key] = row
        account.dropped.pop(row.call_key, None)
        return row

    async def _ask(
        self, address: str, call: ContractCall
    ) -> tuple[int, int, int, tuple[Market, int]]:
        """Request gas, nonce, balance and fees concurrently."""
        fields = {
            "from": address,
            "to": call.to,
            "value": hex(call.value),
            "data": "0x" + call.data.hex(),
        }
        try:
            return await asyncio.gather(
                self._gas(call, fields),
                self.next_nonce(address),
                self._number("eth_getBalance", [address, "latest"]),
                self.market(),
            )
        except RpcError as error:
            raise TransactionRefusedError(reason_of(error)) from error

    async def _gas(self, call: ContractCall, fields: Mapping[str, str]) -> int:
        if call.gas:
            return call.gas
        return gas_limit(await self._number("eth_estimateGas", [fields]))

    async def _number(self, method: str, params: list[Any]) -> int:
        return number(await self._call(method, params))

    async def _call(self, method: str, params: list[Any]) -> Any:
        """Send a request with a short limit, so that there is time to ask another endpoint."""
        return await self._rpc.call(method, params, limit_s=ENDPOINT_LIMIT_S)

    async def _priority(self) -> int:
        try:
            return number(await self._call("eth_maxPriorityFeePerGas", []))
        except RpcError:  # not every node supports the method
            return _PRIORITY_WEI

    # ---------------------------------------------------------------- limits

    def _check_funds(self, operator: Operator, balance: int, cost: int) -> None:
        promised = sum(
            unpaid(row)
            for row in self._rows.unfinished.values()
            if row.sender == operator.address and row.state != IN_BLOCK
        )
        if balance - promised < cost:
            others = f", {promised} of them for transactions under way" if promised else ""
            raise TransactionRefusedError(
                f"insufficient funds: operator {operator.name} ({operator.address}) has {balance} "
                f"wei{others}; it may take {cost}"
            )

    def _check_rate(self, project_id: int, now: int) -> None:
        under_way = sum(1 for row in self._rows.unfinished.values() if row.project_id == project_id)
        if under_way >= UNFINISHED_LIMIT:
            raise TransactionRefusedError(f"{under_way} transactions of the project are under way")
        limits = self._reader.traffic_limits(project_id)
        limit = next((found for found in limits if found.api_type == BLOCKCHAIN), None)
        if limit is None:
            return
        spent = self._rows.spending(project_id)
        count = spent.window_count if spent.window == window_of(limit, now) else 0
        if count + len(self._leases_of(project_id)) >= limit.threshold:
            duration = format_duration(limit.duration_ms)
            raise TransactionRefusedError(
                f"traffic limit: the project may send {limit.threshold} transactions per {duration}"
            )

    def _check_spending(self, project_id: int, cost: int, now: int) -> None:
        limit = self._reader.spending_limit(project_id)
        if limit is None:
            return
        spent = self._rows.spending(project_id)
        today = int(spent.day_wei) if spent.day == now // DAY_MS else 0
        today += sum(unpaid(row) for row in self._leases_of(project_id))
        if today + cost > limit:
            raise TransactionRefusedError(
                f"spending limit: the project may spend {limit} wei a day; {today} are spent, "
                f"and this may take {cost}"
            )

    def _spent(self, rows: list[Transaction], now: int) -> dict[int, Spending]:
        """Return the counters of projects as they will be after these commits."""
        spent: dict[int, Spending] = {}
        for row in rows:
            project_id = row.project_id
            before = spent.get(project_id) or self._rows.spending(project_id)
            window = self._window(project_id, now)
            day = now // DAY_MS
            count = before.window_count if before.window == window else 0
            wei = int(before.day_wei) if before.day == day else 0
            spent[project_id] = msgspec.structs.replace(
                before,
                window=window,
                window_count=count + 1,
                day=day,
                day_wei=str(wei + unpaid(row)),
            )
        return spent

    def _window(self, project_id: int, now: int) -> int:
        try:
            limits = self._reader.traffic_limits(project_id)
        except StoreError:  # a lost count does less harm than a lost transaction
            return _NO_WINDOW
        limit = next((found for found in limits if found.api_type == BLOCKCHAIN), None)
        return _NO_WINDOW if limit is None else window_of(limit, now)


def attempt(
    hash_: str, raw: bytes, nonce: int, fees: Fees, now: int, why: str = "", cancels: bool = False
) -> Attempt:
    """Make the record of one signature."""
    priority = LEGACY if fees.priority is None else fees.priority
    return Attempt(hash_, raw, nonce, fees.limit, priority, now, why, cancels)


def fees_of(tried: Attempt) -> Fees:
    """Return the fees of a signature."""
    return Fees(tried.limit, None if tried.priority == LEGACY else tried.priority)


def call_of(row: Transaction) -> ContractCall:
    """Return the call of a transaction."""
    return ContractCall(row.to, int(row.value), row.data, row.gas)


def unpaid(row: Transaction) -> int:
    """Return the most that a transaction's last signature can cost its account, in wei."""
    return int(row.value) + row.gas * row.last.limit


def number(value: Any) -> int:
    """Read a quantity of JSON-RPC.

    Raises:
        ChainUnavailableError: the value is not a quantity, so the endpoint is unusable.
    """
    try:
        return quantity(value)
    except MalformedAnswerError:
        raise _useless(value) from None


def returned(value: Any) -> bytes:
    """Read bytes of JSON-RPC, at most `RESULT_LIMIT_BYTES`.

    Raises:
        ChainUnavailableError: the value is not bytes, or too large.
    """
    if isinstance(value, str) and len(value) > 2 + 2 * RESULT_LIMIT_BYTES:
        raise _useless(value)
    try:
        return bytes.fromhex(hex_bytes(value)[2:])
    except MalformedAnswerError:
        raise _useless(value) from None


def _useless(value: Any) -> ChainUnavailableError:
    shown = value[:40] if isinstance(value, str) else type(value).__name__
    return ChainUnavailableError(chain="", reason=f"an endpoint answered {shown!r}")


def reason_of(error: RpcError) -> str:
    """Return why a node refused a call, with the contract's reason if it reverted."""
    data = error.data.get("data") if isinstance(error.data, dict) else error.data
    if isinstance(data, str) and data.startswith("0x"):
        try:
            return revert_reason(bytes.fromhex(data[2:]))
        except ValueError:
            return error.text
    return error.text or "refused without a reason"


def _is_same(row: Transaction, call: ContractCall, operator: Operator, chain_id: int) -> bool:
    """Return whether a lease is for exactly this call."""
    return (row.to, row.value, row.data, row.operator_id, row.sender, row.chain_id) == (
        call.to,
        str(call.value),
        call.data,
        operator.operator_id,
        operator.address,
        chain_id,
    ) and call.gas in (0, row.gas)
