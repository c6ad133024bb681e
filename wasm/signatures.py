"""Signatures of devices and digests, over values; `host/crypto.py` gives them to applets.

Nothing here raises for what a device sent: every answer is a code of `abi`. `OK` means that
the signature is that of the key, and nothing else does.

Both curves of ECDSA accept what devices make: S may lie in the upper half of its range.
Whoever sees a signature can therefore make a second one of the same message that is as good:
a signature proves who signed, its bytes identify nothing.

Libraries are imported at the first use: a process whose applets verify nothing does not
carry them (7 MiB for secp256k1, 10 MiB for the others).

Source: SEC 1 2.3.3 (keys), SEC 1 4.1.4 and FIPS 186-5 6.4.2 (ECDSA), RFC 3279 2.2.3 (DER of
    a signature), RFC 8032 5.1.7 (Ed25519), the Ethereum yellow paper, appendix F (recovery).
"""

from __future__ import annotations

import hashlib

from fieldbrook.wasm.module import abi

DIGEST_BYTES = 32
_COORDINATE_BYTES = 32
_COMPACT_BYTES = 64
_RECOVERABLE_BYTES = 65
_ADDRESS_BYTES = 20
_ED25519_KEY_BYTES = 32

_SECP256K1_ORDER = 0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_BAAEDCE6_AF48A03B_BFD25E8C_D0364141
_P256_ORDER = 0xFFFFFFFF_00000000_FFFFFFFF_FFFFFFFF_BCE6FAAD_A7179E84_F3B9CAC2_FC632551
_RECOVERY_IDS = {0: 0, 1: 1, 27: 0, 28: 1}
_POINT_PREFIXES = {33: (2, 3), 65: (4,)}
_SEQUENCE, _INTEGER = 0x30, 0x02


def sha256(data: bytes) -> bytes:
    """The SHA-256 digest."""
    return hashlib.sha256(data).digest()


def keccak256(data: bytes) -> bytes:
    """The Keccak-256 digest as Ethereum uses it; SHA3-256 is another function."""
    from Crypto.Hash import keccak

    return keccak.new(data=data, digest_bits=8 * DIGEST_BYTES).digest()


def verify_secp256k1(digest: bytes, signature: bytes, key: bytes) -> int:
    """Verify an ECDSA signature of a digest on secp256k1.

    Args:
        digest: 32 bytes, whatever function made them.
        signature: 64 bytes are R and S, big-endian; any other length is strict DER.
        key: a point of 33 (02 or 03 first), 65 (04 first) or 64 bytes (no prefix).

    Returns:
        `OK`; `SIGNATURE_INVALID` for another key's or another digest's signature;
        `SIGNATURE_MALFORMED`, `KEY_MALFORMED` (a point that is not on the curve too), or
        `ILLEGAL_PARAMETER` for a digest of another length.
    """
    if len(digest) != DIGEST_BYTES:
        return abi.ILLEGAL_PARAMETER
    numbers = _numbers(signature, _SECP256K1_ORDER)
    if numbers is None:
        return abi.SIGNATURE_MALFORMED
    point = _point(key)
    if point is None:
        return abi.KEY_MALFORMED
    from coincurve import PublicKey

    try:
        public = PublicKey(point)
    except ValueError:
        return abi.KEY_MALFORMED
    r, s = numbers
    # The library takes the lower half alone.
    normal = _to_der(r, min(s, _SECP256K1_ORDER - s))
    return abi.OK if public.verify(normal, digest, hasher=None) else abi.SIGNATURE_INVALID


def verify_p256(digest: bytes, signature: bytes, key: bytes) -> int:
    """Verify an ECDSA signature of a digest on P-256 (secp256r1, prime256v1).

    Arguments and results are those of `verify_secp256k1`.
    """
    if len(digest) != DIGEST_BYTES:
        return abi.ILLEGAL_PARAMETER
    numbers = _numbers(signature, _P256_ORDER)
    if numbers is None:
        return abi.SIGNATURE_MALFORMED
    point = _point(key)
    if point is None:
        return abi.KEY_MALFORMED
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec, utils
    from cryptography.hazmat.primitives.hashes import SHA256

    try:
        public = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)
    except ValueError:
        return abi.KEY_MALFORMED
    try:
        public.verify(_to_der(*numbers), digest, ec.ECDSA(utils.Prehashed(SHA256())))
    except InvalidSignature:
        return abi.SIGNATURE_INVALID
    return abi.OK


