"""Transactions and contract calls.

A chain that is not configured gives the guest code -1 and a log record.
"""

from __future__ import annotations

from fieldbrook.core.bounded_json import from_json
from fieldbrook.wasm.host.guest import Functions, Guest, GuestError
from fieldbrook.wasm.module import abi

_REQUEST_BYTES = 1 << 20


def functions(guest: Guest) -> Functions:
    """Return `ws_send_tx`, `ws_send_tx_with_operator`, `ws_call_contract` and older variants."""

    def request_at(pointer: int, size: int) -> bytes:
        if size > _REQUEST_BYTES:
            raise GuestError(f"the request has more than {_REQUEST_BYTES} bytes")
        return guest.read(pointer, size)

    def send(chain: int | None, operator: str | None, request: bytes) -> bytes:
        run = guest.run
        if guest.effects_left <= 0:
            guest.end_budget("effects", guest.limits.effects, "per event")
        sent = run.capabilities.send_transaction(run, chain, operator, request)
        guest.add_effect(sent, len(sent.body))
        return sent.hash.encode()

    def call(chain: int | None, request: bytes) -> bytes:
        run = guest.run
        return run.capabilities.call_contract(run, chain, request)

    def ws_send_tx(chain: int, pointer: int, size: int, hash_at: int, size_at: int) -> int:
        guest.copy_to_guest(send(chain, None, request_at(pointer, size)), hash_at, size_at)
        return abi.OK

    def ws_send_tx_with_operator(
        chain: int, pointer: int, size: int, hash_at: int, size_at: int
    ) -> int:
        request = request_at(pointer, size)
        guest.copy_to_guest(send(chain, _operator(request), request), hash_at, size_at)
        return abi.OK

    def ws_send_tx_one_chain(pointer: int, size: int) -> int:
        send(None, None, request_at(pointer, size))
        return abi.OK

    def ws_call_contract(chain: int, pointer: int, size: int, at: int, size_at: int) -> int:
        guest.copy_to_guest(call(chain, request_at(pointer, size)), at, size_at)
        return abi.OK

    def ws_call_contract_one_chain(pointer: int, size: int, at: int, size_at: int) -> int:
        guest.copy_to_guest(call(None, request_at(pointer, size)), at, size_at)
        return abi.OK

    return {
        abi.WS_SEND_TX: ws_send_tx,
        abi.WS_SEND_TX_WITH_OPERATOR: ws_send_tx_with_operator,
        abi.WS_SEND_TX_ONE_CHAIN: ws_send_tx_one_chain,
        abi.WS_CALL_CONTRACT: ws_call_contract,
        abi.WS_CALL_CONTRACT_ONE_CHAIN: ws_call_contract_one_chain,
    }


def _operator(request: bytes) -> str | None:
    try:
        value = from_json(request)
    except ValueError as error:
        raise GuestError(f"the request is not JSON: {error}") from None
    name = value.get("operatorName") if isinstance(value, dict) else None
    return name if isinstance(name, str) and name else None
