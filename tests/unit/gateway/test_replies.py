"""Bodies of answers."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.errors import ProjectNotFoundError
from fieldbrook.gateway.replies import error_json, to_json, unknown_error_json

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
