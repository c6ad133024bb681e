"""Transactions as pure functions: parsing requests, choosing fees, signing, reading reverts.

The guest gives recipient, value and data. The node chooses gas and fees from the chain's current
fees, up to a cap. If no block includes a transaction, the node signs it again with the same nonce
and higher fees. This is safe because a chain includes only one transaction per nonce.

Source: ABI document, 3.1 (`ws_send_tx`); EIP-55, EIP-155, EIP-1559; the rules by which nodes
replace a transaction in their pool (go-ethereum: both fees at least 10 % higher).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from fieldbrook.chain.libraries import preserve_recursion_limit
from fieldbrook.core.bounded_json import from_json
from fieldbrook.security.operator_keys import eip55

if TYPE_CHECKING:
    from eth_account import Account

DATA_LIMIT_BYTES = 120 << 10  # nodes refuse a transaction of more than 128 KiB
TRANSFER_GAS = 21_000
_WORD = 1 << 256
_GAS_LIMIT = 1 << 40
_DIGITS = 78  # length of the largest 256-bit number

_ADDRESS = re.compile(r"(?:0x)?([0-9a-fA-F]{40})\Z", re.ASCII)
_DECIMAL = re.compile(rf"[0-9]{{1,{_DIGITS}}}\Z", re.ASCII)
_HEX = re.compile(r"(?:0x)?((?:[0-9a-fA-F]{2})*+)\Z", re.ASCII)
_ERROR_STRING = bytes.fromhex("08c379a0")  # Error(string)
_PANIC = bytes.fromhex("4e487b71")  # Panic(uint256)
_REASON_LIMIT = 256
_BRACKETS = 64


class TransactionRefusedError(Exception):
    """A transaction, a call or a command was refused. The text gives the reason for the user."""


class ContractCall(msgspec.Struct, array_like=True, frozen=True):
    """A call as the guest requests it.

    `to` is an address in EIP-55 form, and `value` is in wei. `gas` is the gas limit that the
    guest chose; 0 means that an endpoint estimates it.
    """

    to: str
    value: int
    data: bytes
    gas: int = 0


class Market(NamedTuple):
    """A chain's current fees, in wei per gas.

    `base_fee` is None on a chain without EIP-1559 fees. Such a chain uses only `gas_price`.
    """

    base_fee: int | None
    priority: int
    gas_price: int


class Fees(msgspec.Struct, array_like=True, frozen=True):
    """The highest fees that a transaction pays, in wei per gas.

    `priority` is None for a legacy transaction, whose gas price is `limit`.
    """

    limit: int
    priority: int | None


class Signed(NamedTuple):
    """A signed transaction: its hash (0x and 64 digits) and its raw bytes."""

    hash: str
    raw: bytes


# ---------------------------------------------------------------- requests of guests


def parse_call(request: bytes, *, sends: bool) -> ContractCall:
    """Parse the call that a guest describes as JSON.

    Args:
        request: `{"to": "0x…", "value": "<decimal wei>", "data": "<hex>"}`. `to` is required,
            `value` only for a transaction. `gasLimit` is optional.
        sends: True for a transaction, False for a call that only reads.

    Raises:
        TransactionRefusedError: the request is malformed; the reason names the field.
    """
    # Bound the nesting before parsing, so that the parser cannot reach Python's recursion limit.
    if request.count(b"[") + request.count(b"{") > _BRACKETS:
        raise TransactionRefusedError(
            "the request has too many nested values; its values must be texts"
        )
    try:
        fields = from_json(request)
    except ValueError:
        raise TransactionRefusedError("the request is not JSON") from None
    if not isinstance(fields, dict):
        raise TransactionRefusedError("the request is not a JSON object")
    return ContractCall(
        to=_address(fields.get("to")),
        value=_number(fields.get("value", ""), "value", _WORD) if sends else 0,
        data=_data(fields.get("data")),
        gas=_gas(fields.get("gasLimit")),
    )


def _address(value: Any) -> str:
    if not value:
        raise TransactionRefusedError("to: an address is required")
    found = _ADDRESS.match(value) if isinstance(value, str) else None
    if found is None:
        reason = f"to: {_shown(value)} is not an address (0x and 40 hexadecimal digits)"
        raise TransactionRefusedError(reason)
    digits = found[1]
    address = eip55(bytes.fromhex(digits))
    if digits not in (digits.lower(), digits.upper(), address[2:]):
        raise TransactionRefusedError(
            f"to: the capital letters of {_shown(value)} do not match the checksum (EIP-55); "
            f"did you mean {address}?"
        )
    return address


def _number(value: Any, name: str, limit: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        number = value
    elif isinstance(value, str) and _DECIMAL.match(value):
        number = int(value)
    else:
        raise TransactionRefusedError(f"{name}: {_shown(value)} is not a decimal number")
    if number >= limit:
        raise TransactionRefusedError(f"{name}: {_shown(value)} is too large")
    return number


def _data(value: Any) -> bytes:
    found = _HEX.match(value or "") if isinstance(value, str) or value is None else None
    if found is None:
        raise TransactionRefusedError(f"data: {_shown(value)} is not hexadecimal")
    data = bytes.fromhex(found[1])
    if len(data) > DATA_LIMIT_BYTES:
        raise TransactionRefusedError(f"data: more than {DATA_LIMIT_BYTES} bytes")
    return data


def _gas(value: Any) -> int:
    if value is None:
        return 0
    gas = _number(value, "gasLimit", _GAS_LIMIT)
    if gas < TRANSFER_GAS:
        raise TransactionRefusedError(f"gasLimit: less than {TRANSFER_GAS}")
    return gas


def _shown(value: Any) -> str:
    return repr(value)[:80]


# ---------------------------------------------------------------- fees


def fees_for(market: Market, cap: int) -> Fees:
    """Choose the fees of a new transaction, never above `cap` wei per gas.

    The fee limit is twice the base fee plus the priority fee. A base fee needs six full blocks
    to double. If the cap is below the base fee, the transaction waits until the base fee falls.
    """
    if market.base_fee is None:
        return Fees(min(market.gas_price, cap), None)
    priority = min(market.priority, cap)
    return Fees(min(2 * market.base_fee + priority, cap), priority)


def raised_fees(fees: Fees, market: Market, cap: int) -> Fees | None:
    """Choose the fees of a transaction that replaces an earlier one with the same nonce.

    Both fees rise by at least an eighth. If the fees of a new transaction are higher, those are
    used.

    Returns:
        The fees; None if they would exceed the cap.
    """
    least = _eighth_more(fees.limit)
    if least > cap:
        return None
    wanted = fees_for(market, cap)
    if fees.priority is None:
        return Fees(max(least, wanted.limit), None)
    least_priority = _eighth_more(fees.priority)
    if least_priority > cap:
        return None
    priority = max(least_priority, wanted.priority or 0)
    return Fees(min(cap, max(least, wanted.limit, priority)), priority)


def _eighth_more(fee: int) -> int:
    return fee + max(1, -(-fee // 8))


def gas_limit(estimate: int) -> int:
    """Add a quarter to a gas estimate, because the state may change until the transaction runs.

    The estimate of a plain transfer is returned unchanged, because a transfer always needs the
    same gas.
    """
    return estimate if estimate == TRANSFER_GAS else estimate + estimate // 4


def intrinsic_gas(data: bytes) -> int:
    """Return the minimum gas that nodes require for a call with this data (EIP-2028, EIP-7623)."""
    zeros = data.count(0)
    others = len(data) - zeros
    return TRANSFER_GAS + max(4 * zeros + 16 * others, 10 * zeros + 40 * others)


def max_cost(call: ContractCall, gas: int, fees: Fees) -> int:
    """Return the maximum cost of a transaction for its account, in wei."""
    return call.value + gas * fees.limit


# ---------------------------------------------------------------- signing


def sign(
    secret: bytes, chain_id: int, nonce: int, call: ContractCall, gas: int, fees: Fees
) -> Signed:
    """Sign a transaction. The same arguments always give the same bytes (RFC 6979).

    The first call takes a second, because it imports libraries; see `warm_up`.
    """
    fields: dict[str, Any] = {
        "chainId": chain_id,
        "nonce": nonce,
        "to": call.to,
        "value": call.value,
        "data": call.data,
        "gas": gas,
    }
    if fees.priority is None:
        fields["gasPrice"] = fees.limit
    else:
        fields |= {"type": 2, "maxFeePerGas": fees.limit, "maxPriorityFeePerGas": fees.priority}
    signed = _account().sign_transaction(fields, secret)
    return Signed("0x" + bytes(signed.hash).hex(), bytes(signed.raw_transaction))


def _account() -> type[Account]:
    with preserve_recursion_limit():
        from eth_account import Account
    return Account


def warm_up() -> None:
    """Import the libraries for signing in advance; this takes a second."""
    nowhere = ContractCall("0x" + "00" * 20, 0, b"")
    sign(bytes(31) + b"\x01", 1, 0, nowhere, TRANSFER_GAS, Fees(1, 1))


# ---------------------------------------------------------------- answers of the chain


def revert_reason(data: bytes) -> str:
    """Describe the data of a revert: its text, its panic code, or the data in hexadecimal."""
    if data[:4] == _ERROR_STRING and len(data) >= 68:
        size = int.from_bytes(data[36:68], "big")
        text = data[68 : 68 + min(size, _REASON_LIMIT)].decode("utf-8", "replace")
        return f"execution reverted: {text}"
    if data[:4] == _PANIC and len(data) >= 36:
        return f"execution reverted: panic 0x{int.from_bytes(data[4:36], 'big'):02x}"
    if data:
        return f"execution reverted: 0x{data[:_REASON_LIMIT].hex()}"
    return "execution reverted without a reason"
