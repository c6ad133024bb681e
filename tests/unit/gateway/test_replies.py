"""Bodies of answers."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fieldbrook.core.errors import ProjectNotFoundError
from fieldbrook.gateway.replies import (
    error_json,
    is_public_name,
    security_headers,
    to_json,
    to_long_json,
    unknown_error_json,
)

scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text()
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


@given(values)
def test_what_is_escaped_still_means_the_same(value: object) -> None:
    body = to_json(value)
    assert json.loads(body) == value
    assert body.endswith(b"\n")
    assert not any(character in body.decode() for character in "<>&\u2028\u2029")


@settings(max_examples=20, deadline=None)
@given(st.text(st.sampled_from("<a&é\u2028\u2029😀")), st.integers(0, 8))
def test_a_long_body_is_the_same_although_it_is_escaped_in_pieces(text: str, more: int) -> None:
    value = {"long": ["x" * more + text] * 200 + ["\u2028<é" * 100_000]}
    assert asyncio.run(to_long_json(value, asyncio.to_thread)) == to_json(value)


def test_an_error_has_the_eight_keys_in_their_order() -> None:
    assert error_json(ProjectNotFoundError(project="p"), "1.2") == (
        b'{"key":"ProjectNotFound","code":404999002,"msg":"Project Not Found",'
        b'"desc":"project p","canBeTalk":true,"id":"","sources":["srv-applet-mgr@1.2"],'
        b'"fields":null}\n'
    )


def test_an_unforeseen_error_says_nothing_of_its_cause() -> None:
    body = json.loads(unknown_error_json("1.2"))
    assert (body["key"], body["code"], body["desc"]) == ("UnknownError", 500_000_000, "")
    assert len(body) == 8


@pytest.mark.parametrize(
    ("host", "real"),
    [
        ("node.example.com", True),
        ("NODE.Example.Com.", True),
        ("a-1.xn--bcher-kva.ch", True),
        ("localhost", False),
        ("a.localhost", False),
        ("node", False),
        ("node.local", False),
        ("node.internal", False),
        ("127.0.0.1", False),
        ("10.1", False),
        ("[::1]", False),
        ("::ffff:127.0.0.1", False),
        ("", False),
        (".", False),
        ("a..com", False),
        ("a_b.com:8", False),
    ],
)
def test_only_a_name_of_the_public_dns_is_pinned_to_tls(host: str, real: bool) -> None:
    assert is_public_name(host) is real
    assert ("Strict-Transport-Security" in security_headers(tls=True, host=host)) is real
    assert "Strict-Transport-Security" not in security_headers(tls=False, host=host)
