"""Nonces: prepares transactions (checks, gas, fees, nonce, signature) and leases nonces to runs.

A *lease* is a prepared transaction whose event is not committed yet. Two rules keep the nonces of
an account without gaps. A transaction is not broadcast before its event is committed. And an
account serves one project at a time: all leases of a batch are committed or dropped before another
project gets a lease of this account.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from typing import NamedTuple

import msgspec

from fieldbrook.chain.concurrency import gather_or_cancel
from fieldbrook.chain.errors import RpcError
from fieldbrook.chain.transaction import (
    ContractCall,
    Market,
    TransactionRefusedError,
    fees_for,
    intrinsic_gas,
    max_cost,
    parse_call,
    sign,
)
from fieldbrook.chain.transactions.accounts import Account
from fieldbrook.chain.transactions.chain_state import (
    ChainState,
    Rpc,
    reason_of,
    returned,
)
from fieldbrook.chain.transactions.limits import Limits
from fieldbrook.chain.transactions.signatures import attempt
from fieldbrook.core.clock import Clock, now_ms
from fieldbrook.core.errors import ChainUnavailableError
from fieldbrook.core.model import Operator
from fieldbrook.core.settings import Chain
from fieldbrook.observability import fault_points
from fieldbrook.security.operator_keys import ECDSA, Vault
from fieldbrook.storage.chain.transactions import (
    INIT,
    LEASED,
    Transaction,
    TransactionWriter,
)
from fieldbrook.storage.registry.service import RegistryReader

log = logging.getLogger(__name__)


class TransactionRequest(NamedTuple):
    """A project's request for a transaction; see `actors.project.chains`.

    The project waits `within_s` seconds for the answer.
    """

    key: bytes
    operator: str | None
    request: bytes
    event_id: str
    event_type: str
    api: bytes
    within_s: float


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
        self.chain_state = ChainState(chain, rpc)
        self._rows = rows
        self._reader = reader
        self._vault = vault
        self._limits = Limits(rows, reader)
        self._clock = clock
        self._accounts: dict[str, Account] = {}
        for row in rows.unfinished.values():
            if row.state == LEASED:
                self._account(row.sender).open[row.call_key] = row

    # ---------------------------------------------------------------- what projects ask for

    async def prepare(
        self,
        project_id: int,
        wanted: TransactionRequest,
        held: Collection[bytes],
        is_waiting: Callable[[], bool] = lambda: True,
    ) -> Transaction:
        """Sign a transaction and lease its nonce to a run.

        Args:
            project_id: the project that asks.
            wanted: the request.
            held: call keys of the leases that the project's current batch holds. All other
                leases of the project are dropped.
            is_waiting: returns whether the project still waits on the connection of the request.

        Raises:
            TransactionRefusedError: the transaction was refused; the text gives the reason.
            ChainUnavailableError: no endpoint answers in time, or another project uses the key.
            StoreError: the lease could not be stored.
        """
        call = parse_call(wanted.request, sends=True)
        operator = self._operator(project_id, wanted.operator)
        try:
            async with asyncio.timeout(wanted.within_s), self.turn(operator.address, project_id):
                # After taking the lock, so that leases of earlier requests are known.
                if is_waiting():
                    self._keep_only(project_id, held)
                row = await self._prepared(project_id, wanted, call, operator)
                if not is_waiting():
                    raise TransactionRefusedError("the handler no longer waits for the transaction")
                return self._lease(self._account(operator.address), row)
        except TimeoutError:
            if not self._account(operator.address).is_free_for(project_id):
                reason = f"the key of operator {operator.name} is in use by another project"
            else:
                reason = "no endpoint answers in time"
            raise ChainUnavailableError(chain=self._chain.id, reason=reason) from None

    async def call(self, request: bytes, within_s: float) -> bytes:
        """Call a contract without a transaction and return its result.

        Args:
            request: the request of the guest, as JSON.
            within_s: how long the project waits.

        Raises:
            TransactionRefusedError: the call was refused; the text gives the reason.
            ChainUnavailableError: no endpoint answers in time.
        """
        wanted = parse_call(request, sends=False)
        fields = {"to": wanted.to, "data": "0x" + wanted.data.hex()}
        try:
            async with asyncio.timeout(within_s):
                params = [fields, "latest"]
                result = await self._rpc.call("eth_call", params, within_s=within_s)
        except TimeoutError:
            reason = "no endpoint answers in time"
            raise ChainUnavailableError(chain=self._chain.id, reason=reason) from None
        except RpcError as error:
            raise TransactionRefusedError(reason_of(error)) from error
        return returned(result)

    async def settle(self, project_id: int, committed: Collection[bytes]) -> None:
        """End the leases of a batch: `committed` ones become transactions, others are dropped."""
        leased = {row.call_key: row for row in self._leases_of(project_id)}
        self._end(
            [leased[key] for key in committed if key in leased],
            [row for key, row in leased.items() if key not in set(committed)],
        )

    async def resolve(
        self, project_id: int, committed: Collection[bytes], held: Collection[bytes]
    ) -> None:
        """End leases after a lost connection, according to the project's report.

        Leases in `committed` become transactions, leases in `held` stay open, and the project's
        other leases are dropped.
        """
        done, kept = set(committed), set(held)
        rows = self._leases_of(project_id)
        self._end(
            [row for row in rows if row.call_key in done],
            [row for row in rows if row.call_key not in done | kept],
        )

    def _keep_only(self, project_id: int, held: Collection[bytes]) -> None:
        """Drop all leases of a project except `held`."""
        kept = set(held)
        self._end([], [r for r in self._leases_of(project_id) if r.call_key not in kept])

    async def accept(self, row: Transaction) -> None:
        """Accept a transaction from a project's outbox, because its event is committed."""
        known = self._rows.get(row.transaction_id)
        if known is None:
            # The chain's store was lost, or was restored to a state before this lease.
            log.warning(
                "transaction %s: the chain's store did not have it and stores it again", row.name
            )
            self._end([row], [])
        elif known.state == LEASED:
            self._end([known], [])

    def projects(self) -> set[int]:
        """Return the ids of projects with open leases."""
        return {row.project_id for a in self._accounts.values() for row in a.open.values()}

    # ---------------------------------------------------------------- accounts

    @asynccontextmanager
    async def turn(self, address: str, project_id: int) -> AsyncIterator[None]:
        """Lock an account for one project, after the leases of other projects have ended."""
        account = self._account(address)
        await account.becomes_free_for(project_id)
        account.busy = True
        try:
            yield
        finally:
            account.busy = False
            account.changed()

    async def next_nonce(self, address: str, within_s: float | None = None) -> int:
        """Return the first nonce that neither the chain nor a transaction of the node has used."""
        counted = await self.chain_state.nonce_count(address, within_s)
        # If a reorganisation removed a block, the chain no longer counts its transactions. The
        # node sends them again, so their nonces count as used.
        followed = [*self._rows.unfinished.values(), *self._rows.watched.values()]
        ours = [row for row in followed if row.sender == address]
        used = self._account(address).first_unused(ours, self._clock())
        return max([counted, used, *(row.nonce + 1 for row in ours)])

    def secret_of(self, row: Transaction) -> bytes | None:
        """Return the private key that signed a transaction; None if the node no longer has it.

        If the operator was removed, the key may still belong to another operator of the
        project's account.
        """
        operator = self._reader.operator(row.operator_id)
        project = None if operator else self._reader.project(row.project_id)
        if project is not None:
            others = self._reader.operators(project.account_id)
            operator = next((other for other in others if other.address == row.sender), None)
        if operator is None or operator.address != row.sender:
            return None
        return self._vault.open(operator.sealed_key, operator.address)

    def _account(self, address: str) -> Account:
        return self._accounts.setdefault(address, Account())

    def _leases_of(self, project_id: int) -> list[Transaction]:
        return [
            row
            for account in self._accounts.values()
            for row in account.open.values()
            if row.project_id == project_id
        ]

    def _end(self, committed: Iterable[Transaction], dropped: Iterable[Transaction]) -> None:
        """End leases, first in the store and then in memory."""
        now = self._clock()
        done = [
            msgspec.structs.replace(row, state=INIT, created_at=now, updated_at=now)
            for row in committed
        ]
        lost = list(dropped)
        if done:
            fault_points.hit("chain.before_commit_stored")
            self._rows.commit(done, self._limits.counters_after(done, now))
            fault_points.hit("chain.commit_stored")
        if lost:
            fault_points.hit("chain.before_lease_return")
            self._rows.drop(lost)
            fault_points.hit("chain.leases_returned")
        touched = set()
        for row in [*done, *lost]:
            account = self._account(row.sender)
            account.open.pop(row.call_key, None)
            touched.add(row.sender)
        for row in lost:
            self._account(row.sender).drop(row)
        for address in touched:
            self._account(address).changed()

    # ---------------------------------------------------------------- one transaction

    def _operator(self, project_id: int, name: str | None) -> Operator:
        project = self._reader.project(project_id)
        if project is None:
            raise TransactionRefusedError("the project was removed")
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

    async def _prepared(
        self, project_id: int, wanted: TransactionRequest, call: ContractCall, operator: Operator
    ) -> Transaction:
        """Make the signed transaction of a request, or return the earlier lease of the same call.

        The caller stores the lease.

        Raises:
            TransactionRefusedError: a limit, the funds or the chain do not allow the transaction.
        """
        account = self._account(operator.address)
        earlier = account.open.get(wanted.key) or account.dropped.get(wanted.key)
        if earlier is not None and _is_same_call(earlier, call, operator, self._chain.id):
            if wanted.key in account.open:
                return earlier
            if earlier.nonce == await self.next_nonce(operator.address, wanted.within_s):
                return earlier
        now = self._clock()
        self._limits.check_rate(project_id, self._leases_of(project_id), now)
        gas, nonce, balance, (market, block_gas) = await self._account_state(
            operator.address, call, wanted.within_s
        )
        if gas > block_gas:
            raise TransactionRefusedError(
                f"gasLimit: {gas} is more than the {block_gas} of a whole block"
            )
        if gas < intrinsic_gas(call.data):
            raise TransactionRefusedError(
                f"gasLimit: {gas} is less than the {intrinsic_gas(call.data)} that the call needs"
            )
        fees = fees_for(market, self._chain.max_fee_per_gas)
        cost = max_cost(call, gas, fees)
        self._limits.check_funds(operator, balance, cost)
        self._limits.check_spending(project_id, self._leases_of(project_id), cost, now)
        secret = self._vault.open(operator.sealed_key, operator.address)
        signed = sign(secret, self._chain.id, nonce, call, gas, fees)
        fault_points.hit("chain.transaction_signed")
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

    def _lease(self, account: Account, row: Transaction) -> Transaction:
        self._rows.put(row)
        fault_points.hit("chain.lease_stored")
        account.open[row.call_key] = row
        account.take_dropped(row.call_key)
        return row

    async def _account_state(
        self, address: str, call: ContractCall, within_s: float
    ) -> tuple[int, int, int, tuple[Market, int]]:
        """Request gas, nonce, balance and fees concurrently."""
        state = self.chain_state
        fields = {
            "from": address,
            "to": call.to,
            "value": hex(call.value),
            "data": "0x" + call.data.hex(),
        }
        try:
            gas, nonce, balance, market = await gather_or_cancel(
                state.gas(call, fields, within_s),
                self.next_nonce(address, within_s),
                state.balance(address, within_s),
                state.market(within_s),
            )
        except RpcError as error:
            raise TransactionRefusedError(reason_of(error)) from error
        return gas, nonce, balance, market


def _is_same_call(row: Transaction, call: ContractCall, operator: Operator, chain_id: int) -> bool:
    """Return whether a lease is for exactly this call of this operator."""
    return (row.to, row.value, row.data, row.operator_id, row.sender, row.chain_id) == (
        call.to,
        str(call.value),
        call.data,
        operator.operator_id,
        operator.address,
        chain_id,
    ) and call.gas in (0, row.gas)
