"""Tables of numbered rows, on a real LMDB."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from fieldbrook.storage.lmdb.environment import open_environment
from fieldbrook.storage.lmdb.rows import RowTable, table_bytes


class Row(msgspec.Struct, array_like=True, frozen=True):
    """A row."""

    value: int


steps = st.lists(
    st.one_of(
        st.lists(st.integers(0, 3), min_size=1, max_size=4),  # append these
        st.integers(0, 3),  # remove the rows of this value
        st.just("reopen"),
    ),
    max_size=12,
)


@settings(max_examples=60)
@given(steps)
def test_rows_are_those_not_removed_under_numbers_never_given_again(
    steps: list[list[int] | int | str],
) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        open_environment(Path(folder), map_size=1 << 20) as environment,
    ):
        table = RowTable(environment, b"rows", Row, 1_000, create=True)
        expected: list[tuple[int, int]] = []
        given_numbers = 0
        for step in steps:
            if isinstance(step, str):
                table = RowTable(environment, b"rows", Row, 1_000, create=False)
            elif isinstance(step, list):
                with environment.begin(write=True) as txn:
                    table.append(txn, [Row(value) for value in step])
                table.committed(len(step))
                expected += enumerate(step, given_numbers + 1)
                given_numbers += len(step)
            else:
                with environment.begin(write=True) as txn:
                    table.remove(txn, Row(step).__eq__)
                expected = [(number, value) for number, value in expected if value != step]
            with environment.begin() as txn:
                for after, wanted in (
                    (0, expected),
                    (3, [item for item in expected if item[0] > 3]),
                    (-2, expected[-2:]),
                ):
                    found = [(n.sequence, n.row.value) for n in table.after(txn, after, 1_000)]
                    assert found == wanted
                assert [row.value for row in table.backwards(txn)] == [
                    value for _, value in reversed(expected)
                ]
                assert len(table.after(txn, -3, 1)) == min(1, len(expected))


@given(st.integers(-8, 8), st.integers(1, 8), st.integers(0, 40))
def test_a_part_of_rows_has_so_many_bytes_or_one_row(after: int, limit: int, size: int) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        open_environment(Path(folder), map_size=1 << 20) as environment,
    ):
        table = RowTable(environment, b"rows", Row, 1_000, create=True)
        with environment.begin(write=True) as txn:
            table.append(txn, [Row(1 << 40)] * 6)  # 10 bytes each
        table.committed(6)
        with environment.begin() as txn:
            wanted = [*range(1, 7)][after:] if after < 0 else [*range(after + 1, 7)]
            found = [row.sequence for row in table.after(txn, after, limit, size)]
            assert found == wanted[: min(limit, max(1, size // 10))]
            assert len(table.after(txn, after, limit)) == len(wanted[:limit])


class Text(msgspec.Struct, array_like=True, frozen=True):
    """A row with a text."""

    text: str


@settings(max_examples=40)
@given(st.lists(st.lists(st.integers(0, 9_000), min_size=1, max_size=60), max_size=8))
def test_rows_take_no_more_of_the_disk_than_their_limit(commits: list[list[int]]) -> None:
    limit = 40_960
    with (
        tempfile.TemporaryDirectory() as folder,
        open_environment(Path(folder), map_size=1 << 23) as environment,
    ):
        table = RowTable(environment, b"rows", Text, 1_000, create=True, limit_bytes=limit)
        for sizes in commits:
            with environment.begin(write=True) as txn:
                table.append(txn, [Text("x" * size) for size in sizes])
            table.committed(len(sizes))
            with environment.begin() as txn:
                assert table_bytes(txn, environment.open_db(b"rows")) <= limit
                newest = [len(row.text) for row in table.backwards(txn)]
            assert newest[0] == sizes[-1]


def test_the_newest_row_stays_however_large_it_is(tmp_path: Path) -> None:
    with open_environment(tmp_path, map_size=1 << 20) as environment:
        table = RowTable(environment, b"rows", Text, 1_000, create=True, limit_bytes=8_192)
        for size in (10, 20_000):
            with environment.begin(write=True) as txn:
                table.append(txn, [Text("x" * size)])
            table.committed(1)
        with environment.begin() as txn:
            assert [number for number, _ in table.items_forwards(txn, 0)] == [2]
        again = RowTable(environment, b"rows", Text, 1_000, create=False, limit_bytes=8_192)
        assert again.next_number == 3
