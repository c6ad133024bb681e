"""Signatures and digests: published vectors, and no input that raises."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import pytest
from coincurve import PrivateKey
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.security.keccak import keccak256
from fieldbrook.wasm import signatures
from fieldbrook.wasm.module import abi
from tests.contract.hosts.vectors import (
    ED25519,
    ETHEREUM,
    P256,
    P256_ORDER,
    SECP256K1,
    SECP256K1_ORDER,
    SHA,
    Signed,
)

GOOD, INVALID, MALFORMED, BAD_KEY, ILLEGAL = (
    abi.OK,
    abi.SIGNATURE_INVALID,
    abi.SIGNATURE_MALFORMED,
    abi.KEY_MALFORMED,
    abi.ILLEGAL_PARAMETER,
)
DIGEST = hashlib.sha256(b"21.5").digest()
VERIFIERS = {"secp256k1": signatures.verify_secp256k1, "p256": signatures.verify_p256}
ORDERS = {"secp256k1": SECP256K1_ORDER, "p256": P256_ORDER}


def signed(curve: str, secret: int, digest: bytes = DIGEST) -> tuple[int, int, bytes]:
    """Make a signature; return R, S and the 65-byte key."""
    kind = ec.SECP256K1() if curve == "secp256k1" else ec.SECP256R1()
    key = ec.derive_private_key(secret, kind)
    der = key.sign(digest, ec.ECDSA(utils.Prehashed(hashes.SHA256())))
    r, s = utils.decode_dss_signature(der)
    public = key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    return r, s, public


def compact(r: int, s: int) -> bytes:
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


# ---------------------------------------------------------------- published


@pytest.mark.parametrize("case", ED25519)
def test_ed25519_accepts_the_published_signatures_and_no_other_message(case: Signed) -> None:
    assert signatures.verify_ed25519(case.data, case.signature, case.key) == GOOD
    assert signatures.verify_ed25519(case.data + b"\0", case.signature, case.key) == INVALID


@pytest.mark.parametrize("case", P256)
def test_p256_accepts_the_published_signatures(case: Signed) -> None:
    assert signatures.verify_p256(case.data, case.signature, case.key) == GOOD
    assert signatures.verify_p256(signatures.sha256(case.data), case.signature, case.key) == INVALID
    assert signatures.verify_secp256k1(case.data, case.signature, case.key) == BAD_KEY


@pytest.mark.parametrize("case", SECP256K1)
def test_secp256k1_accepts_and_recovers_the_published_signatures(case: Signed) -> None:
    assert signatures.verify_secp256k1(case.data, case.signature[:64], case.key) == GOOD
    assert signatures.recover_secp256k1(case.data, case.signature) == (GOOD, case.key[-64:])


@pytest.mark.parametrize("case", ETHEREUM)
def test_the_published_address_is_recovered(case: Signed) -> None:
    assert signatures.recover_address(case.data, case.signature) == (GOOD, case.key)


@pytest.mark.parametrize(("data", "digest"), SHA)
def test_sha256_gives_the_published_digests(data: bytes, digest: bytes) -> None:
    assert signatures.sha256(data) == digest


# ---------------------------------------------------------------- forms


@pytest.mark.parametrize("curve", VERIFIERS)
@given(secret=st.integers(1, 2**250), digest=st.binary(min_size=32, max_size=32))
def test_a_signature_made_by_another_library_is_good_in_every_form(
    curve: str, secret: int, digest: bytes
) -> None:
    verify, order = VERIFIERS[curve], ORDERS[curve]
    r, s, key = signed(curve, secret, digest)
    short = bytes([2 + key[-1] % 2]) + key[1:33]
    for number in (s, order - s):
        for signature in (compact(r, number), utils.encode_dss_signature(r, number)):
            assert [verify(digest, signature, form) for form in (key, key[1:], short)] == [GOOD] * 3
    other = bytes([digest[0] ^ 1]) + digest[1:]
    assert verify(other, compact(r, s), key) == INVALID


@pytest.mark.parametrize("curve", VERIFIERS)
def test_numbers_outside_their_range_are_a_malformed_signature(curve: str) -> None:
    r, s, key = signed(curve, 7)
    order = ORDERS[curve]
    for pair in ((0, s), (r, 0), (0, 0), (order, s), (r, order), (2**256 - 1, s), (r, 2**256 - 1)):
        assert VERIFIERS[curve](DIGEST, compact(*pair), key) == MALFORMED
        assert VERIFIERS[curve](DIGEST, utils.encode_dss_signature(*pair), key) == MALFORMED


@pytest.mark.parametrize("curve", VERIFIERS)
def test_der_has_one_form(curve: str) -> None:
    r, s, key = signed(curve, 7)
    good = utils.encode_dss_signature(r, s)
    r_size, body = good[3], good[2:]
    bad = {
        "a byte behind it": good + b"\0",
        "a byte behind it, counted": bytes([0x30, good[1] + 1]) + body + b"\0",
        "a byte short": good[:-1],
        "a long length": bytes([0x30, 0x81]) + good[1:],
        "no sequence": b"\x31" + good[1:],
        "no number": good[:2] + b"\x03" + good[3:],
        "a needless zero": bytes([0x30, good[1] + 1, 2, r_size + 1, 0]) + good[4:]
        if good[4]
        else bytes([0x30, good[1] + 1, 2, r_size + 1]) + good[4:5] + good[4:],
        "a negative number": good[:4] + bytes([good[4] | 0x80]) + good[5:],
        "an empty number": bytes([0x30, 4, 2, 0, 2, 0]),
        "nothing": b"",
        "a byte": b"\x30",
    }
    codes = {what: VERIFIERS[curve](DIGEST, signature, key) for what, signature in bad.items()}
    assert codes == dict.fromkeys(bad, MALFORMED)


@pytest.mark.parametrize("curve", VERIFIERS)
def test_what_is_no_key_is_told_from_a_wrong_signature(curve: str) -> None:
    r, s, key = signed(curve, 7)
    hybrid = bytes([6 + key[-1] % 2]) + key[1:]
    for bad in (b"", key[:-1], key + b"\0", hybrid, b"\x05" + key[1:33], bytes(33), bytes(64)):
        assert VERIFIERS[curve](DIGEST, compact(r, s), bad) == BAD_KEY
    off_the_curve = key[:-1] + bytes([key[-1] ^ 1])
    assert VERIFIERS[curve](DIGEST, compact(r, s), off_the_curve) == BAD_KEY
    other = signed(curve, 8)[2]
    assert VERIFIERS[curve](DIGEST, compact(r, s), other) == INVALID


@pytest.mark.parametrize("size", [0, 31, 33, 64])
def test_a_digest_has_32_bytes(size: int) -> None:
    case = SECP256K1[0]
    for verify in VERIFIERS.values():
        assert verify(bytes(size), case.signature[:64], case.key) == ILLEGAL
    assert signatures.recover_secp256k1(bytes(size), case.signature) == (ILLEGAL, b"")
    assert signatures.recover_address(bytes(size), case.signature) == (ILLEGAL, b"")


def test_a_second_signature_of_ed25519_is_refused() -> None:
    case = ED25519[1]
    order = 2**252 + 27742317777372353535851937790883648493
    s = int.from_bytes(case.signature[32:], "little") + order
    second = case.signature[:32] + s.to_bytes(32, "little")
    assert signatures.verify_ed25519(case.data, second, case.key) == INVALID


def test_lengths_of_ed25519_are_its_own() -> None:
    case = ED25519[1]
    assert signatures.verify_ed25519(case.data, case.signature[:63], case.key) == MALFORMED
    assert signatures.verify_ed25519(case.data, case.signature + b"\0", case.key) == MALFORMED
    assert signatures.verify_ed25519(case.data, case.signature, case.key[:31]) == BAD_KEY
    assert signatures.verify_ed25519(case.data, case.signature, b"\xff" * 32) == INVALID


@given(st.binary(max_size=200), st.binary(min_size=32, max_size=32))
def test_ed25519_accepts_what_another_library_signs(message: bytes, secret: bytes) -> None:
    key = Ed25519PrivateKey.from_private_bytes(secret)
    signature, public = key.sign(message), key.public_key().public_bytes_raw()
    assert signatures.verify_ed25519(message, signature, public) == GOOD


@pytest.mark.parametrize("last", [2, 3, 4, 26, 29, 255])
def test_a_recovery_number_that_ethereum_does_not_know_is_malformed(last: int) -> None:
    case = SECP256K1[0]
    signature = case.signature[:64] + bytes([last])
    assert signatures.recover_secp256k1(case.data, signature) == (MALFORMED, b"")
    assert signatures.recover_secp256k1(case.data, case.signature[:64]) == (MALFORMED, b"")


def test_a_recoverable_signature_of_no_point_recovers_to_nothing() -> None:
    # 5**3 + 7 is no square: no point of the curve has this X.
    assert signatures.recover_secp256k1(DIGEST, compact(5, 1) + b"\0") == (INVALID, b"")


@given(st.integers(1, 2**250), st.binary(min_size=32, max_size=32), st.sampled_from([0, 27]))
def test_the_key_that_signed_is_recovered(secret: int, digest: bytes, base: int) -> None:
    key = PrivateKey.from_int(secret)
    signature = key.sign_recoverable(digest, hasher=None)
    signature = signature[:64] + bytes([signature[64] + base])
    public = key.public_key.format(compressed=False)[1:]
    assert signatures.recover_secp256k1(digest, signature) == (GOOD, public)
    assert signatures.recover_address(digest, signature) == (GOOD, keccak256(public)[12:])


# ---------------------------------------------------------------- anything at all

_sizes = st.sampled_from([0, 20, 31, 32, 33, 64, 65, 66, 70, 72])
_bytes = st.one_of(
    st.binary(max_size=80), _sizes.flatmap(lambda size: st.binary(min_size=size, max_size=size))
)


@given(_bytes, _bytes, _bytes)
def test_nothing_a_device_sends_raises_or_passes(data: bytes, signature: bytes, key: bytes) -> None:
    for verify in (*VERIFIERS.values(), signatures.verify_ed25519):
        assert verify(data, signature, key) in {INVALID, MALFORMED, BAD_KEY, ILLEGAL}
    code, found = signatures.recover_secp256k1(data, signature)
    assert code in {GOOD, INVALID, MALFORMED, ILLEGAL}
    assert len(found) == (64 if code == GOOD else 0)


def test_a_process_that_verifies_nothing_carries_no_library() -> None:
    script = (
        "import sys, fieldbrook.wasm.engine.applet, fieldbrook.actors.project.actor;"
        "print(sorted({'coincurve', 'cryptography', 'Crypto', 'jwt', 'sha3'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
