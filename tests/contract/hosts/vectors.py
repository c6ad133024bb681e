"""Published signatures and digests.

Sources: RFC 8032 7.1 (Ed25519), RFC 6979 A.2.5 (P-256 with SHA-256), go-ethereum's tests of
its curve and of the precompiled contract `ecrecover`, FIPS 180-4 and the Keccak team's
examples.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
SECP256K1_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141


class Signed(NamedTuple):
    """A message (Ed25519) or digest, its signature and the key that made it."""

    data: bytes
    signature: bytes
    key: bytes


_hex = bytes.fromhex

ED25519 = [
    Signed(
        b"",
        _hex(
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
            "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
        ),
        _hex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"),
    ),
    Signed(
        _hex("72"),
        _hex(
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
            "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
        ),
        _hex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"),
    ),
    Signed(
        _hex("af82"),
        _hex(
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
            "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"
        ),
        _hex("fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025"),
    ),
]

_P256_KEY = _hex(
    "04"
    "60fed4ba255a9d31c961eb74c6356d68c049b8923b61fa6ce669622e60f29fb6"
    "7903fe1008b8bc99a41ae9e95628bc64f2f1b20c2d7e9f5177a3c294d4462299"
)
P256 = [
    Signed(  # its S lies in the upper half
        hashlib.sha256(b"sample").digest(),
        _hex(
            "efd48b2aacb6a8fd1140dd9cd45e81d69d2c877b56aaf991c34d0ea84eaf3716"
            "f7cb1c942d657c41d436c7a1b6e29f65f3e900dbb9aff4064dc4ab2f843acda8"
        ),
        _P256_KEY,
    ),
    Signed(
        hashlib.sha256(b"test").digest(),
        _hex(
            "f1abb023518351cd71d881567b1ea663ed3efcf6c5132b354f28d3b0b7d38367"
            "019f4113742a2b14bd25926b49c649155f267e60d3814b4c0cc84250e46f0083"
        ),
        _P256_KEY,
    ),
]

SECP256K1 = [
    Signed(
        _hex("ce0677bb30baa8cf067c88db9811f4333d131bf8bcf12fe7065d211dce971008"),
        _hex(
            "90f27b8b488db00b00606796d2987f6a5f59ae62ea05effe84fef5b8b0e54998"
            "4a691139ad57a3f0b906637673aa2f63d1f55cb1a69199d4009eea23ceaddc9301"
        ),
        _hex(
            "04"
            "e32df42865e97135acfb65f3bae71bdc86f4d49150ad6a440b6f15878109880a"
            "0a2b2667f7e725ceea70c673093bf67663e0312623c8e091b13cf2c0f11ef652"
        ),
    )
]
# Here `key` is the address; S lies in the upper half.
ETHEREUM = [
    Signed(
        _hex("18c547e4f7b0f325ad1e56f57e26c745b09a3e503d86e00e5255ff7f715d3d1c"),
        _hex(
            "73b1693892219d736caba55bdb67216e485557ea6b6af75f37096c9aa6a5a75f"
            "eeb940b1d03b21e36b0e47e79769f095fe2ab855bd91e3a38756b7d75a9c45491c"
        ),
        _hex("a94f5374fce5edbc8e2a8697c15331677e6ebf0b"),
    )
]

KECCAK = [
    (b"", _hex("c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470")),
    (b"abc", _hex("4e03657aea45a94fc7d47ba826c8d667c0d1e6e33a64a036ec44f58fa12d6c45")),
]
SHA = [
    (b"", _hex("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")),
    (b"abc", _hex("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")),
]
