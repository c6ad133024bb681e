"""TLS of the node's ports: the certificate that the settings name, checked before it is used.

Files are PEM. The certificate's file holds the chain, the node's own certificate first.
Renewed files are taken without a restart: a context is changed in place and serves the
next connection; files that do not work leave it as it was.

TLS 1.2 is the least; for 1.2 only suites with forward secrecy and authenticated encryption
are offered (RFC 9325, 4.2), those of 1.3 all are such.
"""

from __future__ import annotations

import logging
import os
import ssl
import stat
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fieldbrook.core.errors import SettingsError
from fieldbrook.core.settings import Settings

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

log = logging.getLogger(__name__)

_SUITES = "ECDHE+AESGCM:ECDHE+CHACHA20"
_SHARED = stat.S_IRWXG | stat.S_IRWXO
_WARN_BEFORE_S = 14 * 86_400
_LARGEST_FILE = 1 << 20


class Identity(NamedTuple):
    """What a port shows of itself, and whom it lets in.

    `client_ca`: only clients with a certificate of one of these authorities are served.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None


def identity_of(settings: Settings) -> Identity | None:
    """The files that the settings name; None when the ports speak no TLS.

    Raises:
        SettingsError: a certificate without a key, or one of the others without both.
    """
    certificate, key = settings.tls_certificate, settings.tls_key
    if certificate is not None and key is not None:
        ca = settings.tls_client_ca
        return Identity(certificate.absolute(), key.absolute(), ca and ca.absolute())
    for name in ("tls_certificate", "tls_key", "tls_client_ca"):
        if getattr(settings, name) is not None:
            missing = "tls_key" if certificate is not None else "tls_certificate"
            raise SettingsError(reason=f"{name} is set and {missing} is not")
    return None


def check(settings: Settings, now_s: float | None = None) -> Identity | None:
    """Refuse what could not be served with, and warn of what soon cannot.

    Raises:
        SettingsError: a file cannot be read, is not what it should be, does not fit the
            other, or the certificate's time has not come or is over. The reason names the file.
    """
    broker_context(settings)
    identity = identity_of(settings)
    if settings.mqtt_client_ca is not None:
        _check_client_ca(settings, settings.mqtt_client_ca, identity)
    if identity is None:
        return None
    now_s = time.time() if now_s is None else now_s
    now = datetime.fromtimestamp(now_s, UTC)
    certificate = _first_certificate(identity.certificate)
    end = certificate.not_valid_after_utc
    if end < now:
        raise SettingsError(reason=f"certificate {identity.certificate}: expired on {end:%Y-%m-%d}")
    if certificate.not_valid_before_utc > now:
        start = certificate.not_valid_before_utc
        reason = f"certificate {identity.certificate}: not valid before {start:%Y-%m-%d %H:%M} UTC"
        raise SettingsError(reason=reason)
    server_context(identity)
    if (end - now).total_seconds() < _WARN_BEFORE_S:
        log.warning("certificate %s ends on %s", identity.certificate, f"{end:%Y-%m-%d}")
    if identity.key.stat().st_mode & _SHARED:
        log.warning("key %s can be read by others: chmod 600 it", identity.key)
    return identity


def _check_client_ca(settings: Settings, path: Path, identity: Identity | None) -> None:
    if settings.mqtt_broker is not None or not settings.mqtt_tls or identity is None:
        reason = "mqtt_client_ca is set and the embedded broker speaks no TLS"
        raise SettingsError(reason=reason)
    _trust(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), path)


def server_context(identity: Identity) -> ssl.SSLContext:
    """What the HTTP ports serve with.

    Raises:
        SettingsError: as `check`, but for the certificate's time.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_SUITES)
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    load(context, identity)
    if identity.client_ca is not None:
        _trust(context, identity.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def load(context: ssl.SSLContext, identity: Identity) -> None:
    """Have a context show this certificate from the next connection on.

    Raises:
        SettingsError: the files do not work; the context is as it was.
    """
    certificate, key = identity.certificate, identity.key
    _readable("certificate", certificate)
    _readable("key", key)
    try:
        # Tried on another context: a half loaded one would serve a pair that does not fit.
        trial = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        for each in (trial, context):
            each.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        raise SettingsError(reason=_why(identity, error)) from None
    except OSError as error:
        raise SettingsError(reason=f"certificate {certificate}: {error.strerror}") from None
    except _EncryptedKeyError:
        reason = f"key {key} is encrypted: give one that is not, readable by the node's user alone"
        raise SettingsError(reason=reason) from None


def names_in(certificate: Path) -> tuple[str, ...]:
    """The host names (in lower case, `*.` for any one label) and addresses that a certificate
    is for: what clients compare, its subject alternative names (RFC 9525, 6.3).

    Raises:
        SettingsError: the file cannot be read or holds no certificate.
    """
    from cryptography import x509

    try:
        names = (
            _first_certificate(certificate)
            .extensions.get_extension_for_class(x509.SubjectAlternativeName)
            .value
        )
    except x509.ExtensionNotFound:
        return ()
    except ValueError:
        reason = f"certificate {certificate}: its alternative names cannot be read"
        raise SettingsError(reason=reason) from None
    hosts = [name.lower() for name in names.get_values_for_type(x509.DNSName)]
    return (*hosts, *map(str, names.get_values_for_type(x509.IPAddress)))


def covers(names: Sequence[str], host: str) -> bool:
    """Whether one of a certificate's names is `host`, a name or an address in lower case."""
    host = host.removesuffix(".")
    _, _, above = host.partition(".")
    return host in names or (bool(above) and f"*.{above}" in names)


def broker_context(settings: Settings) -> ssl.SSLContext | None:
    """What the node checks an external broker with; None when it speaks no TLS to it.

    Raises:
        SettingsError: the file of authorities does not work.
    """
    if not settings.mqtt_broker_tls:
        if settings.mqtt_broker_ca is not None:
            raise SettingsError(reason="mqtt_broker_ca is set and mqtt_broker_tls is not")
        return None
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if settings.mqtt_broker_ca is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        _trust(context, settings.mqtt_broker_ca)
    return context


def own_context(certificate: Path) -> ssl.SSLContext:
    """What the node checks its own broker with, over the loopback: that very certificate, by
    whatever name it was issued."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _trust(context, certificate)
    return context


class Renewal:
    """Notices that a certificate's files were replaced."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._seen = self._marks()

    def noticed(self) -> bool:
        """Whether a file is another than when this was last asked."""
        marks = self._marks()
        if marks == self._seen:
            return False
        self._seen = marks
        return True

    def _marks(self) -> list[tuple[int, int, int] | None]:
        return [_mark(path) for path in (self._identity.certificate, self._identity.key)]


def _mark(path: Path) -> tuple[int, int, int] | None:
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_ino, state.st_mtime_ns, state.st_size


class _EncryptedKeyError(Exception):
    """A key needs a password; OpenSSL would ask the terminal for it."""


def _no_password() -> str:
    raise _EncryptedKeyError


def _readable(what: str, path: Path) -> None:
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size > _LARGEST_FILE:
                raise SettingsError(reason=f"{what} {path}: too large to be one")
    except OSError as error:
        raise SettingsError(reason=f"{what} {path}: {error.strerror}") from None


def _trust(context: ssl.SSLContext, path: Path) -> None:
    _readable("authorities", path)
    try:
        context.load_verify_locations(cafile=path)
    except (ssl.SSLError, OSError):
        raise SettingsError(reason=f"authorities {path}: holds no certificate in PEM") from None


def _why(identity: Identity, error: ssl.SSLError) -> str:
    """Which of the two files is wrong: OpenSSL does not say."""
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"key {identity.key} is not that of the certificate {identity.certificate}"
    if error.reason in ("EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK"):
        return f"certificate {identity.certificate}: too weak ({error.reason})"
    _first_certificate(identity.certificate)
    return f"key {identity.key}: holds no private key in PEM ({error.reason or 'unreadable'})"


def _first_certificate(path: Path) -> Certificate:
    from cryptography.x509 import load_pem_x509_certificates

    _readable("certificate", path)
    try:
        return load_pem_x509_certificates(path.read_bytes())[0]
    except ValueError:
        raise SettingsError(reason=f"certificate {path}: holds no certificate in PEM") from None
