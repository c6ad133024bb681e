"""Which part of a WebSocket's frame is read next."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from fieldbrook.gateway.http.tornado.frame_reads import FrameReads

CONTINUED, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


def _parts(opcode: int, final: bool, size: int) -> Iterator[bytes]:
    """A masked frame as Tornado reads it."""
    head = opcode | (0x80 if final else 0)
    if size < 126:
        yield bytes([head, 0x80 | size])
    elif size < 1 << 16:
        yield bytes([head, 0x80 | 126])
        yield struct.pack(">H", size)
    else:
        yield bytes([head, 0x80 | 127])
        yield struct.pack(">Q", size)
    yield bytes(4)
    yield bytes(size)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([CONTINUED, TEXT, BINARY, CLOSE, PING, PONG]),
            st.booleans(),
            st.one_of(st.integers(0, 300), st.just(70_000)),
        ),
        max_size=8,
    )
)
def test_the_bytes_of_messages_are_told_from_all_others(
    frames: list[tuple[int, bool, int]],
) -> None:
    reads, counted = FrameReads(), 0
    for opcode, final, size in frames:
        for part in _parts(opcode, final, size):
            counted += len(part) if reads.belongs_to_message else 0
            assert reads.note(part)
    assert counted == sum(size for opcode, _, size in frames if opcode < CLOSE)


def test_a_frame_without_a_mask_is_noticed() -> None:
    assert FrameReads().note(bytes([BINARY, 0x80]))
    assert not FrameReads().note(bytes([BINARY, 0]))
    assert not FrameReads().note(bytes([0x80 | PING, 125]))
