"""Settings that follow the machine."""

from __future__ import annotations

import os

import pytest

from fieldbrook.settings import Settings


@pytest.mark.parametrize(("cores", "processes"), [(1, 1), (2, 1), (3, 1), (4, 2), (64, 32)])
def test_there_is_one_http_gateway_for_every_two_cores_the_process_may_use(
    cores: int, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(cores)), raising=False)
    assert Settings().http_processes == processes


def test_a_number_of_http_gateways_that_is_set_counts_whatever_the_cores() -> None:
    assert Settings(http_gateways=5).http_processes == 5