def verify_ed25519(message: bytes, signature: bytes, key: bytes) -> int:
    """Verify an Ed25519 signature of a message (not of its digest).

    S must be below the order, so nobody else can make a second signature. Keys of small
    order are not told from others: whoever registers a device's key chooses it.

    Args:
        message: any number of bytes.
        signature: 64 bytes.
        key: 32 bytes.

    Returns:
        `OK`; `SIGNATURE_INVALID`, also for a key that is no point; `SIGNATURE_MALFORMED`
        and `KEY_MALFORMED` for other lengths.
    """
    if len(signature) != _COMPACT_BYTES:
        return abi.SIGNATURE_MALFORMED
    if len(key) != _ED25519_KEY_BYTES:
        return abi.KEY_MALFORMED
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        public = Ed25519PublicKey.from_public_bytes(key)
    except ValueError:
        return abi.KEY_MALFORMED
    try:
        public.verify(signature, message)
    except InvalidSignature:
        return abi.SIGNATURE_INVALID
    return abi.OK


def recover_secp256k1(digest: bytes, signature: bytes) -> tuple[int, bytes]:
    """The public key whose signature of the digest this is, as Ethereum recovers it.

    Args:
        digest: 32 bytes.
        signature: 65 bytes: R, S and V, which is 0, 1, 27 or 28.

    Returns:
        `OK` and the 64 bytes of X and Y, or a code as of `verify_secp256k1` and nothing.
        Almost every signature recovers to some key: compare it with the device's.
    """
    if len(digest) != DIGEST_BYTES:
        return abi.ILLEGAL_PARAMETER, b""
    if len(signature) != _RECOVERABLE_BYTES or signature[-1] not in _RECOVERY_IDS:
        return abi.SIGNATURE_MALFORMED, b""
    compact = signature[:_COMPACT_BYTES]
    if _numbers(compact, _SECP256K1_ORDER) is None:
        return abi.SIGNATURE_MALFORMED, b""
    from coincurve import PublicKey

    recoverable = compact + bytes([_RECOVERY_IDS[signature[-1]]])
    try:
        public = PublicKey.from_signature_and_message(recoverable, digest, hasher=None)
    except Exception:  # noqa: BLE001 - the library's own word for "R is no point"
        return abi.SIGNATURE_INVALID, b""
    return abi.OK, public.format(compressed=False)[1:]


def recover_address(digest: bytes, signature: bytes) -> tuple[int, bytes]:
    """The 20 bytes of the Ethereum address of the key that `recover_secp256k1` finds."""
    code, key = recover_secp256k1(digest, signature)
    return code, keccak256(key)[-_ADDRESS_BYTES:] if code == abi.OK else b""


def _numbers(signature: bytes, order: int) -> tuple[int, int] | None:
    """R and S, both from 1 to `order` - 1, or None."""
    if len(signature) == _COMPACT_BYTES:
        half = _COORDINATE_BYTES
        r, s = int.from_bytes(signature[:half], "big"), int.from_bytes(signature[half:], "big")
    else:
        try:
            r, s = _from_der(signature)
        except (ValueError, IndexError):
            return None
    return (r, s) if 0 < r < order and 0 < s < order else None


def _from_der(data: bytes) -> tuple[int, int]:
    """The two numbers of a DER signature; each has one form alone. Raises when it is none."""
    if data[0] != _SEQUENCE or data[1] != len(data) - 2 or len(data) > 2 + 0x7F:
        raise ValueError("not a sequence")
    r, at = _integer(data, 2)
    s, end = _integer(data, at)
    if end != len(data):
        raise ValueError("bytes behind the signature")
    return r, s


def _integer(data: bytes, at: int) -> tuple[int, int]:
    """A number of DER that is not negative, and the place behind it."""
    size = data[at + 1]
    digits = data[at + 2 : at + 2 + size]
    if data[at] != _INTEGER or not size or len(digits) != size or digits[0] > 0x7F:
        raise ValueError("not a number")
    if size > 1 and digits[0] == 0 and digits[1] <= 0x7F:
        raise ValueError("a number with a needless zero")
    return int.from_bytes(digits, "big"), at + 2 + size


def _to_der(r: int, s: int) -> bytes:
    """A DER signature of two numbers below 2**256."""
    body = b""
    for number in (r, s):
        digits = number.to_bytes(number.bit_length() // 8 + 1, "big")
        body += bytes([_INTEGER, len(digits)]) + digits
    return bytes([_SEQUENCE, len(body)]) + body


def _point(key: bytes) -> bytes | None:
    """A public key in a form that libraries take, or None when it has none of the forms."""
    if len(key) == 2 * _COORDINATE_BYTES:
        return b"\x04" + key
    return key if key and key[0] in _POINT_PREFIXES.get(len(key), ()) else None
