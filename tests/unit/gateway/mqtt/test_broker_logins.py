"""What the embedded broker is told about a device that comes with a user name."""

from __future__ import annotations

import base64
import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.gateway.mqtt.broker_logins import DENIED, Logins, _crc16

SEED = bytes(range(32))
LOGINS = Logins(SEED, ("ack.>", "test1"))


def unpadded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def claims_of(token: str) -> Any:
    """The claims of a token whose signature is the key's."""
    head, body, signature = token.split(".")
    public = Ed25519PrivateKey.from_private_bytes(SEED).public_key()
    public.verify(unpadded(signature), f"{head}.{body}".encode())
    return json.loads(unpadded(body))


def question(claims: object) -> bytes:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=")
    return b"head." + body + b".signature"


def asked_about(kind: str) -> object:
    client = {"host": "127.0.0.1", "user": "esp32", "type": kind}
    return {"nats": {"user_nkey": "UDEVICE", "server_id": {"id": "NSERVER"}, "client_info": client}}


def test_clients_of_another_protocol_than_mqtt_are_refused() -> None:
    for kind in ("nats", "websocket", ""):
        answer = LOGINS.answer(question(asked_about(kind)))
        assert answer is not None
        told = claims_of(answer.decode())["nats"]
        assert told["error"] == "only MQTT clients are let in without an account"
        assert "jwt" not in told


def test_a_device_is_told_the_rights_of_one_without_a_login() -> None:
    answer = LOGINS.answer(question(asked_about("mqtt")))
    assert answer is not None
    told = claims_of(answer.decode())
    assert (told["sub"], told["aud"], told["iss"]) == ("UDEVICE", "NSERVER", LOGINS.issuer)
    may = claims_of(told["nats"]["jwt"])
    assert (may["sub"], may["aud"]) == ("UDEVICE", "$G")
    assert may["nats"]["pub"] == {"allow": ["*", "*.push.>"]}
    assert may["nats"]["sub"] == {"allow": ["ack.>", "test1"], "deny": list(DENIED)}
    assert may["nats"]["allowed_connection_types"] == ["MQTT"]


def test_the_issuer_is_a_public_key_as_the_server_writes_those_of_accounts() -> None:
    assert len(LOGINS.issuer) == 56
    assert LOGINS.issuer.startswith("A")
    assert _crc16(b"123456789") == 0x31C3  # the check value of CRC-16/XMODEM


@given(st.binary(max_size=300) | st.recursive(st.none() | st.text(), st.lists).map(question))
def test_what_is_no_question_of_the_server_gets_no_answer(request: bytes) -> None:
    assert LOGINS.answer(request) is None


def test_a_device_with_too_long_a_name_is_refused_without_reading_what_it_said() -> None:
    user, server = "U" + "A" * 55, "N" + "B" * 55
    said = {"user": "\x01" * 65_535, "pass": '"user_nkey":"UX"' * 4_000}
    nats = {"server_id": {"id": server}, "user_nkey": user, "connect_opts": said}
    encoded = json.dumps({"iss": server, "nats": nats}, separators=(",", ":")).encode()
    answer = LOGINS.answer(b"head." + base64.urlsafe_b64encode(encoded) + b".signature")
    assert answer is not None
    told = claims_of(answer.decode())
    assert (told["sub"], told["aud"]) == (user, server)
    assert told["nats"]["error"] == "the user name and the password are too long"
    assert "jwt" not in told["nats"]


@given(st.binary(max_size=2_000) | st.text(alphabet='"user_nkey:isUNA.').map(str.encode))
def test_what_is_large_and_no_question_of_the_server_gets_no_answer(beginning: bytes) -> None:
    assert LOGINS.answer(beginning + b"A" * (65 << 10)) is None
    assert LOGINS.answer(b"head." + beginning + b"A" * (65 << 10)) is None
