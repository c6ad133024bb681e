"""Reading, pricing and signing transactions."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.chain.libraries import preserve_recursion_limit
from fieldbrook.chain.transaction import (
    ContractCall,
    Fees,
    Market,
    TransactionRefusedError,
    fees_for,
    gas_limit,
    intrinsic_gas,
    max_cost,
    parse_call,
    raised_fees,
    revert_reason,
    sign,
)

SECRET = bytes.fromhex("11" * 32)
ADDRESS = "0x19E7E376E7C213B7E7e7e46cc70A5dD086DAff2A"  # of that key
GWEI = 10**9


def request(**fields: object) -> bytes:
    return json.dumps({"to": ADDRESS, "value": "0", "data": "", **fields}).encode()


def test_a_request_as_the_sdks_write_it_is_read() -> None:
    text = b'{\n\t"to": "%s",\n\t"value": "12",\n\t"data": "0xABcd"\n}' % ADDRESS.encode()
    assert parse_call(text, sends=True) == ContractCall(ADDRESS, 12, b"\xab\xcd")
    for to in (ADDRESS.lower(), ADDRESS[2:].lower(), "0x" + ADDRESS[2:].upper()):
        assert parse_call(request(to=to), sends=True).to == ADDRESS
    assert parse_call(request(gasLimit="30000"), sends=True).gas == 30_000
    assert parse_call(json.dumps({"to": ADDRESS}).encode(), sends=False).value == 0


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "its values must be texts"),
        (b"[" * 60, "not JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", "to: an address is required"),
        (request(to=7), "to: 7 is not an address"),
        (request(to="0x" + "1" * 41), "is not an address"),
        (request(to=ADDRESS.replace("E", "e", 1)), "do not match the checksum"),
        (request(value=""), "value: '' is not a decimal number"),
        (request(value=True), "value: True is not a decimal number"),
        (request(value="0x10"), "value: '0x10' is not a decimal number"),
        (request(value="\u0661"), "is not a decimal number"),
        (request(value=str(2**256)), "too large"),
        (request(data="0x1"), "data: '0x1' is not hexadecimal"),
        (request(data=[1]), "data: [1] is not hexadecimal"),
        (request(data="00" * (1 << 17)), "data: more than 122880 bytes"),
        (request(gasLimit=1), "gasLimit: less than 21000"),
        (request(gasLimit="many"), "gasLimit: 'many' is not a decimal number"),
    ],
)
def test_what_cannot_be_a_transaction_is_refused_with_the_field_and_what_it_had(
    body: bytes, reason: str
) -> None:
    with pytest.raises(TransactionRefusedError) as refused:
        parse_call(body, sends=True)
    assert reason in str(refused.value)
    assert len(str(refused.value)) < 200


@given(st.binary(max_size=300) | st.text(max_size=300).map(lambda t: json.dumps(t).encode()))
def test_whatever_a_guest_sends_is_a_call_or_refused(body: bytes) -> None:
    with contextlib.suppress(TransactionRefusedError):
        parse_call(body, sends=True)


markets = st.builds(
    Market, st.none() | st.integers(0, 10**13), st.integers(0, 10**12), st.integers(1, 10**13)
)
caps = st.integers(1, 10**13)


@given(markets, caps)
def test_fees_are_never_above_the_cap_and_the_priority_never_above_the_fee(
    market: Market, cap: int
) -> None:
    fees = fees_for(market, cap)
    assert fees.limit <= cap
    assert (fees.priority is None) == (market.base_fee is None)
    assert fees.priority is None or fees.priority <= fees.limit


@given(markets, markets, caps)
def test_raised_fees_are_such_that_nodes_replace_a_transaction_and_never_above_the_cap(
    before: Market, now: Market, cap: int
) -> None:
    now = now._replace(base_fee=None if before.base_fee is None else now.base_fee or 0)
    fees = fees_for(before, cap)
    raised = raised_fees(fees, now, cap)
    if raised is None:
        return
    assert fees.limit * 11 <= raised.limit * 10
    assert raised.limit <= cap
    if fees.priority is not None:
        assert raised.priority is not None
        assert fees.priority * 11 <= raised.priority * 10
        assert raised.priority <= raised.limit


def test_raised_fees_follow_the_market_when_that_is_more() -> None:
    before = fees_for(Market(10 * GWEI, GWEI, 0), 10**13)
    assert before == Fees(21 * GWEI, GWEI)
    now = Market(100 * GWEI, 3 * GWEI, 0)
    assert raised_fees(before, now, 10**13) == Fees(203 * GWEI, 3 * GWEI)
    assert raised_fees(before, now, 100 * GWEI) == Fees(100 * GWEI, 3 * GWEI)
    assert raised_fees(before, now, 22 * GWEI) is None
    legacy = fees_for(Market(None, 0, 8 * GWEI), 10**13)
    assert raised_fees(legacy, Market(None, 0, GWEI), 10**13) == Fees(9 * GWEI, None)


def test_a_signature_is_the_same_each_time_and_of_the_key() -> None:
    with preserve_recursion_limit():  # takes a second, also where nothing is signed
        from eth_account import Account

    call = ContractCall(ADDRESS, 5, b"\x01\x02")
    for fees in (Fees(7 * GWEI, GWEI), Fees(7 * GWEI, None)):
        signed = sign(SECRET, 4690, 9, call, 30_000, fees)
        assert signed == sign(SECRET, 4690, 9, call, 30_000, fees)
        assert Account.recover_transaction(signed.raw) == ADDRESS
        assert len(signed.hash) == 66
    assert max_cost(call, 30_000, Fees(7, None)) == 210_005


@pytest.mark.parametrize(
    "importing",
    [
        "import fieldbrook.chain.transaction as t; t.warm_up()",
        "import fieldbrook.chain.blocks.decode",
    ],
)
def test_libraries_do_not_let_json_of_others_end_the_process(
    importing: str,
) -> None:
    program = (
        f"import json, sys\n{importing}\n"
        "try:\n    json.loads('[' * 200_000)\n"
        "except RecursionError:\n    sys.exit(7)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], timeout=60, check=False)
    assert done.returncode == 7


def test_gas_has_room_but_for_a_plain_transfer() -> None:
    assert gas_limit(21_000) == 21_000
    assert gas_limit(40_000) == 50_000
    assert intrinsic_gas(b"") == 21_000
    assert intrinsic_gas(b"\x01\x00") == 21_000 + 50


def test_why_a_contract_reverted_is_told_in_its_words() -> None:
    words = "not on Sundays"
    encoded = (32).to_bytes(32, "big") + len(words).to_bytes(32, "big") + words.encode().ljust(32)
    assert revert_reason(bytes.fromhex("08c379a0") + encoded) == f"execution reverted: {words}"
    panic = bytes.fromhex("4e487b71") + (0x11).to_bytes(32, "big")
    assert revert_reason(panic) == "execution reverted: panic 0x11"
    assert revert_reason(b"") == "execution reverted without a reason"
    assert revert_reason(b"\x01\x02\x03\x04") == "execution reverted: 0x01020304"


@given(st.binary(max_size=400))
def test_whatever_a_contract_reverts_with_has_a_text(data: bytes) -> None:
    assert revert_reason(data).startswith("execution reverted")
