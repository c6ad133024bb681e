"""Keys of operators: the private keys that sign the transactions of projects.

A private key is stored sealed: encrypted with AES-256-GCM under a key of the node, with its address
as associated data. So a sealed key that is copied to another operator cannot be decrypted. Error
texts never contain a key. The libraries are imported by the first call that needs them.

Source: EIP-55, RFC 8032; interface document, 4.4 and 5.7.
"""

from __future__ import annotations

import re
import secrets
from functools import cached_property
from typing import TYPE_CHECKING

from fieldbrook.core.errors import InvalidPrivateKeyError, StoreError
from fieldbrook.security.keccak import keccak256

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

ECDSA, ED25519 = 1, 2
DEFAULT_OPERATOR = "default"

_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141  # of secp256k1
_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_ECDSA_HEX = re.compile(r"(?:0x)?([0-9a-fA-F]{64})", re.ASCII)
_ED25519_HEX = re.compile(r"(?:0x)?([0-9a-fA-F]{128})", re.ASCII)
_ED25519_BASE58 = re.compile(rf"[{_BASE58}]{{64,90}}", re.ASCII)
_FORMAT = b"\x01"
_NONCE_BYTES, _TAG_BYTES = 12, 16


class Vault:
    """Encrypts and decrypts secrets with one key of the node."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    @cached_property
    def _cipher(self) -> AESGCM:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(self._key)

    def seal(self, secret: bytes, address: str) -> bytes:
        """Encrypt `secret` for the operator with this address."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return _FORMAT + nonce + self._cipher.encrypt(nonce, secret, address.encode())

    def open(self, sealed: bytes, address: str) -> bytes:
        """Decrypt what `seal` returned.

        Raises:
            StoreError: `sealed` was encrypted with another node's key or for another address, or is
                damaged.
        """
        from cryptography.exceptions import InvalidTag

        if sealed[:1] != _FORMAT or len(sealed) < 1 + _NONCE_BYTES + _TAG_BYTES:
            raise StoreError(reason=f"the key of operator {address} has an unknown format")
        nonce, data = sealed[1 : 1 + _NONCE_BYTES], sealed[1 + _NONCE_BYTES :]
        try:
            return self._cipher.decrypt(nonce, data, address.encode())
        except InvalidTag:
            raise StoreError(
                reason=f"the key of operator {address} was encrypted with another operator.key, "
                "or is damaged"
            ) from None


def new_secret() -> bytes:
    """Return a random private key for ECDSA over secp256k1."""
    return (1 + secrets.randbelow(_ORDER - 1)).to_bytes(32, "big")


def parse_secret(text: str, kind: int) -> bytes:
    """Parse the text of a private key.

    Args:
        text: for ECDSA 32 bytes in hexadecimal; for ED25519 the seed and the public key, 64
            bytes in hexadecimal or base58. Hexadecimal may begin with `0x`.
        kind: `ECDSA` or `ED25519`.

    Raises:
        InvalidPrivateKeyError: the text is not a private key of that kind.
    """
    return _parse_ecdsa(text) if kind == ECDSA else _parse_ed25519(text)


def address_of(secret: bytes, kind: int) -> str:
    """Return the address of a private key: EIP-55 for ECDSA, base58 for ED25519."""
    if kind == ED25519:
        return base58(secret[32:])
    from coincurve import PrivateKey

    point = PrivateKey(secret).public_key.format(compressed=False)
    return eip55(keccak256(point[1:])[-20:])


def eip55(address: bytes) -> str:
    """Format 20 bytes as an address with the EIP-55 checksum in its capital letters."""
    plain = address.hex()
    digest = keccak256(plain.encode()).hex()
    pairs = zip(plain, digest, strict=False)
    return "0x" + "".join(c.upper() if int(nibble, 16) > 7 else c for c, nibble in pairs)


def base58(data: bytes) -> str:
    """Encode bytes in base58; each leading zero byte becomes a `1`."""
    number, digits = int.from_bytes(data, "big"), ""
    while number:
        number, digit = divmod(number, 58)
        digits = _BASE58[digit] + digits
    return "1" * (len(data) - len(data.lstrip(b"\0"))) + digits


def _parse_ecdsa(text: str) -> bytes:
    found = _ECDSA_HEX.fullmatch(text)
    if found is None:
        raise InvalidPrivateKeyError(reason="it is not 32 bytes in hexadecimal")
    secret = bytes.fromhex(found[1])
    if not 0 < int.from_bytes(secret, "big") < _ORDER:
        raise InvalidPrivateKeyError(reason="it is not within the order of secp256k1")
    return secret


def _parse_ed25519(text: str) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    found = _ED25519_HEX.fullmatch(text)
    secret = bytes.fromhex(found[1]) if found else _from_base58(text)
    if len(secret) != 64:
        raise InvalidPrivateKeyError(reason="it is not 64 bytes in hexadecimal or base58")
    public = Ed25519PrivateKey.from_private_bytes(secret[:32]).public_key().public_bytes_raw()
    if public != secret[32:]:
        raise InvalidPrivateKeyError(reason="its second half is not the public key of the first")
    return secret


def _from_base58(text: str) -> bytes:
    if not _ED25519_BASE58.fullmatch(text):
        return b""
    number = 0
    for character in text:
        number = number * 58 + _BASE58.index(character)
    zeros = len(text) - len(text.lstrip("1"))
    return bytes(zeros) + number.to_bytes((number.bit_length() + 7) // 8, "big")
