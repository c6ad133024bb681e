"""TLS of the node's ports: loading, checking and renewing the certificate in the settings.

Files are PEM. The certificate's file contains the chain, beginning with the node's own certificate.
Renewed files need no restart: the context is changed in place and is used for the next connection.
Invalid files leave the context unchanged.

The minimum version is TLS 1.2. For 1.2 only suites with forward secrecy and authenticated
encryption are offered (RFC 9325, 4.2); all suites of 1.3 have both.
"""

from __future__ import annotations

import logging
import ssl
import stat
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fieldbrook.core.errors import SettingsError
from fieldbrook.core.settings import Settings
from fieldbrook.system.regular_file import read_regular_file

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

log = logging.getLogger(__name__)

_SUITES = "ECDHE+AESGCM:ECDHE+CHACHA20"
_SHARED = stat.S_IRWXG | stat.S_IRWXO
_WARN_BEFORE_S = 14 * 86_400
_LARGEST_FILE = 1 << 20


class Identity(NamedTuple):
    """The files of a TLS port: its certificate, its key, and the authorities of its clients.

    With `client_ca`, only clients with a certificate from one of these authorities are served.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None


def identity_of(settings: Settings) -> Identity | None:
    """Return the TLS files in the settings; None if the ports use no TLS.

    Raises:
        SettingsError: one of the settings is set without `tls_certificate` and `tls_key`.
    """
    certificate, key = settings.tls_certificate, settings.tls_key
    if certificate is not None and key is not None:
        ca = settings.tls_client_ca
        return Identity(certificate.absolute(), key.absolute(), ca and ca.absolute())
    for name in ("tls_certificate", "tls_key", "tls_client_ca"):
        if getattr(settings, name) is not None:
            missing = "tls_key" if certificate is not None else "tls_certificate"
            raise SettingsError(reason=f"{name} is set, but {missing} is not")
    return None


def check(settings: Settings, now_s: float | None = None) -> Identity | None:
    """Check all TLS settings, and log the warnings of `examine`.

    Returns:
        The TLS files of the node's ports; None when the ports use no TLS.

    Raises:
        SettingsError: as `examine`.
    """
    identity, warnings = examine(settings, now_s)
    for warning in warnings:
        log.warning("%s", warning)
    return identity


def examine(settings: Settings, now_s: float | None = None) -> tuple[Identity | None, list[str]]:
    """Check all TLS settings.

    Args:
        settings: the settings of the node.
        now_s: Unix time in seconds; by default the current time.

    Returns:
        The TLS files of the node's ports, None when the ports use no TLS; and warnings of a
        certificate that expires within 14 days and of a key file that other users can read.

    Raises:
        SettingsError: a file cannot be read or is invalid, key and certificate do not match,
            or the certificate is expired or not yet valid. The reason names the file.
    """
    broker_context(settings)
    identity = identity_of(settings)
    if settings.mqtt_client_ca is not None:
        _check_client_ca(settings, settings.mqtt_client_ca, identity)
    if identity is None:
        return None, []
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
    warnings = []
    if (end - now).total_seconds() < _WARN_BEFORE_S:
        warnings.append(f"certificate {identity.certificate} expires on {end:%Y-%m-%d}")
    if identity.key.stat().st_mode & _SHARED:
        warnings.append(f"other users can read the key {identity.key}; run chmod 600 on it")
    return identity, warnings


def expiry_of(identity: Identity) -> datetime:
    """Return the time at which the certificate expires.

    Raises:
        SettingsError: the file cannot be read or has no certificate.
    """
    return _first_certificate(identity.certificate).not_valid_after_utc


def _check_client_ca(settings: Settings, path: Path, identity: Identity | None) -> None:
    if settings.mqtt_broker is not None or not settings.mqtt_tls or identity is None:
        reason = "mqtt_client_ca is set, but the MQTT port does not use TLS"
        raise SettingsError(reason=reason)
    _trust(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), path)


def server_context(identity: Identity) -> ssl.SSLContext:
    """Make the TLS context of the HTTP ports.

    Raises:
        SettingsError: as `check`, except for the validity period of the certificate.
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
    """Load a certificate and its key into a context, for all later connections.

    Raises:
        SettingsError: the files are invalid; the context is unchanged.
    """
    certificate, key = identity.certificate, identity.key
    _read("certificate", certificate)
    _read("key", key)
    try:
        # They are loaded into a trial context first, because a partial failure would leave the real
        # context with a certificate and a key that do not match.
        trial = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        for each in (trial, context):
            each.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        raise SettingsError(reason=_explain(identity, error)) from None
    except OSError as error:
        raise SettingsError(reason=f"certificate {certificate}: {error.strerror}") from None
    except _EncryptedKeyError:
        reason = (
            f"key {key} is encrypted; use an unencrypted key that only the node's user can read"
        )
        raise SettingsError(reason=reason) from None


