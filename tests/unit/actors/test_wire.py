"""Frames of the data plane."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.actors.wire import FrameReader, frame, pack, unpack


@given(st.lists(st.binary(max_size=300)), st.lists(st.integers(1, 64), min_size=1))
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(
    bodies: list[bytes], cuts: list[int]
) -> None:
    stream = b"".join(frame(body) for body in bodies)
    reader, found, at, turn = FrameReader(), [], 0, 0
    while at < len(stream):
        step = cuts[turn % len(cuts)]
        found += reader.feed(stream[at : at + step])
        at, turn = at + step, turn + 1
    assert found == bodies


def test_a_length_that_no_frame_of_ours_has_ends_the_stream() -> None:
    with pytest.raises(ValueError, match="a frame of"):
        FrameReader().feed(b"\xff\xff\xff\xffGET ")


def test_values_survive_packing_and_sequences_come_back_as_tuples() -> None:
    assert unpack(pack([["T", 1, "id", b"\x00\xff", 2], []])) == (
        ("T", 1, "id", b"\x00\xff", 2),
        (),
    )
