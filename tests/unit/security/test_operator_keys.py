"""Private keys of operators: parsing, addresses, encryption."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.core.errors import InvalidPrivateKeyError, StoreError
from fieldbrook.security.operator_keys import (
    ECDSA,
    ED25519,
    Vault,
    address_of,
    base58,
    eip55,
    new_secret,
    parse_secret,
)

ORDER = "fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141"
SEED = bytes(range(32))
PAIR = SEED + Ed25519PrivateKey.from_private_bytes(SEED).public_key().public_bytes_raw()


@pytest.mark.parametrize("prefix", ["", "0x"])
def test_an_ecdsa_key_has_the_address_other_libraries_say(prefix: str) -> None:
    secret = parse_secret(prefix + "11" * 32, ECDSA)
    assert address_of(secret, ECDSA) == "0x19E7E376E7C213B7E7e7e46cc70A5dD086DAff2A"
    one = parse_secret(f"{1:064x}", ECDSA)
    assert address_of(one, ECDSA) == "0x7E5F4552091A69125d5DfCb7b8C2659029395Bdf"


@pytest.mark.parametrize(
    "address",
    [
        "0x52908400098527886E0F7030069857D2E4169EE7",
        "0xde709f2102306220921060314715629080e2fb77",
        "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
        "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
    ],
)
def test_capitals_are_those_of_the_published_examples(address: str) -> None:
    assert eip55(bytes.fromhex(address[2:])) == address


@pytest.mark.parametrize("text", [PAIR.hex(), "0x" + PAIR.hex(), base58(PAIR)])
def test_an_ed25519_key_is_read_in_hexadecimal_and_base58(text: str) -> None:
    assert parse_secret(text, ED25519) == PAIR
    assert address_of(PAIR, ED25519) == base58(PAIR[32:])


def test_base58_is_as_it_is_published() -> None:
    assert base58(b"Hello World!") == "2NEpo7TZRRrLZSi2U"
    assert base58(bytes.fromhex("0000287fb4cd")) == "11233QC4"
    assert base58(b"") == ""


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ECDSA, ""),
        (ECDSA, "0x"),
        (ECDSA, "11" * 31),
        (ECDSA, "11" * 33),
        (ECDSA, "zz" * 32),
        (ECDSA, "00" * 32),
        (ECDSA, ORDER),
        (ECDSA, "ff" * 32),
        (ECDSA, " " + "11" * 32),
        (ECDSA, "\u0661" * 64),
        (ED25519, ""),
        (ED25519, "11" * 32),
        (ED25519, "11" * 64),
        (ED25519, SEED.hex() + SEED.hex()),
        (ED25519, base58(PAIR)[:-1]),
        (ED25519, base58(PAIR[:-1])),
        (ED25519, "0" * 88),
        (ED25519, "1" * 88),
        (ED25519, "z" * 90),
    ],
)
def test_what_is_no_key_is_refused_without_repeating_it(kind: int, text: str) -> None:
    with pytest.raises(InvalidPrivateKeyError) as caught:
        parse_secret(text, kind)
    assert len(text) < 3 or text not in str(caught.value)


def test_new_keys_are_keys_and_differ() -> None:
    secrets = {new_secret() for _ in range(20)}
    assert len(secrets) == 20
    assert all(parse_secret(secret.hex(), ECDSA) == secret for secret in secrets)


@given(st.binary(max_size=100))
def test_what_is_sealed_opens_for_its_address_only(secret: bytes) -> None:
    vault = Vault(b"k" * 32)
    sealed = vault.seal(secret, "0xA")
    assert vault.open(sealed, "0xA") == secret
    assert len(secret) < 4 or secret not in sealed
    assert vault.seal(secret, "0xA") != sealed
    for wrong in (Vault(b"x" * 32), vault):
        with pytest.raises(StoreError):
            wrong.open(sealed, "0xA" if wrong is not vault else "0xB")
    damaged = sealed[:-1] + bytes([sealed[-1] ^ 1])
    for bad in (damaged, b"", sealed[:20], b"\x02" + sealed[1:]):
        with pytest.raises(StoreError):
            vault.open(bad, "0xA")


def test_a_vault_says_nothing_of_its_key() -> None:
    assert "kkkk" not in repr(Vault(b"k" * 32))
