"""Parses the header `Retry-After`: how long an endpoint asks to wait after too many requests.

Source: RFC 9110, 10.2.3 (`Retry-After`) and 5.6.7 (the three forms of a date).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

LIMIT_S = 3_600.0  # the longest wait that is accepted
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_TIME = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
_DATES = tuple(
    re.compile(form, re.ASCII | re.IGNORECASE)
    for form in (
        rf"[a-z]{{3}}, (?P<day>\d\d) (?P<month>[a-z]{{3}}) (?P<year>\d{{4}}) {_TIME} GMT",
        rf"[a-z]{{6,9}}, (?P<day>\d\d)-(?P<month>[a-z]{{3}})-(?P<year>\d\d) {_TIME} GMT",
        rf"[a-z]{{3}} (?P<month>[a-z]{{3}}) (?P<day>[ \d]\d) {_TIME} (?P<year>\d{{4}})",
    )
)


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float:
    """Return how many seconds to wait before the next request, `LIMIT_S` at most.

    A date is compared with the answer's own `Date` header if there is one, because the clocks
    of the two machines may differ.

    Args:
        headers: the answer's headers; the mapping must ignore case.
        now: the local time, for answers without `Date`.

    Returns:
        Seconds; 0 if the header is absent or malformed, or if its date has passed.
    """
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdecimal():
        return min(float(text), LIMIT_S)
    until = http_date(text, now)
    if until is None:
        return 0.0
    there = http_date(headers.get("Date", "").strip(), now) or now
    return min(max(0.0, (until - there).total_seconds()), LIMIT_S)


def http_date(text: str, now: datetime) -> datetime | None:
    """Parse an HTTP date; None if the text is not one.

    A year of two digits that would be more than 50 years after `now` belongs to the century
    before, as the RFC requires.
    """
    found = next((match for form in _DATES if (match := form.fullmatch(text))), None)
    if found is None or found["month"].lower() not in _MONTHS:
        return None
    year = int(found["year"])
    if len(found["year"]) == 2:
        year += now.year - now.year % 100
        year -= 100 if year > now.year + 50 else 0
    month = _MONTHS.index(found["month"].lower()) + 1
    day, hour, minute = (int(found[name]) for name in ("day", "hour", "minute"))
    second = min(int(found["second"]), 59)  # 60 is a leap second
    try:
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
