"""The certificate that a node creates for itself."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography import x509

from fieldbrook.core.errors import StoreError
from fieldbrook.security import local_certificate, tls
from fieldbrook.security.certificates import Authority
from fieldbrook.security.local_certificate import AUTHORITY_FILE, NAMES, local_identity


def test_it_is_made_once_for_this_machine_and_stays_private(tmp_path: Path) -> None:
    identity = local_identity(tmp_path / "secrets")
    assert tls.names_in(identity.certificate) == NAMES
    assert identity.key.stat().st_mode & 0o777 == 0o600
    before = identity.certificate.read_bytes()
    assert local_identity(tmp_path / "secrets").certificate.read_bytes() == before
    tls.server_context(identity)


def test_the_authoritys_key_is_nowhere(tmp_path: Path) -> None:
    identity = local_identity(tmp_path)
    assert identity.key.read_bytes().count(b"PRIVATE KEY-----") == 2  # begin and end of one key
    authority = x509.load_pem_x509_certificate((tmp_path / AUTHORITY_FILE).read_bytes())
    trusted = ssl.create_default_context(cadata=(tmp_path / AUTHORITY_FILE).read_text())
    assert trusted.cert_store_stats()["x509_ca"] == 1
    (own, *_) = x509.load_pem_x509_certificates(identity.certificate.read_bytes())
    own.verify_directly_issued_by(authority)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["localhost-ca.pem", "localhost.pem"]


@pytest.mark.parametrize("damaged", [b"", b"no certificate", None])
def test_a_damaged_one_is_replaced(tmp_path: Path, damaged: bytes | None) -> None:
    path = local_identity(tmp_path).certificate
    if damaged is None:  # the authority's certificate is missing
        issued = Authority().issue(NAMES)
        damaged = issued.key + issued.certificate
    path.write_bytes(damaged)
    tls.server_context(local_identity(tmp_path))
    assert path.read_bytes() != damaged
    assert (tmp_path / AUTHORITY_FILE).read_bytes() in path.read_bytes()


def test_one_that_expires_within_90_days_is_replaced(tmp_path: Path) -> None:
    path = local_identity(tmp_path).certificate
    first = path.read_bytes()
    expires_s = x509.load_pem_x509_certificates(first)[0].not_valid_after_utc.timestamp()
    local_identity(tmp_path, expires_s - 91 * 86_400)
    assert path.read_bytes() == first
    local_identity(tmp_path, expires_s - 89 * 86_400)
    assert path.read_bytes() != first
    assert (tmp_path / AUTHORITY_FILE).read_bytes() in path.read_bytes()


def test_the_authoritys_file_can_be_made_again_from_the_other(tmp_path: Path) -> None:
    local_identity(tmp_path)
    authority = (tmp_path / AUTHORITY_FILE).read_bytes()
    (tmp_path / AUTHORITY_FILE).unlink()
    local_identity(tmp_path)
    assert (tmp_path / AUTHORITY_FILE).read_bytes() == authority


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "secrets").write_text("a file")
    with pytest.raises(StoreError, match="secrets"):
        local_certificate.local_identity(tmp_path / "secrets")
