"""Device signatures and digests, as pure functions; `host/crypto.py` offers them to applets.

Malformed input never raises: every function that verifies or recovers returns a code of
`abi`. `OK` is the only code that means that the signature belongs to the key.

ECDSA verification accepts S in the upper half of its range on both curves, because devices
produce such signatures. These signatures are malleable: anybody who sees one can make a
second valid signature of the same message. A signature therefore proves who signed, but its
bytes must not be used as an identifier.

Libraries are imported at the first use, so that a process whose applets verify nothing does
not load them (7 MiB for secp256k1, 10 MiB for the others).

Source: SEC 1 2.3.3 (keys), SEC 1 4.1.4 and FIPS 186-5 6.4.2 (ECDSA), RFC 3279 2.2.3 (DER of
    a signature), RFC 8032 5.1.7 (Ed25519), the Ethereum yellow paper, appendix F (recovery).
"""

from __future__ import annotations

import hashlib

from fieldbrook.security.keccak import keccak256
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
    """Return the SHA-256 digest."""
    return hashlib.sha256(data).digest()


def verify_secp256k1(digest: bytes, signature: bytes, key: bytes) -> int:
    """Verify an ECDSA signature of a digest on secp256k1.

    Args:
        digest: 32 bytes, from any hash function.
        signature: R and S, big-endian, if it has 64 bytes; strict DER otherwise.
        key: a point of 33 bytes (prefix 02 or 03), 65 bytes (prefix 04) or 64 bytes (no prefix).

    Returns:
        `OK`; `SIGNATURE_INVALID` for the signature of another key or digest;
        `SIGNATURE_MALFORMED`; `KEY_MALFORMED`, also for a point that is not on the curve;
        `ILLEGAL_PARAMETER` for a digest of another length.
    """
    parsed = _parse(digest, signature, key, _SECP256K1_ORDER)
    if isinstance(parsed, int):
        return parsed
    (r, s), point = parsed
    from coincurve import PublicKey

    try:
        public = PublicKey(point)
    except ValueError:
        return abi.KEY_MALFORMED
    # The library accepts S only in the lower half of its range.
    normal = _to_der(r, min(s, _SECP256K1_ORDER - s))
    return abi.OK if public.verify(normal, digest, hasher=None) else abi.SIGNATURE_INVALID


def verify_p256(digest: bytes, signature: bytes, key: bytes) -> int:
    """Verify an ECDSA signature of a digest on P-256 (secp256r1, prime256v1).

    Arguments and results are those of `verify_secp256k1`.
    """
    parsed = _parse(digest, signature, key, _P256_ORDER)
    if isinstance(parsed, int):
        return parsed
    numbers, point = parsed
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

    S must be below the order, so third parties cannot make a second valid signature. Keys of
    small order are not rejected: the operator who registers a device's key chooses it.

    Args:
        message: any number of bytes.
        signature: 64 bytes.
        key: 32 bytes.

    Returns:
        `OK`; `SIGNATURE_INVALID`, also for a key that is not a point of the curve;
        `SIGNATURE_MALFORMED` and `KEY_MALFORMED` for other lengths.
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
    """Recover the public key that signed a digest, as Ethereum does.

    Args:
        digest: 32 bytes.
        signature: 65 bytes: R, S and V, which is 0, 1, 27 or 28.

    Returns:
        `OK` and the 64 bytes of X and Y, or an error code of `verify_secp256k1` and empty
        bytes. Almost every signature recovers to some key: the caller must compare the result
        with the device's key.
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
    except Exception:  # noqa: BLE001 - the library raises this if R is not on the curve
        return abi.SIGNATURE_INVALID, b""
    return abi.OK, public.format(compressed=False)[1:]


def recover_address(digest: bytes, signature: bytes) -> tuple[int, bytes]:
    """Recover the signer's Ethereum address (20 bytes). See `recover_secp256k1`."""
    code, key = recover_secp256k1(digest, signature)
    return code, keccak256(key)[-_ADDRESS_BYTES:] if code == abi.OK else b""


def _parse(
    digest: bytes, signature: bytes, key: bytes, order: int
) -> tuple[tuple[int, int], bytes] | int:
    """Return R and S and the encoded point of an ECDSA verification, or the code of its failure."""
    if len(digest) != DIGEST_BYTES:
        return abi.ILLEGAL_PARAMETER
    numbers = _numbers(signature, order)
    if numbers is None:
        return abi.SIGNATURE_MALFORMED
    point = _point(key)
    return abi.KEY_MALFORMED if point is None else (numbers, point)


def _numbers(signature: bytes, order: int) -> tuple[int, int] | None:
    """Read R and S; None unless both are from 1 to `order` - 1."""
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
    """Decode R and S of a DER signature; only the canonical encoding is accepted.

    Raises:
        ValueError, IndexError: the bytes are not such a signature.
    """
    if data[0] != _SEQUENCE or data[1] != len(data) - 2 or len(data) > 2 + 0x7F:
        raise ValueError("not a sequence")
    r, at = _integer(data, 2)
    s, end = _integer(data, at)
    if end != len(data):
        raise ValueError("bytes follow the signature")
    return r, s


def _integer(data: bytes, at: int) -> tuple[int, int]:
    """Decode a non-negative DER integer; returns it and the offset after it."""
    size = data[at + 1]
    digits = data[at + 2 : at + 2 + size]
    if data[at] != _INTEGER or not size or len(digits) != size or digits[0] > 0x7F:
        raise ValueError("not a number")
    if size > 1 and digits[0] == 0 and digits[1] <= 0x7F:
        raise ValueError("a number has a leading zero")
    return int.from_bytes(digits, "big"), at + 2 + size


def _to_der(r: int, s: int) -> bytes:
    """Encode R and S, both below 2**256, as a DER signature."""
    body = b""
    for number in (r, s):
        digits = number.to_bytes(number.bit_length() // 8 + 1, "big")
        body += bytes([_INTEGER, len(digits)]) + digits
    return bytes([_SEQUENCE, len(body)]) + body


def _point(key: bytes) -> bytes | None:
    """Convert a public key to the SEC 1 form that libraries accept; None if it is malformed."""
    if len(key) == 2 * _COORDINATE_BYTES:
        return b"\x04" + key
    return key if key and key[0] in _POINT_PREFIXES.get(len(key), ()) else None
