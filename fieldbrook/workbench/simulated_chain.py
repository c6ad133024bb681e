"""Simulated chains for applets that run without a node; a `chain_file` has their answers.

A request for which the file has no answer is refused, and the reason names the missing entry.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from msgspec import UNSET

from fieldbrook.actors.project.capabilities import (
    NO_OBJECT,
    READ_ROUTE,
    api_fields,
    is_system,
    sent_by_name,
)
from fieldbrook.actors.project.chains import TX_EVENT, ChainName, chain_named, unknown_chain
from fieldbrook.chain.blocks.logs import normalize_hex
from fieldbrook.chain.transaction import ContractCall, TransactionRefusedError, parse_call
from fieldbrook.security.keccak import keccak256
from fieldbrook.security.operator_keys import eip55
from fieldbrook.wasm.host.api import decode, response
from fieldbrook.wasm.run import ApiCall, Effect, EffectRefusedError, Transaction
from fieldbrook.workbench.chain_file import Call, Chain, ChainFile, Sent
from fieldbrook.workbench.files import Json
from fieldbrook.workbench.simulated_transaction import (
    SimulatedTransaction,
    chain_receipt,
    chain_transaction,
    fee,
    outcome_payload,
    request_body,
)

DEFAULT_OPERATOR = "default"
_SHOWN = 200  # characters of a request within a reason
Query = Callable[[int, str, Json], tuple[str | None, str | None]]
"""Queries a real chain: (id, `eth_call`, its fields) gives (result, None) or (None, reason)."""


class _Call(NamedTuple):
    """A contract call that a run made. `key` is (chain id, contract address, data)."""

    run: int
    key: tuple[int, str, bytes]


class SimulatedChains:
    """The chains of a file, and the calls and transactions of runs on them.

    Runs are numbered and follow one another. `undo` reverts a failed run, like a node that drops
    the transactions of a handler that traps.

    Args:
        file: the chains; answers from `query` are added to it.
        name: the name of the file, for reasons of refusals.
        seed: the seed of transaction hashes that are not in the file.
        query: queries a real chain for answers that the file lacks; None without a real chain.
    """

    def __init__(self, file: ChainFile, name: str, seed: int, query: Query | None = None) -> None:
        self._file = file
        self._name = name
        self._seed = seed
        self._query = query
        self._chains = {chain.id: chain for chain in file.chains}
        self._calls: list[_Call] = []
        self._call_counts: Counter[tuple[int, str, bytes]] = Counter()
        self._transactions: list[SimulatedTransaction] = []
        self._by_hash: dict[tuple[int, str], SimulatedTransaction] = {}

    # ------------------------------------------------------------ requests of handlers

    def undo(self, run: int) -> None:
        """Revert the calls and transactions of `run`, if it made any; it must be the newest run."""
        while self._calls and self._calls[-1].run == run:
            self._call_counts[self._calls.pop().key] -= 1
        while self._transactions and self._transactions[-1].run == run:
            gone = self._transactions.pop()
            del self._by_hash[gone.chain.id, gone.hash.lower()]

    def send(
        self,
        run: int,
        chain_id: int | None,
        operator: str | None,
        request: bytes,
        event_type: str = TX_EVENT,
        api: bytes = b"",
    ) -> Transaction:
        """Accept a transaction of a run.

        Arguments and result are those of `ProjectChains.prepare`, except that `run` is a number
        and the chain is given by id; None is the default chain of the file, or its only one.

        Raises:
            EffectRefusedError: the transaction is refused; the text is the reason.
        """
        chain = self._chain(chain_id)
        call = _parsed(request, sends=True)
        sender = self._operator(chain, operator or DEFAULT_OPERATOR)
        entry = self._transaction_entry(chain, call, operator or DEFAULT_OPERATOR, sender)
        if entry is not None and entry.error is not None:
            raise EffectRefusedError(f"chain {_label(chain)}: {entry.error}")
        cost = call.value + (fee(entry.receipt) if entry is not None else 0)
        self._check_funds(chain, operator or DEFAULT_OPERATOR, sender, cost)
        nonce = sum(1 for t in self._transactions if (t.chain.id, t.sender) == (chain.id, sender))
        number = sum(1 for t in self._transactions if t.chain.id == chain.id) + 1
        found = SimulatedTransaction(
            run=run,
            chain=chain,
            entry=entry,
            sender=sender,
            nonce=nonce,
            call=call,
            cost=cost,
            hash=(entry.hash if entry is not None else None)
            or self._hash(chain, sender, nonce, call),
            name=f"{chain.id}-{number}",
            event_type=event_type,
            api=api,
        )
        if (chain.id, found.hash.lower()) in self._by_hash:
            raise EffectRefusedError(f"{self._name}: two transactions have the hash {found.hash}")
        self._transactions.append(found)
        self._by_hash[chain.id, found.hash.lower()] = found
        body = json.dumps(request_body(found)).encode()
        return Transaction(f"chain:{chain.id}", b"", found.hash, found.name, body)

    def send_by_name(
        self, run: int, request: bytes, event_type: str
    ) -> tuple[int, Transaction | str]:
        """Accept a transaction that `POST /system/send_tx` requests.

        Returns:
            The HTTP status of the answer, and the transaction or the reason of its refusal.
        """
        named = sent_by_name(request)
        if named is None:
            return HTTPStatus.BAD_REQUEST, NO_OBJECT
        try:
            chain = self._chain_by_name(named.chain)
            sent = self.send(run, chain.id, named.operator, named.body, event_type, request)
        except EffectRefusedError as error:
            return HTTPStatus.BAD_REQUEST, str(error)
        return HTTPStatus.OK, sent

    def call(self, run: int, chain_id: int | None, request: bytes) -> bytes:
        """Return the result of a contract call.

        Raises:
            EffectRefusedError: the call is refused; the text is the reason.
        """
        chain = self._chain(chain_id)
        wanted = _parsed(request, sends=False)
        key = chain.id, wanted.to, wanted.data
        entries = [entry for entry in chain.calls if _matches(entry.to, entry.data, wanted)]
        if not entries:
            entries = [self._queried_call(chain, wanted)]
        entry = entries[min(self._call_counts[key], len(entries) - 1)]
        self._call_counts[key] += 1
        self._calls.append(_Call(run, key))
        if entry.error is not None:
            raise EffectRefusedError(f"chain {_label(chain)}: {entry.error}")
        return bytes.fromhex((entry.result or "").removeprefix("0x"))

    # ------------------------------------------------------------ events after a run

    def answers(self, effects: Sequence[Effect], kinds: Sequence[str]) -> list[tuple[str, bytes]]:
        """Return the events, as (type, payload), with which a node reports results of effects.

        Args:
            effects: the effects of a run that ended without an error.
            kinds: event types that have a strategy of their own. Outcomes of transactions with
                another event type are dropped; answers to API calls are not.
        """
        found = []
        for effect in effects:
            if isinstance(effect, Transaction):
                sent = self._by_hash[int(effect.chain.partition(":")[2]), effect.hash.lower()]
                if sent.event_type in kinds:
                    found.append((sent.event_type, outcome_payload(sent)))
            elif isinstance(effect, ApiCall):
                answer = self._read_answer(effect.request)
                if answer is not None:
                    found.append((effect.event_type, answer))
        return found

    def _read_answer(self, request: bytes) -> bytes | None:
        """Return the answer to `GET /system/read_tx`, or None for any other request."""
        decoded = decode(request)
        if decoded is None or not is_system(decoded["Url"]):
            return None
        parts = urlsplit(decoded["Url"])
        if (decoded["Method"], parts.path) != READ_ROUTE:
            return None
        header = decoded["Header"]
        fields: Json = dict(parse_qsl(parts.query))
        fields |= (api_fields(request) or {}) if decoded["Body"] else {}
        try:
            chain = self._chain_by_name(str(fields.get("chainName", "")))
            found = self._transaction_and_receipt(chain, str(fields.get("hash", "")))
        except EffectRefusedError as error:
            text = json.dumps({"error": str(error)}).encode()
            return response(HTTPStatus.BAD_REQUEST, header, text)
        return response(HTTPStatus.OK, header, json.dumps(found).encode())

    def _transaction_and_receipt(self, chain: Chain, hash_: str) -> Json:
        """Return a transaction and its receipt, in the form that a node gets from a chain."""
        full = normalize_hex(hash_)
        sent = self._by_hash.get((chain.id, full))
        if sent is not None:
            return {"transaction": chain_transaction(sent), "receipt": chain_receipt(sent)}
        for entry in chain.transactions or ():
            if (entry.hash or "").lower() == full and entry.receipt is not UNSET:
                transaction = None if entry.transaction is UNSET else entry.transaction
                return {"transaction": transaction, "receipt": entry.receipt}
        raise EffectRefusedError(
            f"{self._name}: chain {_label(chain)} has no transaction {hash_[:_SHOWN]!r} with a "
            f"receipt, and no run has sent it"
        )

    # ------------------------------------------------------------ entries of the file

    def _chain(self, chain_id: int | None) -> Chain:
        names = [ChainName(chain.id, chain.name) for chain in self._file.chains]
        try:
            return self._chains[chain_named(names, chain_id, self._file.default_chain).chain_id]
        except EffectRefusedError as error:
            raise EffectRefusedError(f"{self._name}: {error}") from None

    def _chain_by_name(self, name: str) -> Chain:
        for chain in self._file.chains:
            if name in (chain.name, str(chain.id)):
                return chain
        known = [ChainName(chain.id, chain.name) for chain in self._file.chains]
        raise EffectRefusedError(f"{self._name}: {unknown_chain(name, known)}")

    def _operator(self, chain: Chain, name: str) -> str:
        """Return the address of an operator; without `operators` it is derived from the name."""
        if chain.operators is None:
            return eip55(keccak256(f"operator {name}".encode())[-20:])
        address = chain.operators.get(name)
        if address is None:
            raise EffectRefusedError(
                f"{self._name}: chain {_label(chain)} has no operator {name[:64]!r}: it has "
                f"{', '.join(chain.operators) or 'none'}"
            )
        return address

    def _transaction_entry(
        self, chain: Chain, call: ContractCall, operator: str, sender: str
    ) -> Sent | None:
        """Return the entry for a transaction; None: the file has no list, so any is accepted."""
        used = [id(sent.entry) for sent in self._transactions]
        entries = [
            entry
            for entry in chain.transactions or ()
            if _matches(entry.to, entry.data, call)
            and entry.value in (None, str(call.value))
            and entry.operator in (None, operator)
        ]
        for entry in entries:
            if entry.error is not None or id(entry) not in used:
                return entry
        if self._query is not None:
            return self._queried_transaction(chain, call, operator, sender)
        if chain.transactions is None:
            return None
        lacks = {"to": call.to, "value": str(call.value), "data": _shortened(call.data)}
        raise self._missing(chain, "transactions", lacks, len(entries))

    def _missing(self, chain: Chain, key: str, entry: Json, used: int = 0) -> EffectRefusedError:
        beside = f", beside the {used} that were sent" if used else ""
        text = f"`{key}` of chain {_label(chain)} lacks {json.dumps(entry)}{beside}"
        return EffectRefusedError(f"{self._name}: {text}")

    def _check_funds(self, chain: Chain, operator: str, sender: str, cost: int) -> None:
        if chain.balances is None:
            return
        if sender not in chain.balances:
            raise EffectRefusedError(
                f"{self._name}: `balances` of chain {_label(chain)} lacks {sender} "
                f"(operator {operator})"
            )
        left = int(chain.balances[sender])
        for sent in self._transactions:
            if sent.chain.id == chain.id:
                left -= sent.cost if sent.sender == sender else 0
                left += sent.call.value if sent.call.to == sender else 0
        if left < cost:
            raise EffectRefusedError(
                f"chain {_label(chain)}: insufficient funds: operator {operator} ({sender}) has "
                f"{left} wei; this transaction may take {cost}"
            )

    def _hash(self, chain: Chain, sender: str, nonce: int, call: ContractCall) -> str:
        head = f"{self._seed} {chain.id} {sender} {nonce} {call.to} {call.value} "
        return "0x" + keccak256(head.encode() + call.data).hex()

    # ------------------------------------------------------------ answers of real chains

    def _queried_call(self, chain: Chain, wanted: ContractCall) -> Call:
        if self._query is None:
            lacks = {"to": wanted.to, "data": _shortened(wanted.data)}
            raise self._missing(chain, "calls", lacks)
        fields = {"to": wanted.to, "data": "0x" + wanted.data.hex()}
        result, error = self._query(chain.id, "eth_call", fields)
        entry = Call(to=wanted.to, data=fields["data"], result=result, error=error)
        chain.calls.append(entry)
        return entry

    def _queried_transaction(
        self, chain: Chain, call: ContractCall, operator: str, sender: str
    ) -> Sent:
        """Query the real chain whether it would accept a transaction, without sending it.

        Returns:
            The new entry of the file, with the chain's error if it would refuse.
        """
        assert self._query is not None
        data = "0x" + call.data.hex()
        fields = {"from": sender, "to": call.to, "value": hex(call.value), "data": data}
        _, error = self._query(chain.id, "eth_call", fields)
        entry = Sent(to=call.to, value=str(call.value), data=data, operator=operator, error=error)
        chain.transactions = [*(chain.transactions or ()), entry]
        return entry


def _parsed(request: bytes, *, sends: bool) -> ContractCall:
    try:
        return parse_call(request, sends=sends)
    except TransactionRefusedError as error:
        raise EffectRefusedError(str(error)) from None


def _matches(to: str, data: str | None, call: ContractCall) -> bool:
    return to == call.to and data in (None, "0x" + call.data.hex())


def _label(chain: Chain) -> str:
    return f"{chain.id} ({chain.name})" if chain.name else str(chain.id)


def _shortened(data: bytes) -> str:
    """Shorten data for a reason, because log records have at most 1024 characters."""
    text = "0x" + data.hex()
    return text if len(text) <= 2 * _SHOWN else f"{text[: 2 * _SHOWN]}..."
