"""Requests of applets that cannot be stored or sent are refused."""

from __future__ import annotations

import json

import pytest

from fieldbrook.wasm.host.api import decode


@pytest.mark.parametrize(
    "request_",
    [
        {"Url": "/x", "Header": {"Eventtype": ["\ud800"]}},
        {"Url": "/x", "Header": {"\udfff": ["R"]}},
        {"Url": "http://h/\ud800"},
        {"Url": "/x", "Method": "\ud800"},
    ],
)
def test_a_request_with_half_a_surrogate_pair_is_undecodable(request_: object) -> None:
    assert decode(json.dumps(request_).encode()) is None


def test_a_request_with_a_whole_surrogate_pair_is_text() -> None:
    request = decode(json.dumps({"Url": "/x", "Header": {"Eventtype": ["\U0001f600"]}}).encode())
    assert request is not None
    assert request["Header"] == {"Eventtype": ["\U0001f600"]}
