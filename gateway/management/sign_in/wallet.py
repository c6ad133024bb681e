"""Signing in with a wallet: EIP-4361 messages, EIP-191 signatures, and nonces used once.

An address may belong to a contract. Then its chain decides whether a signature is valid (EIP-1271).

The node does not store the nonces that it issues. A nonce contains its time and a MAC of the node,
and the registry stores used nonces until they expire. If clients may choose their own nonces, the
digest of the whole message is used instead of the nonce.

Source: EIP-4361, EIP-191, EIP-55, EIP-1271; interface document, 4.5.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from datetime import datetime

import msgspec

from fieldbrook.core.errors import (
    InvalidEthLoginMessageError,
    InvalidEthLoginSignatureError,
    WhiteListForbiddenError,
)
from fieldbrook.core.host_port import read_host_port
from fieldbrook.security.keccak import keccak256
from fieldbrook.security.operator_keys import eip55
from fieldbrook.wasm.module.abi import OK
from fieldbrook.wasm.signatures import recover_address

NONCE_LIFETIME_MS = 300_000
ANYBODY = "*"
_SKEW_MS = 60_000  # how far a wallet's clock may be ahead of the node's clock

_DATE = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)"
_MESSAGE = re.compile(
    rf"(?:[a-z][a-z0-9+.-]*://)?(?P<domain>[^\s/?#]{{1,255}})"
    rf" wants you to sign in with your Ethereum account:\n"
    rf"(?P<address>0x[0-9A-Fa-f]{{40}})\n\n(?:(?P<statement>[^\n]++)\n\n|\n|)"
    rf"URI: (?P<uri>[^\s]{{1,1024}})\nVersion: (?P<version>\d{{1,20}})\n"
    rf"Chain ID: (?P<chain_id>\d{{1,20}})\n"
    rf"Nonce: (?P<nonce>[A-Za-z0-9]{{8,128}})\nIssued At: (?P<issued_at>{_DATE})"
    rf"(?:\nExpiration Time: (?P<expires_at>{_DATE}))?(?:\nNot Before: (?P<not_before>{_DATE}))?"
    rf"(?:\nRequest ID: (?P<request_id>[^\n]*+))?"
    rf"(?:\nResources:(?P<resources>(?:\n- [^\n]++)*+))?\n?",
    re.ASCII,
)
_SIGNATURE = re.compile(r"(?:0x)?((?:[0-9A-Fa-f]{2})++)", re.ASCII)
_NONCE = re.compile(r"([0-9a-f]{12})([0-9a-f]{16})([0-9a-f]{32})", re.ASCII)


class WalletPolicy(msgspec.Struct, frozen=True):
    """Who may sign in with a wallet.

    Args:
        domains: the hosts (with their ports) for which a message may be signed, `*` for any.
            When it is empty, the message must name the host to which the request is sent.
        whitelist: addresses in lower case that may sign in, or `*` for all. When it is empty,
            existing accounts may sign in and no new account is created.
        nonce_required: whether this node must have issued the nonce.
    """

    domains: frozenset[str] = frozenset()
    whitelist: frozenset[str] = frozenset()
    nonce_required: bool = True

    def may_create(self, address: str) -> bool:
        """Return whether an account is created for an address without an account.

        Raises:
            WhiteListForbiddenError: there is a white list without the address.
        """
        listed = address in self.whitelist or ANYBODY in self.whitelist
        if self.whitelist and not listed:
            raise WhiteListForbiddenError(address=address)
        return listed


class SignInMessage(msgspec.Struct, frozen=True):
    """A parsed EIP-4361 message; times in Unix milliseconds, `address` as written."""

    text: str
    domain: str
    address: str
    chain_id: int
    nonce: str
    issued_at: int
    expires_at: int | None
    not_before: int | None


class ReplayGuard(msgspec.Struct, frozen=True):
    """Replay protection: a digest that may be used once, stored until `valid_until` (Unix ms)."""

    digest: bytes
    valid_until: int


def parse_message(text: str) -> SignInMessage:
    """Parse an EIP-4361 message.

    Raises:
        InvalidEthLoginMessageError: the text has another form or version, or a time is invalid.
    """
    found = _MESSAGE.fullmatch(text)
    if found is None:
        raise InvalidEthLoginMessageError(reason="it does not have the form of EIP-4361")
    if found["version"] != "1":
        raise InvalidEthLoginMessageError(reason=f"version {found['version'][:20]} is not known")
    issued_at = _ms(found["issued_at"])
    assert issued_at is not None
    return SignInMessage(
        text=text,
        domain=found["domain"],
        address=found["address"],
        chain_id=int(found["chain_id"]),
        nonce=found["nonce"],
        issued_at=issued_at,
        expires_at=_ms(found["expires_at"]),
        not_before=_ms(found["not_before"]),
    )


def require_valid_time(message: SignInMessage, now_ms: int) -> None:
    """Refuse a message that has expired or is not valid yet.

    Raises:
        InvalidEthLoginMessageError: the message has expired or is not valid yet.
    """
    if message.expires_at is not None and message.expires_at <= now_ms:
        raise InvalidEthLoginMessageError(reason="it has expired")
    if message.not_before is not None and message.not_before > now_ms:
        raise InvalidEthLoginMessageError(reason="it is not valid yet")


def require_domain(
    message: SignInMessage, policy: WalletPolicy, host: str, is_own: Callable[[str], bool]
) -> None:
    """Refuse a message that was signed for another site.

    Args:
        message: the parsed message.
        policy: its `domains` are the accepted ones.
        host: the `Host` header of the request itself, never a proxy's forwarded value.
        is_own: whether a host, without its port, can be this node. The sender of a request chooses
            its `Host`. So if the names of the node are known, the host must be one of them.

    Raises:
        InvalidEthLoginMessageError: the message's domain is not accepted.
    """
    if ANYBODY in policy.domains:
        return
    domain = read_host_port(message.domain)
    if domain is None:
        raise InvalidEthLoginMessageError(reason="its domain is not of the form host or host:port")
    if policy.domains:
        if domain not in map(read_host_port, policy.domains):
            reason = f"its domain {message.domain} is not in the setting wallet_domains"
            raise InvalidEthLoginMessageError(reason=reason)
        return
    if domain != read_host_port(host):
        reason = (
            f"its domain {message.domain} is not the host that the request is sent to "
            f"({host[:255] or 'none'}); other hosts are named in the setting wallet_domains"
        )
        raise InvalidEthLoginMessageError(reason=reason)
    if not domain.is_loopback and not is_own(domain.host):
        reason = (
            f"its domain {message.domain} is not in the node's certificate; hosts of a proxy are "
            "named in the setting wallet_domains"
        )
        raise InvalidEthLoginMessageError(reason=reason)


def replay_guard(
    message: SignInMessage, policy: WalletPolicy, key: bytes, now_ms: int
) -> ReplayGuard:
    """Return the digest that must be unused for this message to sign in.

    Raises:
        InvalidEthLoginMessageError: this node did not issue the nonce, or it has expired; or,
            where clients choose their own nonces, the message is older than 5 minutes or its
            issue time is more than a minute ahead.
    """
    if policy.nonce_required:
        valid_until = _nonce_valid_until(key, message.nonce)
        digest = hashlib.sha256(message.nonce.encode()).digest()
        expected = "its nonce was not issued by GET /login/wallet/nonce, or has expired"
    else:
        valid_until = message.issued_at + NONCE_LIFETIME_MS
        digest = hashlib.sha256(message.text.encode()).digest()
        expected = "it was not issued within the last 5 minutes"
    if not now_ms < valid_until <= now_ms + NONCE_LIFETIME_MS + _SKEW_MS:
        raise InvalidEthLoginMessageError(reason=expected)
    return ReplayGuard(digest, valid_until)


def issue_nonce(key: bytes, now_ms: int) -> str:
    """Issue a nonce for one sign-in within `NONCE_LIFETIME_MS`; letters and digits only."""
    body = f"{now_ms:012x}{secrets.token_hex(8)}"
    return body + _nonce_mac(key, body)


def require_checksum(message: SignInMessage) -> str:
    """Check the EIP-55 checksum of the stated address and return the address in lower case.

    Call this in a thread, because the first call imports the elliptic-curve library.

    Raises:
        InvalidEthLoginMessageError: the capitals of the address are not those of EIP-55.
    """
    if eip55(bytes.fromhex(message.address[2:])) != message.address:
        raise InvalidEthLoginMessageError(reason="its address does not have the checksum of EIP-55")
    return message.address.lower()


def signature_bytes(text: str) -> bytes:
    """Decode a signature. The signature of a key has 65 bytes, that of a contract wallet any
    number.

    Raises:
        InvalidEthLoginSignatureError: the text is not hexadecimal.
    """
    found = _SIGNATURE.fullmatch(text)
    if found is None:
        raise InvalidEthLoginSignatureError(reason="it is not hexadecimal")
    return bytes.fromhex(found[1])


def eip191_digest(message: SignInMessage) -> bytes:
    """Return the EIP-191 digest that a wallet signs: 32 bytes."""
    data = message.text.encode()
    return keccak256(b"\x19Ethereum Signed Message:\n" + str(len(data)).encode() + data)


def signature_problem(message: SignInMessage, digest: bytes, signature: bytes) -> str:
    """Return why a signature was not made by the key of the stated address; "" if it was."""
    if len(signature) != 65:
        return "it is not 65 bytes"
    if signature[64] not in (27, 28):
        return "its last byte is neither 27 nor 28"
    code, signer = recover_address(digest, signature)
    if code != OK:
        return "it is not a valid signature of any key"
    if eip55(signer) != message.address:
        return "it was not made by the stated address"
    return ""


def _nonce_valid_until(key: bytes, nonce: str) -> int:
    found = _NONCE.fullmatch(nonce)
    if found is None or not hmac.compare_digest(_nonce_mac(key, found[1] + found[2]), found[3]):
        return 0
    return int(found[1], 16) + NONCE_LIFETIME_MS


def _nonce_mac(key: bytes, body: str) -> str:
    return hmac.new(key, f"wallet nonce {body}".encode(), hashlib.sha256).hexdigest()[:32]


def _ms(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise InvalidEthLoginMessageError(reason="it contains an invalid time") from None
