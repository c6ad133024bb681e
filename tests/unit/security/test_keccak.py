"""Keccak-256 by both libraries."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.security.keccak import keccak256
from tests.contract.hosts.vectors import KECCAK


@pytest.fixture(params=["safe-pysha3", "pycryptodome"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "pycryptodome":
        monkeypatch.setitem(sys.modules, "sha3", None)  # as if it were not installed


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(("data", "digest"), KECCAK)
def test_it_gives_the_published_digests(data: bytes, digest: bytes) -> None:
    assert keccak256(data) == digest


@given(st.binary(max_size=600))
def test_both_libraries_give_the_same(data: bytes) -> None:
    digest = keccak256(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "sha3", None)
        assert keccak256(data) == digest
