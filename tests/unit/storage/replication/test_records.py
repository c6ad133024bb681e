"""Records of a replicated journal as bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.core.errors import JournalDamagedError
from fieldbrook.storage.replication.records import (
    FORMAT,
    Entry,
    Kind,
    decode_entry,
    encode_entry,
)

ENTRY = Entry(FORMAT, Kind.BATCH, 7, 2, "h1", 12, b"batch", 3)


@given(
    st.builds(
        Entry,
        st.just(FORMAT),
        st.sampled_from(Kind),
        *[st.integers(0, 1 << 60)] * 2,
        st.text(max_size=20),
        st.integers(0, 1 << 60),
        st.binary(max_size=200),
        st.integers(0, 1 << 60),
    )
)
def test_a_record_is_read_as_it_was_written(entry: Entry) -> None:
    assert decode_entry("s", 1, encode_entry(entry)) == entry


@pytest.mark.parametrize("at", range(len(encode_entry(ENTRY))))
def test_each_changed_byte_is_noticed(at: int) -> None:
    data = bytearray(encode_entry(ENTRY))
    data[at] ^= 1
    with pytest.raises(JournalDamagedError, match=r"record 9 of s"):
        decode_entry("s", 9, bytes(data))


@pytest.mark.parametrize("data", [b"", b"\0\0\0\0", encode_entry(ENTRY)[:-1]])
def test_a_record_that_is_cut_off_is_damaged(data: bytes) -> None:
    with pytest.raises(JournalDamagedError):
        decode_entry("s", 9, data)


def test_a_record_of_a_newer_version_is_refused_in_words() -> None:
    newer = encode_entry(Entry(FORMAT + 1, Kind.BATCH, 0, 1, "h", 1, b"", 1))
    with pytest.raises(JournalDamagedError, match=rf"format {FORMAT + 1}; this version reads"):
        decode_entry("s", 9, newer)
