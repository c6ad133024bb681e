"""Trial certificates: a private certificate authority and the certificates that it issues.

They are for a trial, a test or a private network whose clients are configured to trust the
authority. The authority's key is not stored: another certificate needs a new authority.

Source: RFC 5280; CA/Browser Forum Baseline Requirements, 7.1, for what clients expect.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAYS = 365
_BACKDATED = timedelta(minutes=5)  # because clocks of devices differ
_KEY_USES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


class Issued(NamedTuple):
    """A certificate and its key, in PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """A certificate authority. Only this object has the authority's key, unless the caller stores
    `key`."""

    def __init__(self, name: str = "fieldbrook trial authority") -> None:
        self._now = datetime.now(UTC)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _common_name(name)
        builder = _builder(self._name, self._name, self._key, self._now, 10 * DAYS)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        builder = builder.add_extension(_key_usage("key_cert_sign", "crl_sign"), True)
        self._certificate = builder.sign(self._key, hashes.SHA256())

    @classmethod
    def read(cls, certificate: bytes, key: bytes) -> Authority:
        """Return the authority with this certificate and key, in PEM.

        Raises:
            ValueError: the certificate or the key cannot be read.
        """
        authority = cls.__new__(cls)
        authority._now = datetime.now(UTC)
        loaded = serialization.load_pem_private_key(key, None)
        if not isinstance(loaded, ec.EllipticCurvePrivateKey):
            raise ValueError("the authority's key is not an elliptic-curve key")  # noqa: TRY004
        authority._key = loaded
        authority._certificate = x509.load_pem_x509_certificate(certificate)
        authority._name = authority._certificate.subject
        return authority

    @property
    def key(self) -> bytes:
        """The authority's key, in PEM."""
        return _pem(self._key)

    @property
    def certificate(self) -> bytes:
        """The authority's certificate, which clients must trust, in PEM."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def issue(
        self, names: Sequence[str], days: int = DAYS, *, client: bool = False, peer: bool = False
    ) -> Issued:
        """Issue a certificate for a server with these host names and addresses, or for a client.

        A `peer` is both a server and a client.

        Raises:
            ValueError: a name cannot be in a certificate.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_common_name(names[0]), self._name, key, self._now, days)
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH if client else ExtendedKeyUsageOID.SERVER_AUTH]
        if peer:
            uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        authority_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        for extension, critical in (
            (x509.SubjectAlternativeName([_general_name(name) for name in names]), False),
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (_key_usage("digital_signature"), True),
            (x509.ExtendedKeyUsage(uses), False),
            (authority_id, False),
        ):
            builder = builder.add_extension(extension, critical)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Issued(certificate.public_bytes(serialization.Encoding.PEM), _pem(key))


def write(folder: Path, names: Sequence[str], days: int = DAYS) -> tuple[Path, Path, Path]:
    """Write `ca.pem`, `certificate.pem` and `key.pem` (0600) of a new authority.

    Raises:
        FileExistsError: one of the files exists.
        OSError: the files cannot be written.
        ValueError: a name cannot be in a certificate.
    """
    authority = Authority()
    issued = authority.issue(names, days)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    paths = folder / "ca.pem", folder / "certificate.pem", folder / "key.pem"
    for path in paths:
        if path.exists():
            raise FileExistsError(f"{path} exists")
    contents = authority.certificate, issued.certificate, issued.key
    for path, content, mode in zip(paths, contents, (0o644, 0o644, 0o600), strict=True):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    return paths


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    days: int,
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder(issuer, subject, key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(min(now, now + timedelta(days=days)) - _BACKDATED)
    builder = builder.not_valid_after(now + timedelta(days=days))
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_usage(*uses: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{name: name in uses for name in _KEY_USES})
