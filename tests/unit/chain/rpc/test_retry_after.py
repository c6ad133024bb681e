"""The time after which an endpoint with a rate limit accepts requests again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.chain.rpc.retry_after import LIMIT_S, http_date, retry_after_s

NOW = datetime(1994, 11, 6, 8, 49, 37, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("120", 120.0),
        (" 120 ", 120.0),
        ("3601", LIMIT_S),
        ("9" * 5_000, LIMIT_S),
        ("Sun, 06 Nov 1994 08:50:37 GMT", 60.0),
        ("Sunday, 06-Nov-94 08:50:37 GMT", 60.0),
        ("Sun Nov  6 08:50:37 1994", 60.0),
        ("Sun Nov 06 08:50:37 1994", 60.0),
        ("sun, 06 nov 1994 08:50:37 gmt", 60.0),
        ("Sun, 06 Nov 1994 08:49:60 GMT", 22.0),
        ("Mon, 07 Nov 1994 08:49:37 GMT", LIMIT_S),
        ("Fri, 31 Dec 9999 23:59:59 GMT", LIMIT_S),
        ("Sun, 06 Nov 1994 08:49:36 GMT", 0.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
    ],
)
def test_seconds_and_each_form_of_a_date_are_understood_and_bounded(
    text: str, seconds: float
) -> None:
    assert retry_after_s({"Retry-After": text}, NOW) == seconds


@pytest.mark.parametrize(
    "text",
    [
        *("", "soon", "-5", "1.5", "1e3", "0x10", "٣", "²", "inf", "nan", "120 s", "1, 2"),
        *("Sun, 06 Nov 1994", "1994-11-06T08:50:37Z", "Sun, 06 Nov 1994 08:50:37"),
        *("Sun, 06 Nov 1994 08:50:37 CET", "Sun, 06 Nov 1994 08:50:37 +0100"),
        *("Sun, 31 Feb 1995 08:50:37 GMT", "Sun, 06 Nov 0000 08:50:37 GMT"),
        *("Sun, 06 Foo 1994 08:50:37 GMT", "Sun, 06 Nov 1994 24:50:37 GMT"),
        "Sun, 06 Nov 1994 08:50:37 GMT" * 1_000,
    ],
)
def test_what_is_neither_is_no_time(text: str) -> None:
    assert retry_after_s({"Retry-After": text}, NOW) == 0.0


def test_an_answer_without_the_header_names_no_time() -> None:
    assert retry_after_s({"Date": "Sun, 06 Nov 1994 08:49:37 GMT"}, NOW) == 0.0


def test_a_date_is_compared_with_the_clock_of_who_wrote_it() -> None:
    headers = {
        "Date": "Sun, 06 Nov 1994 10:00:00 GMT",
        "Retry-After": "Sun, 06 Nov 1994 10:00:30 GMT",
    }
    assert retry_after_s(headers, NOW) == 30.0
    assert retry_after_s({**headers, "Date": "never"}, NOW) == LIMIT_S


def test_a_year_of_two_digits_is_never_more_than_fifty_years_away() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    years = [http_date(f"Sunday, 06-Nov-{n:02} 08:49:37 GMT", now) for n in (26, 76, 77, 99)]
    assert [found and found.year for found in years] == [2026, 2076, 1977, 1999]


@given(st.text(max_size=60))
def test_whatever_stands_there_the_answer_is_a_number_of_seconds(text: str) -> None:
    found = retry_after_s({"Retry-After": text, "Date": text}, NOW)
    assert 0.0 <= found <= LIMIT_S


@given(st.timedeltas(timedelta(0), timedelta(seconds=LIMIT_S)))
def test_a_date_that_is_to_come_is_the_time_until_then(ahead: timedelta) -> None:
    whole = timedelta(seconds=int(ahead.total_seconds()))
    text = format_datetime(NOW + whole, usegmt=True)
    assert retry_after_s({"Retry-After": text}, NOW) == whole.total_seconds()
