"""Bodies, queries and ids in the form of clients."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.core.errors import BadRequestError
from fieldbrook.gateway.management.framework.binding import (
    MISSING,
    Paging,
    Sfid,
    bind_body,
    bind_query,
    path_id,
)


class Inner(msgspec.Struct, frozen=True, kw_only=True):
    applet_id: Sfid = msgspec.field(name="appletID")
    handler: str


class Outer(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    count: Annotated[int, msgspec.Meta(ge=0)] = 3
    kind: Literal["ONE", "Two"] = "ONE"
    inner: Inner | None = None
    rules: list[Inner] = msgspec.field(default_factory=list)


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    trees: list[Tree] = msgspec.field(default_factory=list)


class Filter(Paging, frozen=True, kw_only=True):
    ids: list[Sfid] = msgspec.field(name="id")
    name: str = ""


def problems(body: Any) -> dict[str, str]:
    """Return the errors of a body, by field."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(BadRequestError) as refused:
        bind_body(raw, Outer)
    return {f.field: f.msg for f in refused.value.fields() or []}


def test_a_body_is_bound_by_its_keys_whatever_their_case() -> None:
    body = b'{"NAME":"n","Kind":"two","rules":[{"APPLETID":"5","Handler":"h"}],"more":{}}'
    expected = Outer(name="n", kind="Two", rules=[Inner(applet_id=Sfid(5), handler="h")])
    assert bind_body(body, Outer) == expected


def test_null_is_as_absent() -> None:
    assert bind_body(b'{"name":"n","count":null,"inner":null}', Outer) == Outer(name="n")
    assert problems({"name": None}) == {"name": MISSING}


def test_all_that_is_wrong_is_reported_at_once() -> None:
    rules: list[Any] = [{"appletID": 5}, 7, {"appletID": "x", "handler": "h"}]
    found = problems({"count": -1, "kind": "THREE", "rules": rules})
    assert list(found) == [
        "name",
        "count",
        "kind",
        "rules[0].appletID",
        "rules[0].handler",
        "rules[1]",
        "rules[2].appletID",
    ]
    assert found["name"] == found["rules[0].handler"] == MISSING
    assert found["rules[0].appletID"] == "expected an id as a string, got number"
    assert found["rules[1]"] == "expected an object, got number"
    assert found["rules[2].appletID"] == 'strconv.ParseUint: parsing "x": invalid syntax'


@pytest.mark.parametrize("zero", ["", None])
def test_a_required_value_that_is_zero_is_missing(zero: Any) -> None:
    assert problems({"name": zero}) == {"name": MISSING}
    inner = {"appletID": "0", "handler": "h"}
    assert problems({"name": "n", "inner": inner}) == {"inner.appletID": MISSING}


def test_a_wrong_type_inside_is_named_where_it_stands() -> None:
    assert set(problems({"name": "n", "rules": {}})) == {"rules"}
    assert set(problems({"name": "n", "inner": []})) == {"inner"}
    assert set(problems({"name": "n", "count": True})) == {"count"}
    assert set(problems({"name": "n", "count": "3"})) == {"count"}


def fields_or_bound(body: bytes) -> Any:
    """Return the bound values, or the refused fields."""
    try:
        return bind_body(body, Outer)
    except BadRequestError as error:
        return error.fields()


@given(st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
def test_any_bytes_bind_or_are_a_bad_request_that_names_a_field(body: bytes) -> None:
    assert fields_or_bound(body)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "count", "kind", "inner", "rules", "appletID", "handler"]),
            inner,
        )
    ),
    max_leaves=12,
)


@given(values)
def test_any_json_binds_or_says_what_is_wrong(value: Any) -> None:
    result = fields_or_bound(json.dumps(value).encode())
    assert result.name if isinstance(result, Outer) else result


def test_an_array_has_a_limit_of_items() -> None:
    assert problems({"name": "a", "rules": [1] * 10_001}) == {"rules": "more than 10000 items"}


def test_arrays_within_each_other_have_a_limit_of_items_together() -> None:
    def forest(trees: int) -> bytes:
        return json.dumps({"trees": [{"trees": [{}] * trees}] * 2}).encode()

    assert len(bind_body(forest(9_999), Tree).trees) == 2
    with pytest.raises(BadRequestError) as refused:
        bind_body(forest(10_000), Tree)
    assert str(refused.value) == "trees[1].trees: all arrays together have more than 20000 items"


def test_of_many_wrong_items_the_first_hundred_are_named() -> None:
    named = problems({"name": "a", "rules": [1] * 10_000})
    assert list(named) == [f"rules[{n}]" for n in range(100)]


def test_a_query_is_bound_with_lists_and_defaults() -> None:
    bound = bind_query({"id": ["5", "6"], "size": ["-1"], "offset": [""]}, Filter)
    assert bound == Filter(ids=[Sfid(5), Sfid(6)], size=-1)


def test_a_query_that_does_not_fit_says_where() -> None:
    with pytest.raises(BadRequestError) as refused:
        bind_query({"size": ["-2"], "offset": ["a"]}, Filter)
    found = refused.value.fields() or []
    assert [(f.field, f.location) for f in found] == [
        ("size", "query"),
        ("offset", "query"),
        ("id", "query"),
    ]
    with pytest.raises(BadRequestError):
        bind_query({"id": ["1", "x"]}, Filter)


def test_an_id_in_a_path_is_up_to_63_bits_of_digits() -> None:
    assert path_id("id", "0") == 0
    assert path_id("id", "00012") == 12
    assert path_id("id", str((1 << 63) - 1)) == (1 << 63) - 1
    for text in ("", " 1", "+1", "1_0", "٣", str(1 << 63), "9" * 5_000):
        if text:
            with pytest.raises(BadRequestError):
                path_id("id", text)
