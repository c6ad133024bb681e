"""Messages, signatures and nonces of wallets."""

from __future__ import annotations

import re

import pytest
from coincurve import PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.core.errors import (
    InvalidEthLoginMessageError,
    InvalidEthLoginSignatureError,
    WhiteListForbiddenError,
)
from fieldbrook.gateway.management.sign_in import wallet
from fieldbrook.gateway.management.sign_in.wallet import SignInMessage, WalletPolicy
from fieldbrook.security.keccak import keccak256

KEY = b"k" * 32
ADDRESS = "0x19E7E376E7C213B7E7e7e46cc70A5dD086DAff2A"
SAMPLE = (
    "localhost:3000 wants you to sign in with your Ethereum account:\n"
    f"{ADDRESS}\n\n\nURI: http://localhost:3000\nVersion: 1\nChain ID: 4690\n"
    "Nonce: abcdEFGH1234\nIssued At: 2023-11-14T22:13:20.000Z\n"
    "Expiration Time: 2023-11-14T22:16:20.000Z"
)
SIGNATURE = (
    "0x779698d3a71122c060ec494d16d3f3845d3da2b9fd2d0ec543e2a7f8909b1299"
    "4cacb8c78a9226ac8b1e1ca29cea372e827a76028060466500d070d08e6500b71c"
)
ISSUED_MS = 1_700_000_000_000


def signed(text: str, key: bytes = b"\x11" * 32) -> str:
    """Return a wallet's signature of `text`."""
    data = text.encode()
    digest = keccak256(b"\x19Ethereum Signed Message:\n" + str(len(data)).encode() + data)
    raw = PrivateKey(key).sign_recoverable(digest, hasher=None)
    return "0x" + raw[:64].hex() + f"{raw[64] + 27:02x}"


def why_not(text: str, signature: str) -> str:
    message = wallet.parse_message(text)
    raw = wallet.signature_bytes(signature)
    return wallet.signature_problem(message, wallet.eip191_digest(message), raw)


def test_the_sample_that_was_made_with_other_libraries_is_genuine() -> None:
    message = wallet.parse_message(SAMPLE)
    assert (message.domain, message.nonce) == ("localhost:3000", "abcdEFGH1234")
    assert (message.issued_at, message.expires_at) == (ISSUED_MS, ISSUED_MS + 180_000)
    wallet.require_valid_time(message, ISSUED_MS + 179_999)
    assert message.chain_id == 4690
    assert wallet.require_checksum(message) == ADDRESS.lower()
    assert why_not(SAMPLE, SIGNATURE) == ""
    assert why_not(SAMPLE, SIGNATURE[2:]) == ""
    assert signed(SAMPLE) == SIGNATURE


def test_optional_lines_are_read() -> None:
    text = SAMPLE.replace("\n\n\nURI", "\n\nI accept: all terms\n\nURI") + (
        "\nNot Before: 2023-11-14T22:13:21+00:00\nRequest ID: a/b\nResources:\n- ipfs://x\n- y:z"
    )
    message = wallet.parse_message("https://" + text)
    assert message.not_before == ISSUED_MS + 1_000
    assert wallet.parse_message(SAMPLE.replace("\n\n\nURI", "\n\nURI")).address == ADDRESS


@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        (r"^.*wants", "wants"),
        ("wants you", "wants  you"),
        (ADDRESS, ADDRESS[:-1]),
        (ADDRESS, "0x" + "g" * 40),
        ("Version: 1", "Version: 2"),
        ("Version: 1\n", ""),
        ("Chain ID: 4690", "Chain ID: x"),
        ("abcdEFGH1234", "abcdEFG"),
        ("abcdEFGH1234", "abcd-EFGH"),
        ("2023-11-14T22:13:20.000Z", "2023-11-14"),
        ("2023-11-14T22:13:20.000Z", "2023-13-14T22:13:20Z"),
        ("2023-11-14T22:13:20.000Z", "2023-11-14T22:13:20"),
        ("$", "\nExpiration Time: 2023-11-14T22:16:20Z"),
        ("$", "\nsomething else"),
        ("localhost:3000 wants", "local host wants"),
        ("4690", "4690\r"),
        ("4690", "٤٦٩٠"),
    ],
)
def test_what_is_not_of_the_form_is_refused(pattern: str, replacement: str) -> None:
    text = re.sub(pattern, replacement, SAMPLE, count=1)
    assert text != SAMPLE
    with pytest.raises(InvalidEthLoginMessageError):
        wallet.parse_message(text)


