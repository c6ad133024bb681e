"""What an endpoint that is asked too often names: when it wants to be asked again.

Source: RFC 9110, 10.2.3 (`Retry-After`) and 5.6.7 (the three forms of a date).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

LIMIT_S = 3_600.0
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
    """For how many seconds an endpoint wants to be left alone, `LIMIT_S` at most.

    A date is compared with the answer's own `Date` where it has one: the clocks of two machines
    need not agree.

    Args:
        headers: those of the answer; names in any case.
        now: the time here, for answers without `Date`.

    Returns:
        Seconds; 0 where it names none, one that has passed, or something else altogether.
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
    """A date as HTTP writes it; None where the text is none.

    A year of two digits is the one nearest below 50 years from `now`, as the RFC asks.
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
