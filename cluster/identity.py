"""Authentication between the hosts of a cluster.

A cluster has its own certificate authority, a certificate for each host, and tokens with which new
hosts join.
"""

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
"""The files that all hosts of a cluster share."""
TOKEN_PREFIX = "fbj_"  # noqa: S105 - a public prefix
TOKEN_S = 3_600  # how long a token is valid
DAYS = 3_650  # how long a host's certificate is valid
_DIGEST_BYTES = 16


class JoinToken(NamedTuple):
    """A token with which a host joins a cluster.

    Attributes:
        expires_s: end of its validity, in Unix seconds.
        proof: an HMAC of `expires_s` with the cluster's key for tokens.
        authority: digest of the certificate of the cluster's authority. With it, the new host
            authenticates the cluster before it sends the token.
    """

    expires_s: int
    proof: bytes
    authority: bytes

    def text(self) -> str:
        """Return the token as text, for users to copy."""
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
        """Create the certificate authority of a new cluster, and the key for its tokens."""
        authority = Authority("fieldbrook cluster")
        self._write(AUTHORITY, authority.certificate, 0o644)
        self._write(AUTHORITY_KEY, authority.key, 0o600)
        self._write(JOIN_KEY, secrets.token_bytes(32), 0o600)

    def issue(self, name: str, address: str) -> Issued:
        """Issue a certificate for a host."""
        authority = Authority.read(self.read(AUTHORITY), self.read(AUTHORITY_KEY))
        return authority.issue([name, address], DAYS, peer=True)

    def store_own(self, issued: Issued) -> None:
        """Store the certificate and the key of this host."""
        self._write(CERTIFICATE, issued.certificate, 0o644)
        self._write(KEY, issued.key, 0o600)

    def store_received(self, name: str, content: bytes) -> None:
        """Store a file that another host has sent."""
        self._write(name, content, 0o644 if name == AUTHORITY else 0o600)

    def shared(self) -> dict[str, bytes]:
        """Return the contents of the files that all hosts share, by file name."""
        return {name: self.read(name) for name in SHARED_FILES}

    def read(self, name: str) -> bytes:
        """Return the content of a file.

        Raises:
            SettingsError: the file cannot be read.
        """
        try:
            return (self.folder / name).read_bytes()
        except OSError as error:
            raise SettingsError(
                reason=f"{self.folder / name} cannot be read: {error.strerror}"
            ) from error

    def _write(self, name: str, content: bytes, mode: int) -> None:
        try:
            make_folder(self.folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            descriptor = os.open(self.folder / name, flags, mode)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
        except OSError as error:
            raise SettingsError(
                reason=f"{self.folder / name} cannot be written: {error.strerror}"
            ) from error

    # ---------------------------------------------------------------- tokens

    def token(self, now_s: float | None = None) -> str:
        """Make a token with which hosts may join during the next hour (`TOKEN_S`)."""
        expires_s = int(time.time() if now_s is None else now_s) + TOKEN_S
        return JoinToken(expires_s, self._proof(expires_s), digest(self.read(AUTHORITY))).text()

    def why_not(self, text: str, now_s: float | None = None) -> str:
        """Return why a token is refused; an empty text if it is valid."""
        try:
            token = read_token(text)
        except SettingsError as error:
            return str(error)
        if not hmac.compare_digest(token.proof, self._proof(token.expires_s)):
            return "the join token belongs to another cluster"
        if token.expires_s < (time.time() if now_s is None else now_s):
            return "the join token has expired: make a new one with `fieldbrook cluster invite`"
        return ""

    def _proof(self, expires_s: int) -> bytes:
        key = self.read(JOIN_KEY)
        return hmac.digest(key, expires_s.to_bytes(5, "big"), "sha256")[:_DIGEST_BYTES]

    # ---------------------------------------------------------------- TLS

    def server_context(self) -> ssl.SSLContext:
        """Return the TLS context for connections from other hosts.

        A client certificate is optional, because a host that joins has none yet.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(self.folder / CERTIFICATE, self.folder / KEY)
        context.load_verify_locations(self.folder / AUTHORITY)
        context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def client_context(self) -> ssl.SSLContext:
        """Return the TLS context for connections to other hosts."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(self.folder / CERTIFICATE, self.folder / KEY)
        context.load_verify_locations(self.folder / AUTHORITY)
        return context


def digest(certificate: bytes) -> bytes:
    """Return the digest of an authority's certificate in PEM."""
    return hashlib.sha256(certificate.strip()).digest()[:_DIGEST_BYTES]


def read_token(text: str) -> JoinToken:
    """Parse a token.

    Raises:
        SettingsError: the text is not a token.
    """
    refused = SettingsError(
        reason=f"join_token is not a join token, which begins with {TOKEN_PREFIX}"
    )
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
    """Return the common name of a certificate as decoded by `ssl`; None if there is none."""
    for entry in (certificate or {}).get("subject", ()):
        for key, value in entry:
            if key == "commonName":
                return str(value)
    return None
