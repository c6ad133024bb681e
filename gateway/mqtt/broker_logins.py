"""Logins of devices at the embedded broker: any user name and any password are accepted.

A login gives a device no more rights than none, so firmware that sends configured credentials can
connect. nats-server asks a service about every user name that its configuration does not have
("auth callout"), and the node is that service. The answer is a JWT with the rights of the device,
signed with a key that the configuration names.

Source: ADR-26 of the NATS architecture (auth callout), and its JWT library for the claims.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fieldbrook.security import node_secrets

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SUBJECT = "$SYS.REQ.USER.AUTH"
PUBLISH = ("*", "*.push.>")
# Devices may not read ingress topics. They may not read the traffic between server and node
# either: it has user names and passwords of other devices, and stored messages.
DENIED = ("*.push.>", "$SYS.>", "$JS.>", "_INBOX.>")

_PURPOSE = b"fieldbrook: logins of devices at the embedded broker"
_ACCOUNT_PREFIX = 0  # makes an encoded public key begin with A
_GLOBAL_ACCOUNT = "$G"
_REQUEST_LIMIT_BYTES = 64 << 10
_BEGINNING_BYTES = 1_024  # of a request: the server's own fields, before those of the device
_KEY_LENGTH = 56
_TOO_LONG = "the user name and the password are too long"
_NOT_MQTT = "only MQTT clients are let in without an account"


@dataclass(frozen=True)
class Logins:
    """Signs the rights of devices.

    `subscribe` lists the subjects that devices may read, in the server's form.
    """

    seed: bytes
    subscribe: tuple[str, ...]

    @classmethod
    def of(cls, data: Path, subscribe: Sequence[str]) -> Logins:
        """Create the logins of a node's data folder; the key is derived from the broker's.

        Raises:
            StoreError: the broker's key cannot be read or created.
        """
        secret = node_secrets.load_or_create_key(data / "secrets", "broker.key")
        return cls(hashlib.sha256(_PURPOSE + secret).digest(), tuple(subscribe))

    @cached_property
    def _key(self) -> Ed25519PrivateKey:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(self.seed)

    @cached_property
    def issuer(self) -> str:
        """The public key in the form of the server's configuration (an NKey)."""
        public = bytes([_ACCOUNT_PREFIX]) + self._key.public_key().public_bytes_raw()
        return base64.b32encode(public + _crc16(public).to_bytes(2, "little")).decode().rstrip("=")

    def answer(self, request: bytes) -> bytes | None:
        """Answer the server's authorization request; None when `request` is no such request.

        A device whose user name and password are too long is refused without parsing them: the
        server holds several copies of both, and the device's connection, until it is answered.

        The request arrives on a connection on which only the server can ask. Its signature would
        prove nothing more and is not verified.
        """
        if len(request) > _REQUEST_LIMIT_BYTES:
            return self._refusal(request)
        try:
            claims = json.loads(_unpadded(request.split(b".")[1]))
            user, server = claims["nats"]["user_nkey"], claims["nats"]["server_id"]["id"]
            kind = claims["nats"]["client_info"]["type"]
        except (ValueError, LookupError, TypeError, RecursionError):
            return None
        if kind != "mqtt":
            # Other users of the machine can reach the server's own port, which only the node may
            # use. `allowed_connection_types` does not keep them out of it.
            return self._refused(user, server, _NOT_MQTT)
        permissions: dict[str, Any] = {
            "pub": {"allow": PUBLISH},
            "sub": {"allow": self.subscribe, "deny": DENIED},
            "subs": -1,
            "data": -1,
            "payload": -1,
            "allowed_connection_types": ["MQTT"],
            "type": "user",
            "version": 2,
        }
        token = self._signed(user, _GLOBAL_ACCOUNT, {"name": "device", "nats": permissions})
        response = {"jwt": token, "type": "authorization_response", "version": 2}
        return self._signed(user, server, {"nats": response}).encode()

    def _refusal(self, request: bytes) -> bytes | None:
        start = request.find(b".", 0, _BEGINNING_BYTES) + 1
        try:
            beginning = base64.urlsafe_b64decode(request[start : start + _BEGINNING_BYTES])
        except ValueError:
            return None
        user, server = _key_after(beginning, b'"user_nkey":"U'), _key_after(beginning, b'"iss":"N')
        if not user or not server:
            return None
        return self._refused(user, server, _TOO_LONG)

    def _refused(self, user: str, server: str, reason: str) -> bytes:
        response = {"error": reason, "type": "authorization_response", "version": 2}
        return self._signed(user, server, {"nats": response}).encode()

    def _signed(self, subject: str, audience: str, claims: dict[str, Any]) -> str:
        now = int(time.time())
        claims = {"iss": self.issuer, "sub": subject, "aud": audience, "iat": now, **claims}
        claims["jti"] = hashlib.sha256(_json(claims)).hexdigest()
        head = {"typ": "JWT", "alg": "ed25519-nkey"}
        text = _encoded(_json(head)) + "." + _encoded(_json(claims))
        return text + "." + _encoded(self._key.sign(text.encode()))


def _key_after(text: bytes, name: bytes) -> str:
    """Find the encoded public key that begins with the last letter of `name`; else ""."""
    start = text.find(name) + len(name) - 1
    key = text[start : start + _KEY_LENGTH]
    return key.decode() if name in text and len(key) == _KEY_LENGTH and key.isalnum() else ""


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _unpadded(text: bytes) -> bytes:
    return base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4))


def _crc16(data: bytes) -> int:
    """CRC-16/XMODEM, the checksum at the end of every encoded key."""
    crc = 0
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc
