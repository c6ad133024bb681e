"""Records and their bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.core.errors import StoreError
from fieldbrook.core.model import Project, Record, Strategy
from fieldbrook.storage.lmdb.codec import FORMAT, decode_record, encode_record

STRATEGY = Strategy(
    strategy_id=1,
    project_id=2,
    applet_id=3,
    event_type="DEFAULT",
    handler="start",
    created_at=4,
    updated_at=5,
)


numbers = st.integers(0, (1 << 63) - 1)
projects = st.builds(
    Project,
    project_id=numbers,
    account_id=numbers,
    name=st.text(),
    description=st.text(),
    public=st.booleans(),
    created_at=numbers,
    updated_at=numbers,
)


@given(projects)
def test_a_record_comes_back_as_it_was(project: Project) -> None:
    assert decode_record(encode_record(project), Project) == project


def test_a_record_of_another_format_is_refused_with_both_formats_named() -> None:
    data = bytes([FORMAT + 1]) + encode_record(STRATEGY)[1:]
    with pytest.raises(StoreError, match=r"format 2; this version reads 1"):
        decode_record(data, Strategy)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_record_or_a_store_error(data: bytes) -> None:
    try:
        record = decode_record(bytes([FORMAT]) + data, Strategy)
    except StoreError:
        return
    assert decode_record(encode_record(record), Strategy) == record


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes([FORMAT]),
        encode_record(STRATEGY)[:-1],
        encode_record(STRATEGY) + b"0",
        # A text that is not UTF-8, where the event type stands.
        bytes([FORMAT]) + b"\x97\x01\x02\x03\xa1\x80\xa1h\x04\x05",
    ],
)
def test_bytes_that_are_no_record_are_a_store_error(data: bytes) -> None:
    with pytest.raises(StoreError):
        decode_record(data, Strategy)


class Before(Record, kw_only=True, frozen=True):
    """A record of an earlier version."""

    number: int


class After(Record, kw_only=True, frozen=True):
    """The same record with one more field at the end."""

    number: int
    added: str = "default"


def test_a_field_added_at_the_end_reads_as_its_default_from_old_bytes() -> None:
    old = encode_record(Before(number=1, created_at=2, updated_at=3))
    assert decode_record(old, After) == After(number=1, created_at=2, updated_at=3)


def test_a_field_an_older_version_does_not_know_is_passed_over() -> None:
    new = encode_record(After(number=1, added="x", created_at=2, updated_at=3))
    assert decode_record(new, Before) == Before(number=1, created_at=2, updated_at=3)
