"""The certificate that a node makes for itself: of `localhost`, `127.0.0.1` and `::1`.

With it https://localhost:3000 works without any setting. It comes from an authority of its own,
whose key is not stored, so whoever trusts the authority trusts this one certificate and no other.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from fieldbrook.core.errors import SettingsError, StoreError
from fieldbrook.security import tls
from fieldbrook.security.certificates import Authority
from fieldbrook.system.fsync import make_folder

NAMES = ("localhost", "127.0.0.1", "::1")
AUTHORITY_FILE = "localhost-ca.pem"
_FILE = "localhost.pem"
_DAYS = 800  # browsers of Apple take no certificate for longer than 825 days
_RENEWED_BEFORE = timedelta(days=90)


def local_identity(folder: Path) -> tls.Identity:
    """The certificate and its key; made when there is none, or when it expires within 90 days.

    Both are in `localhost.pem` (0600), followed by the authority's certificate, which is also in
    `localhost-ca.pem`: one file cannot be half replaced.

    Args:
        folder: the folder of the node's secrets.

    Raises:
        StoreError: the files cannot be written.
    """
    own, authority = folder / _FILE, folder / AUTHORITY_FILE
    try:
        chain = _chain_in(own)
        if not chain or chain[0].not_valid_after_utc - datetime.now(UTC) < _RENEWED_BEFORE:
            made = Authority("fieldbrook on this machine")
            issued = made.issue(NAMES, _DAYS)
            _replace(own, issued.key + issued.certificate + made.certificate)
            _replace(authority, made.certificate)
        elif not authority.exists():
            _replace(authority, chain[-1].public_bytes(serialization.Encoding.PEM))
    except OSError as error:
        raise StoreError(reason=f"{error.filename or own}: {error.strerror}") from error
    return tls.Identity(own, own)


def _chain_in(path: Path) -> list[x509.Certificate]:
    """The certificates in the file; none when it is missing or damaged."""
    try:
        tls.server_context(tls.Identity(path, path))
        return x509.load_pem_x509_certificates(path.read_bytes())
    except (FileNotFoundError, SettingsError, ValueError):
        return []


def _replace(path: Path, content: bytes) -> None:
    make_folder(path.parent)
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    draft.touch(0o600)  # the folder is closed to others anyway
    draft.write_bytes(content)
    draft.replace(path)
