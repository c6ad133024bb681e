"""The certificate that a node makes for itself, for `localhost`, `127.0.0.1` and `::1`.

With this certificate, https://localhost:3000 works without any setting. It is issued by an
authority of its own, whose key is not stored. So a client that trusts the authority trusts this one
certificate and no other.

`cryptography` is imported only when a certificate is made, because the import would slow down every
start.
"""

from __future__ import annotations

import ssl
import time
from pathlib import Path

from fieldbrook.core.errors import SettingsError, StoreError
from fieldbrook.security import tls
from fieldbrook.system.fsync import make_folder

NAMES = ("localhost", "127.0.0.1", "::1")
AUTHORITY_FILE = "localhost-ca.pem"
_FILE = "localhost.pem"
_DAYS = 800  # browsers of Apple accept no certificate that is valid for more than 825 days
_RENEWED_AFTER_S = (_DAYS - 90) * 86_400
_BEGIN = b"-----BEGIN CERTIFICATE-----"


def local_identity(folder: Path, now_s: float | None = None) -> tls.Identity:
    """Return the certificate and its key; make it if there is none, or if it expires within 90
    days.

    Both are in `localhost.pem` (0600), followed by the authority's certificate. They are in one
    file, so that they are replaced together. The authority's certificate is also in
    `localhost-ca.pem`.

    Args:
        folder: the folder of the node's secrets.
        now_s: Unix time in seconds; now by default.

    Raises:
        StoreError: the files cannot be written.
    """
    own, authority = folder / _FILE, folder / AUTHORITY_FILE
    try:
        if (time.time() if now_s is None else now_s) - _made_s(own) > _RENEWED_AFTER_S:
            _make(own, authority)
        elif not authority.exists():
            _replace(authority, _BEGIN + own.read_bytes().rpartition(_BEGIN)[2])
    except OSError as error:
        raise StoreError(reason=f"{error.filename or own}: {error.strerror}") from error
    return tls.Identity(own, own)


def _made_s(path: Path) -> float:
    """Return the time when the certificate in the file was made; 0 if it is missing or damaged.

    It was made at the same time as its authority, and `ssl` can read the time of the authority.
    """
    try:
        context = tls.server_context(tls.Identity(path, path))
        context.load_verify_locations(path)
    except (FileNotFoundError, SettingsError, ssl.SSLError):
        return 0.0
    times = (ssl.cert_time_to_seconds(str(ca["notBefore"])) for ca in context.get_ca_certs())
    return max(times, default=0.0)


def _make(own: Path, authority: Path) -> None:
    from fieldbrook.security.certificates import Authority

    made = Authority("fieldbrook on this machine")
    issued = made.issue(NAMES, _DAYS)
    _replace(own, issued.key + issued.certificate + made.certificate)
    _replace(authority, made.certificate)


def _replace(path: Path, content: bytes) -> None:
    make_folder(path.parent)
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    draft.touch(0o600)  # other users cannot access the folder anyway
    draft.write_bytes(content)
    draft.replace(path)
