"""What hosts of a cluster know each other by: its own authority, a certificate for each host, and
tokens with which new hosts join."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import ssl
import time
from pathlib import Path
from typing import Any, NamedTuple

from fieldbrook.cluster.hosts_file import FOLDER
from fieldbrook.core.errors import SettingsError
from fieldbrook.security.certificates import Authority, Issued
from fieldbrook.system.fsync import make_folder

AUTHORITY, AUTHORITY_KEY = "ca.pem", "ca-key.pem"
CERTIFICATE, KEY = "host.pem", "host-key.pem"
JOIN_KEY = "join.key"
SHARED_FILES = (AUTHORITY, AUTHORITY_KEY, JOIN_KEY)
"""What all hosts of a cluster have."""
TOKEN_PREFIX = "fbj_"  # noqa: S105 - what a token begins with
TOKEN_S = 3_600
DAYS = 3_650
_DIGEST_BYTES = 16


class JoinToken(NamedTuple):
    """A token: until when it is valid, its proof, and the digest of the authority's certificate.

    With the digest the new host recognises the cluster before it sends anything.
    """

    expires_s: int
    proof: bytes
    authority: bytes

    def text(self) -> str:
        """The token as people copy it."""
        data = self.expires_s.to_bytes(5, "big") + self.proof + self.authority
        return TOKEN_PREFIX + base64.urlsafe_b64encode(data).decode().rstrip("=")


class Identity:
    """The certificates and keys of this host, in its data folder.

    Args:
        data: the data folder.
    """

    def __init__(self, data: Path) -> None:
        self.folder = data / FOLDER

    def create_authority(self) -> None:
        """Create the authority of a new cluster, and the key of its tokens."""
        authority = Authority("fieldbrook cluster")
        self._write(AUTHORITY, authority.certificate, 0o644)
        self._write(AUTHORITY_KEY, authority.key, 0o600)
        self._write(JOIN_KEY, secrets.token_bytes(32), 0o600)

    def issue(self, name: str, address: str) -> Issued:
        """Issue the certificate of a host."""
        authority = Authority.read(self.read(AUTHORITY), self.read(AUTHORITY_KEY))
        return authority.issue([name, address], DAYS, peer=True)

    def keep(self, issued: Issued) -> None:
        """Store the certificate of this host."""
        self._write(CERTIFICATE, issued.certificate, 0o644)
        self._write(KEY, issued.key, 0o600)

    def take(self, name: str, content: bytes) -> None:
        """Store a file that another host has sent."""
        self._write(name, content, 0o644 if name == AUTHORITY else 0o600)

    def shared(self) -> dict[str, bytes]:
        """What every host of the cluster has, by the name of the file."""
        return {name: self.read(name) for name in SHARED_FILES}

    def read(self, name: str) -> bytes:
        """Return the content of a file.

        Raises:
            SettingsError: it cannot be read.
        """
        try:
            return (self.folder / name).read_bytes()
        except OSError as error:
            raise SettingsError(reason=f"{self.folder / name}: {error.strerror}") from error

    def _write(self, name: str, content: bytes, mode: int) -> None:
        try:
            make_folder(self.folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            descriptor = os.open(self.folder / name, flags, mode)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
        except OSError as error:
            raise SettingsError(reason=f"{self.folder / name}: {error.strerror}") from error

    # ---------------------------------------------------------------- tokens

    def token(self, now_s: float | None = None) -> str:
        """Make a token with which hosts may join for an hour."""
        expires_s = int(time.time() if now_s is None else now_s) + TOKEN_S
        return JoinToken(expires_s, self._proof(expires_s), digest(self.read(AUTHORITY))).text()

    def why_not(self, text: str, now_s: float | None = None) -> str:
        """Return why a token is refused; empty when it is valid."""
        try:
            token = read_token(text)
        except SettingsError as error:
            return str(error)
        if not hmac.compare_digest(token.proof, self._proof(token.expires_s)):
            return "the token is not of this cluster"
        if token.expires_s < (time.time() if now_s is None else now_s):
            return "the token has expired: make another one with `fieldbrook cluster invite`"
        return ""

    def _proof(self, expires_s: int) -> bytes:
        key = self.read(JOIN_KEY)
        return hmac.digest(key, expires_s.to_bytes(5, "big"), "sha256")[:_DIGEST_BYTES]

    # ---------------------------------------------------------------- TLS

    def server_context(self) -> ssl.SSLContext:
        """TLS for connections from other hosts; who joins has no certificate yet."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(self.folder / CERTIFICATE, self.folder / KEY)
        context.load_verify_locations(self.folder / AUTHORITY)
        context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def client_context(self) -> ssl.SSLContext:
        """TLS for connections to other hosts."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(self.folder / CERTIFICATE, self.folder / KEY)
        context.load_verify_locations(self.folder / AUTHORITY)
        return context


def digest(certificate: bytes) -> bytes:
    """The digest of an authority's certificate, given in PEM."""
    return hashlib.sha256(certificate.strip()).digest()[:_DIGEST_BYTES]


def read_token(text: str) -> JoinToken:
    """Read a token.

    Raises:
        SettingsError: it is none.
    """
    refused = SettingsError(reason=f"join_token is no token: it begins with {TOKEN_PREFIX}")
    if not text.startswith(TOKEN_PREFIX) or len(text) > 200:
        raise refused
    encoded = text.removeprefix(TOKEN_PREFIX)
    try:
        data = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    except (ValueError, binascii.Error):
        raise refused from None
    if len(data) != 5 + 2 * _DIGEST_BYTES:
        raise refused
    proof, authority = data[5 : 5 + _DIGEST_BYTES], data[5 + _DIGEST_BYTES :]
    return JoinToken(int.from_bytes(data[:5], "big"), proof, authority)


def name_of(certificate: dict[str, Any] | None) -> str | None:
    """Return the name in a certificate that `ssl` has decoded; None when there is none."""
    for entry in (certificate or {}).get("subject", ()):
        for key, value in entry:
            if key == "commonName":
                return str(value)
    return None