@given(st.text(max_size=200))
def test_any_text_is_a_message_or_refused(text: str) -> None:
    with pytest.raises(InvalidEthLoginMessageError):
        wallet.parse_message(text)


def test_a_message_holds_in_its_time_only() -> None:
    message = wallet.parse_message(SAMPLE + "\nNot Before: 2023-11-14T22:14:20Z")
    for now_ms, reason in ((ISSUED_MS, "not valid yet"), (ISSUED_MS + 180_000, "expired")):
        with pytest.raises(InvalidEthLoginMessageError, match=reason):
            wallet.require_valid_time(message, now_ms)
    wallet.require_valid_time(message, ISSUED_MS + 60_000)


@pytest.mark.parametrize("signature", ["", "0x", SIGNATURE[:-1], "zz" * 65, "0x " + "00" * 65])
def test_a_signature_is_bytes_in_hexadecimal(signature: str) -> None:
    with pytest.raises(InvalidEthLoginSignatureError):
        wallet.signature_bytes(signature)


@pytest.mark.parametrize(
    ("signature", "reason"),
    [
        (SIGNATURE[:-2], "not 65 bytes"),
        (SIGNATURE + "00", "not 65 bytes"),
        (SIGNATURE[:-2] + "00", "last byte"),
        (SIGNATURE[:-2] + "01", "last byte"),
        (SIGNATURE[:-2] + "1b", "stated address"),
        (SIGNATURE[:-2] + "1d", "last byte"),
        ("0x" + "00" * 64 + "1b", "not a valid signature"),
        ("0x" + "ff" * 64 + "1b", "not a valid signature"),
        (SIGNATURE.replace("77", "78", 1), ""),
    ],
)
def test_another_signature_is_not_the_addresss(signature: str, reason: str) -> None:
    assert reason in why_not(SAMPLE, signature) != ""


def test_a_changed_message_is_not_the_signed_one() -> None:
    assert "stated address" in why_not(SAMPLE.replace("4690", "4689"), SIGNATURE)


def test_an_address_needs_its_capitals() -> None:
    text = SAMPLE.replace(ADDRESS, ADDRESS.lower())
    with pytest.raises(InvalidEthLoginMessageError):
        wallet.require_checksum(wallet.parse_message(text))


def require_domain(message: SignInMessage, host: str, *domains: str, own: str = "") -> None:
    policy = WalletPolicy(domains=frozenset(domains))
    wallet.require_domain(message, policy, host, lambda asked: not own or asked == own)


def for_domain(domain: str) -> SignInMessage:
    return wallet.parse_message(SAMPLE.replace("localhost:3000 wants", f"{domain} wants"))


def test_a_message_for_another_page_is_refused_where_domains_are_named() -> None:
    message = wallet.parse_message(SAMPLE)
    require_domain(message, "elsewhere.example", "localhost:3000")
    require_domain(message, "elsewhere.example", "*")
    require_domain(for_domain("a@b"), "elsewhere.example", "*")
    for domains in (("example.org",), ("localhost",), ("localhost:3001", "3000.localhost")):
        with pytest.raises(InvalidEthLoginMessageError, match="not in the setting wallet_domains"):
            require_domain(message, "localhost:3000", *domains)


@pytest.mark.parametrize(
    ("domain", "host"),
    [
        ("studio.example", "studio.example"),
        ("Studio.Example", "studio.eXample"),
        ("studio.example:8888", "studio.example:8888"),
        ("studio.example", "studio.example:443"),
        ("studio.example:80", "studio.example"),
        ("[::1]:8888", "[0:0:0:0:0:0:0:1]:8888"),
        ("[2001:DB8::A]", "[2001:db8:0::a]:443"),
        ("192.0.2.1:8888", "192.0.2.1:8888"),
    ],
)
def test_a_message_for_the_host_of_the_request_is_taken(domain: str, host: str) -> None:
    require_domain(for_domain(domain), host)


