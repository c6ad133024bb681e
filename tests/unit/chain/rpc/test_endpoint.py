"""The health of one endpoint, and the shown part of its address."""

from __future__ import annotations

import pytest

from fieldbrook.chain.rpc.endpoint import Endpoint, Endpoints, OtherChainError
from fieldbrook.chain.rpc.endpoint_url import public_part
from fieldbrook.chain.rpc.request_queue import RequestQueue
from fieldbrook.chain.rpc.transport import (
    BusyError,
    TransportError,
    WrongAnswerError,
    make_transport,
)
from fieldbrook.observability import metrics

FAILED = TransportError()


def endpoint() -> Endpoint:
    return Endpoint("http://node.example/key", make_transport("http://node.example/key"))


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("https://user:pass@node.example/v3/key?x=secret#f", "https://node.example"),
        ("wss://node.example:8443/key", "wss://node.example:8443"),
        ("http://[::1]:8545/", "http://[::1]:8545"),
        ("http://node.example:99999/", "http://node.example"),
    ],
)
def test_of_an_endpoint_the_scheme_and_the_host_are_shown(url: str, text: str) -> None:
    assert public_part(url) == text


@pytest.mark.parametrize(
    ("alone", "expected"),
    [
        (False, [0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 30.0, 30.0]),
        (True, [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0]),
    ],
)
def test_each_failure_in_a_row_pauses_longer_and_a_success_ends_the_row(
    alone: bool, expected: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    one, now, pauses = endpoint(), 0.0, []
    for _ in range(8):
        one.record_failure(FAILED, "no answer", began=now, now=now + 1, alone=alone)
        now = one.paused_until + 1
        pauses.append(round(now - 1 - one.failed_at, 6))
    assert pauses == expected
    one.record_success()
    assert (one.consecutive_failures, one.reason, one.failures) == (0, "", 8)
    assert len(caplog.records) == 1, "one warning for a row of failures"


def test_requests_that_fail_in_the_same_outage_count_once() -> None:
    one = endpoint()
    for _ in range(5):
        one.record_failure(FAILED, "no answer", began=1.0, now=2.0)
    assert (one.consecutive_failures, one.failures, one.paused_until) == (1, 5, 2.5)


@pytest.mark.parametrize(
    ("latency_s", "alone", "expected"),
    [
        (0.0, True, 4.0),
        (0.0, False, 2.0),  # its latency is not known yet
        (0.01, False, 0.7),
        (0.3, False, 1.2),
        (0.8, False, 2.0),
        (0.8, True, 4.0),
    ],
)
def test_while_a_handler_waits_an_endpoint_has_a_few_medians_or_all_the_time_if_it_is_the_only_one(
    latency_s: float, alone: bool, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RequestQueue, "latency_s", latency_s)
    one = endpoint()
    endpoints = Endpoints([one], 5, 10.0, str)
    assert endpoints.limit_s(one, 4.0, urgent=True, alone=alone) == pytest.approx(expected)


def test_an_endpoint_of_another_chain_pauses_longer(caplog: pytest.LogCaptureFixture) -> None:
    one = endpoint()
    one.record_failure(OtherChainError(), "it belongs to chain 1", began=0.0, now=1.0)
    assert one.is_paused(30.9)
    assert not one.is_paused(31.0)
    assert caplog.records


def test_an_endpoint_lags_behind_a_recent_head_of_another_one() -> None:
    one, other = endpoint(), endpoint()
    assert not one.lags([one, other], 5, 0.0), "its head is unknown"
    one.record_head(10, 0.0)
    other.record_head(16, 0.0)
    assert one.lags([one, other], 5, 1.0)
    assert not one.lags([one, other], 6, 1.0)
    assert not one.lags([one, other], 5, 61.0), "the other head is too old"


def test_answers_that_cannot_be_true_are_counted_and_outages_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    endpoints = Endpoints([endpoint(), endpoint()], 5, 10.0, str)
    before = metrics.here.row[metrics.CHAIN_WRONG_ANSWERS]
    for error in (
        WrongAnswerError("a head that nobody else has"),
        TransportError("HTTP status 502"),
        OtherChainError("it belongs to chain 1"),
        BusyError("too many requests"),
    ):
        endpoints.record_failure(endpoints.all[0], error)
    assert metrics.here.row[metrics.CHAIN_WRONG_ANSWERS] - before == 2
    assert "a head that nobody else has" in caplog.text
