"""Join tokens, and certificates of a cluster."""

from __future__ import annotations

import base64
import ssl
import stat
from pathlib import Path

import pytest

from fieldbrook.cluster.identity import (
    AUTHORITY_KEY,
    CERTIFICATE,
    JOIN_KEY,
    KEY,
    TOKEN_PREFIX,
    TOKEN_S,
    Identity,
    digest,
    read_token,
)
from fieldbrook.core.errors import SettingsError

NOW_S = 1_800_000_000


def cluster(data: Path, name: str = "h1") -> Identity:
    identity = Identity(data)
    identity.create_authority()
    identity.store_own(identity.issue(name, "127.0.0.1"))
    return identity


def member(data: Path, of: Identity, name: str) -> Identity:
    """Make another host of a cluster."""
    identity = Identity(data)
    for file, content in of.shared().items():
        identity.store_received(file, content)
    identity.store_own(of.issue(name, "127.0.0.1"))
    return identity


def test_a_token_is_valid_for_an_hour_on_each_host_of_its_cluster(tmp_path: Path) -> None:
    one = cluster(tmp_path / "1")
    two = member(tmp_path / "2", one, "h2")
    token = one.token(NOW_S)
    for identity in (one, two):
        assert identity.why_not(token, NOW_S) == ""
        assert identity.why_not(token, NOW_S + TOKEN_S) == ""
        assert "has expired" in identity.why_not(token, NOW_S + TOKEN_S + 1)
    assert read_token(token).authority == digest(one.read("ca.pem"))


def test_a_token_of_another_cluster_or_with_another_time_is_refused(tmp_path: Path) -> None:
    one, other = cluster(tmp_path / "1"), cluster(tmp_path / "2")
    assert one.why_not(other.token(NOW_S), NOW_S) == "the join token belongs to another cluster"
    token = read_token(one.token(NOW_S))
    longer = token._replace(expires_s=token.expires_s + 1).text()
    assert one.why_not(longer, NOW_S) == "the join token belongs to another cluster"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        TOKEN_PREFIX,
        TOKEN_PREFIX + "AAAA",
        TOKEN_PREFIX + "é" * 50,
        TOKEN_PREFIX + base64.urlsafe_b64encode(b"x" * 36).decode(),
        TOKEN_PREFIX + base64.urlsafe_b64encode(b"x" * 38).decode(),
        TOKEN_PREFIX + "A" * 100_000,
        base64.urlsafe_b64encode(b"x" * 37).decode(),
    ],
)
def test_what_is_no_token_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError, match="join_token is not a join token"):
        read_token(text)
    assert "join_token is not a join token" in cluster(tmp_path).why_not(text)


def test_keys_are_readable_by_the_node_alone(tmp_path: Path) -> None:
    identity = cluster(tmp_path)
    for name in (AUTHORITY_KEY, JOIN_KEY, KEY):
        assert stat.S_IMODE((identity.folder / name).stat().st_mode) == 0o600


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=CERTIFICATE):
        Identity(tmp_path).read(CERTIFICATE)


# -------------------------------------------------------------------- TLS


def shake(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> ssl.SSLObject:
    """Make a TLS connection in memory; return the server's side after one message of the client."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server, server_hostname=name)
    other = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (one, other):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    one.write(b"x")
    assert other.read(1) == b"x"
    return other


def test_hosts_of_a_cluster_know_each_other_by_tls_1_3(tmp_path: Path) -> None:
    one = cluster(tmp_path / "1")
    two = member(tmp_path / "2", one, "h2")
    for client, server, name in ((one, two, "h1"), (two, one, "h2")):
        side = shake(client.client_context(), server.server_context(), "127.0.0.1")
        assert side.version() == "TLSv1.3"
        shown = side.getpeercert()
        assert shown is not None
        assert shown["subject"] == ((("commonName", name),),)


def test_a_host_of_another_cluster_is_refused_by_both_sides(tmp_path: Path) -> None:
    one, other = cluster(tmp_path / "1"), cluster(tmp_path / "2")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(one.client_context(), other.server_context(), "127.0.0.1")
    careless = other.client_context()
    careless.check_hostname, careless.verify_mode = False, ssl.CERT_NONE
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(careless, one.server_context(), "127.0.0.1")


def test_a_certificate_counts_at_its_own_address_only(tmp_path: Path) -> None:
    one = cluster(tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        shake(one.client_context(), one.server_context(), "10.0.0.9")


def test_who_joins_shows_no_certificate_and_tls_1_2_is_refused(tmp_path: Path) -> None:
    one = cluster(tmp_path)
    joining = ssl.create_default_context(cafile=str(one.folder / "ca.pem"))
    assert not shake(joining, one.server_context(), "127.0.0.1").getpeercert()
    joining.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        shake(joining, one.server_context(), "127.0.0.1")