def names_in(certificate: Path) -> tuple[str, ...]:
    """Return the subject alternative names of a certificate, which clients compare (RFC 9525, 6.3).

    Returns:
        Host names in lower case, with `*.` for any one label, then IP addresses.

    Raises:
        SettingsError: the file cannot be read, holds no certificate, or its names are invalid.
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
    """Return whether a certificate's names cover `host`, a host name or an address in lower
    case."""
    host = host.removesuffix(".")
    _, _, above = host.partition(".")
    return host in names or (bool(above) and f"*.{above}" in names)


def broker_context(settings: Settings) -> ssl.SSLContext | None:
    """Make the context that verifies an external broker; return None if its connection uses no TLS.

    Raises:
        SettingsError: the authorities' file is invalid, or is set without `mqtt_broker_tls`.
    """
    if not settings.mqtt_broker_tls:
        if settings.mqtt_broker_ca is not None:
            raise SettingsError(reason="mqtt_broker_ca is set, but mqtt_broker_tls is not")
        return None
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if settings.mqtt_broker_ca is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        _trust(context, settings.mqtt_broker_ca)
    return context


class CertificateWatch:
    """Detects that the files of a certificate were replaced."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._seen = self._marks()

    def has_changed(self) -> bool:
        """Return whether a file has changed since the last call."""
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
    """The key is encrypted. Raised by a callback, because otherwise OpenSSL would ask for the
    password at the terminal."""


def _no_password() -> str:
    raise _EncryptedKeyError


def _read(what: str, path: Path) -> bytes:
    """Read a whole file, within limits: OpenSSL opens files by name, without a size limit, and
    would wait for a pipe."""
    try:
        return read_regular_file(path, _LARGEST_FILE)
    except OSError as error:
        raise SettingsError(reason=f"{what} {path}: {error.strerror}") from None


def _trust(context: ssl.SSLContext, path: Path) -> None:
    _read("authorities", path)
    try:
        context.load_verify_locations(cafile=path)
    except (ssl.SSLError, OSError):
        raise SettingsError(reason=f"authorities {path}: contains no certificate in PEM") from None


def _explain(identity: Identity, error: ssl.SSLError) -> str:
    """Find out which of the two files is invalid, because OpenSSL does not report this."""
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"key {identity.key} does not belong to the certificate {identity.certificate}"
    if error.reason in ("EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK"):
        return f"certificate {identity.certificate}: too weak ({error.reason})"
    _first_certificate(identity.certificate)
    return f"key {identity.key}: contains no private key in PEM ({error.reason or 'unreadable'})"


def _first_certificate(path: Path) -> Certificate:
    from cryptography.x509 import load_pem_x509_certificates

    content = _read("certificate", path)
    try:
        return load_pem_x509_certificates(content)[0]
    except ValueError:
        raise SettingsError(reason=f"certificate {path}: contains no certificate in PEM") from None