@pytest.mark.parametrize(
    ("domain", "host"),
    [
        ("evil.example", "studio.example"),
        ("studio.example", ""),
        ("studio.example", "studio.example:8888"),
        ("studio.example:8888", "studio.example"),
        ("studio.example:8888", "studio.example:8889"),
        ("studio.example:", "studio.example:8888"),
        ("studio.example.evil.example", "studio.example"),
        ("evil.studio.example", "studio.example"),
        ("studio.example@evil.example", "studio.example@evil.example"),
        ("evil.example:8888@studio.example", "studio.example"),
        ("[::1]", "[::2]"),
        ("[::1", "[::1"),
        ("::1", "::1"),
        ("stud\u0130o.example", "studio.example"),
        ("\u212aiosk.example", "kiosk.example"),
        ("studio.example,evil.example", "studio.example,evil.example"),
        ("studio.example:99999", "studio.example:99999"),
    ],
)
def test_a_message_for_another_host_than_that_of_the_request_is_refused(
    domain: str, host: str
) -> None:
    with pytest.raises(InvalidEthLoginMessageError, match="its domain"):
        require_domain(for_domain(domain), host)


def test_the_host_of_a_request_counts_only_if_the_certificate_has_it() -> None:
    require_domain(for_domain("studio.example"), "studio.example", own="studio.example")
    require_domain(for_domain("localhost:8888"), "localhost:8888", own="studio.example")
    with pytest.raises(InvalidEthLoginMessageError, match="not in the node's certificate"):
        require_domain(for_domain("evil.example"), "evil.example", own="studio.example")


def test_a_nonce_of_ours_holds_for_five_minutes() -> None:
    nonce = wallet.issue_nonce(KEY, ISSUED_MS)
    message = wallet.parse_message(SAMPLE.replace("abcdEFGH1234", nonce))
    policy = WalletPolicy()
    once = wallet.replay_guard(message, policy, KEY, ISSUED_MS + 299_999)
    assert once.valid_until == ISSUED_MS + 300_000
    with pytest.raises(InvalidEthLoginMessageError):
        wallet.replay_guard(message, policy, KEY, ISSUED_MS + 300_000)
    with pytest.raises(InvalidEthLoginMessageError):
        wallet.replay_guard(message, policy, b"x" * 32, ISSUED_MS)
    later = f"{ISSUED_MS + 60_000:012x}" + nonce[12:]
    forged = wallet.parse_message(SAMPLE.replace("abcdEFGH1234", later))
    for wrong in (forged, wallet.parse_message(SAMPLE)):
        with pytest.raises(InvalidEthLoginMessageError):
            wallet.replay_guard(wrong, policy, KEY, ISSUED_MS)
    assert wallet.issue_nonce(KEY, ISSUED_MS) != nonce


def test_a_nonce_of_the_clients_own_needs_a_message_of_just_now() -> None:
    policy = WalletPolicy(nonce_required=False)
    message = wallet.parse_message(SAMPLE)
    assert wallet.replay_guard(message, policy, KEY, ISSUED_MS + 299_999).digest
    for now_ms in (ISSUED_MS + 300_000, ISSUED_MS - 60_001):
        with pytest.raises(InvalidEthLoginMessageError):
            wallet.replay_guard(message, policy, KEY, now_ms)


def test_the_white_list_decides_who_gets_an_account() -> None:
    address = ADDRESS.lower()
    assert not WalletPolicy().may_create(address)
    assert WalletPolicy(whitelist=frozenset({"*"})).may_create(address)
    assert WalletPolicy(whitelist=frozenset({address})).may_create(address)
    with pytest.raises(WhiteListForbiddenError):
        WalletPolicy(whitelist=frozenset({"0x" + "0" * 40})).may_create(address)
