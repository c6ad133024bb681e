"""Checks of device signatures by an applet, on every host."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.security.keccak import keccak256
from fieldbrook.wasm.limits import PAGE_BYTES
from fieldbrook.wasm.module import abi
from fieldbrook.wasm.run import Run
from tests.contract.hosts import harness as h
from tests.contract.hosts.vectors import ED25519, ETHEREUM, KECCAK, P256, SECP256K1, SHA, Signed

K1, P256_, ED, RECOVER, ADDRESS, SHA_, KECCAK_ = range(7)
_HEAD = struct.Struct("<7I")


@pytest.fixture(params=h.HOSTS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def request(function: int, *parts: bytes) -> bytes:
    """A payload for `crypto.wat`."""
    at, words = _HEAD.size, [function]
    for part in parts:
        words += [at, len(part)]
        at += len(part)
    return _HEAD.pack(*words, *[0] * (7 - len(words))) + b"".join(parts)


def ask(kind: str, function: int, *parts: bytes) -> tuple[int, bytes]:
    """Return the code and the output."""
    outcome = h.run(kind, "crypto", payload=request(function, *parts))
    assert (outcome.reason, outcome.logs) == ("", [])
    return outcome.code, outcome.writes[b"out"]


@pytest.mark.parametrize(
    ("function", "case"),
    [(K1, case._replace(signature=case.signature[:64])) for case in SECP256K1]
    + [(P256_, case) for case in P256]
    + [(ED, case) for case in ED25519],
)
def test_a_published_signature_is_0_and_one_of_other_data_is_11(
    kind: str, function: int, case: Signed
) -> None:
    assert ask(kind, function, *case) == (abi.OK, b"")
    other = bytes(32) if len(case.data) == 32 else b"other"
    assert ask(kind, function, other, case.signature, case.key)[0] == abi.SIGNATURE_INVALID


@pytest.mark.parametrize("function", [K1, P256_, ED])
def test_a_malformed_signature_is_12_and_a_malformed_key_13(kind: str, function: int) -> None:
    case = {K1: SECP256K1[0], P256_: P256[0], ED: ED25519[0]}[function]
    signature = case.signature[:64]
    assert ask(kind, function, case.data, b"", case.key)[0] == abi.SIGNATURE_MALFORMED
    assert ask(kind, function, case.data, signature[:63], case.key)[0] == abi.SIGNATURE_MALFORMED
    assert ask(kind, function, case.data, signature, case.key[:-1])[0] == abi.KEY_MALFORMED
    assert ask(kind, function, case.data, signature, b"")[0] == abi.KEY_MALFORMED


@pytest.mark.parametrize("function", [K1, P256_, RECOVER, ADDRESS])
def test_a_digest_of_another_length_is_10(kind: str, function: int) -> None:
    case = SECP256K1[0]
    assert ask(kind, function, b"message", case.signature, case.key)[0] == abi.ILLEGAL_PARAMETER


def test_keys_and_addresses_are_recovered(kind: str) -> None:
    case = SECP256K1[0]
    assert ask(kind, RECOVER, case.data, case.signature) == (abi.OK, case.key[1:])
    case = ETHEREUM[0]
    assert ask(kind, ADDRESS, case.data, case.signature) == (abi.OK, case.key)
    unknown = case.signature[:64] + b"\x09"
    assert ask(kind, ADDRESS, case.data, unknown) == (abi.SIGNATURE_MALFORMED, b"")


def test_digests_are_the_published_ones(kind: str) -> None:
    for data, digest in KECCAK:
        assert ask(kind, KECCAK_, data) == (abi.OK, digest)
    for data, digest in SHA:
        assert ask(kind, SHA_, data) == (abi.OK, digest)


@pytest.mark.parametrize("function", range(7))
@pytest.mark.parametrize("size", [2 * PAGE_BYTES, 0xFFFF_FFFF])
def test_a_range_beyond_the_memory_is_6_and_recorded(kind: str, function: int, size: int) -> None:
    payload = _HEAD.pack(function, 28, size, 28, size, 28, size)
    outcome = h.run(kind, "crypto", payload=payload)
    assert outcome.code == abi.COPY_FROM_GUEST_FAILED
    assert [(level, source) for level, source, _ in outcome.logs] == [
        (abi.LOG_ERROR, abi.SOURCE_HOST)
    ]


_part = st.one_of(
    st.binary(max_size=80),
    st.sampled_from([32, 33, 64, 65, 71]).flatmap(lambda n: st.binary(min_size=n, max_size=n)),
)


@given(st.integers(0, 6), _part, _part, _part)
def test_any_bytes_have_one_answer_on_every_host_and_it_is_a_known_code(
    function: int, data: bytes, signature: bytes, key: bytes
) -> None:
    payload = request(function, data, signature, key)
    outcomes = [h.run(kind, "crypto", payload=payload) for kind in h.HOSTS]
    assert outcomes[0] == outcomes[1] == outcomes[2]
    assert outcomes[0].reason == ""
    assert outcomes[0].code in {0, 10, 11, 12, 13}


def test_a_batch_of_signatures_is_settled_together() -> None:
    case = P256[0]
    payloads = [
        request(P256_, *case),
        request(P256_, case.data, case.signature, b"?"),
        request(KECCAK_, b"abc"),
    ]
    runs = [Run(payload) for payload in payloads]
    settled = h.host("raw", "crypto").run_batch("start", runs)
    assert settled == [(abi.OK, ""), (abi.KEY_MALFORMED, ""), (abi.OK, "")]
    assert runs[2].writes == {b"out": keccak256(b"abc")}
