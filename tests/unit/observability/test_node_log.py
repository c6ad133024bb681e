"""The last log lines of all processes, in memory."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator

import pytest

from fieldbrook.observability import node_log
from fieldbrook.observability.node_log import (
    LIMIT_BYTES,
    LINES,
    TEXT_LIMIT,
    Handler,
    Line,
    LineFilter,
    NodeLog,
    Page,
)

EVERY = LineFilter()
_NOW = 1_790_000_000_000


@pytest.fixture
def kept() -> Iterator[NodeLog]:
    made = NodeLog.create(_NOW)
    yield made
    os.close(made.descriptor)


def line(text: str, level: int = logging.INFO, process: str = "http:0") -> Line:
    return Line(_NOW, level, "a.b", process, text)


def texts(page: Page) -> list[str]:
    return [placed.line.text for placed in page.lines]


def test_lines_are_read_in_pages_from_either_end(kept: NodeLog) -> None:
    for number in range(10):
        kept.append(line(str(number)))
    first = kept.read_after(EVERY, 0, 6)
    rest = kept.read_after(EVERY, first.following, 6)
    assert texts(first) + texts(rest) == [str(n) for n in range(10)]
    assert kept.read_after(EVERY, rest.following, 6) == Page([], rest.following)
    assert texts(kept.read_after(EVERY, -3, 100)) == ["7", "8", "9"]
    newest = kept.read_before(EVERY, 0, 8)
    older = kept.read_before(EVERY, newest.following, 8)
    assert texts(newest) + texts(older) == [str(n) for n in reversed(range(10))]
    assert older.following == 0
    kept.append(line("10"))
    assert texts(kept.read_after(EVERY, rest.following, 6)) == ["10"]


def test_lines_are_selected_by_level_text_and_process(kept: NodeLog) -> None:
    kept.append(line("a Disk is full", logging.ERROR, "project:7"))
    kept.append(line("listen", logging.INFO, "http:1"))
    kept.append(line("slow disk", logging.WARNING, "http:0"))
    assert texts(kept.read_after(LineFilter(logging.WARNING), 0, 9)) == [
        "a Disk is full",
        "slow disk",
    ]
    assert texts(kept.read_before(LineFilter(contains="DISK"), 0, 9)) == [
        "slow disk",
        "a Disk is full",
    ]
    assert texts(kept.read_after(LineFilter(contains="A.B: LIST"), 0, 9)) == ["listen"]
    assert texts(kept.read_after(LineFilter(process="http"), 0, 9)) == ["listen", "slow disk"]
    assert texts(kept.read_after(LineFilter(process="project:7"), 0, 9)) == ["a Disk is full"]
    # A client that follows continues after lines that do not match.
    end = kept.read_after(LineFilter(process="mqtt:0"), -5, 9).following
    assert kept.read_after(EVERY, end, 9).lines == []


def test_memory_and_lines_are_bounded_and_the_newest_stay(kept: NodeLog) -> None:
    for number in range(3 * LIMIT_BYTES // 1_000):
        kept.append(line(f"{number} " + "x" * 1_000))
    assert os.fstat(kept.descriptor).st_blocks * 512 < LIMIT_BYTES + (512 << 10)
    (newest,) = kept.read_after(EVERY, -1, 1).lines
    assert newest.line.text.startswith(f"{number} ")
    for number in range(LINES + 10):
        kept.append(line(str(number)))
    found: list[str] = []
    before = 0
    while page := kept.read_before(EVERY, before, 1_000).lines:
        found += texts(Page(page, 0))
        before = page[-1].sequence
    assert found == [str(n) for n in reversed(range(10, LINES + 10))]


def test_the_rest_of_a_killed_writer_hides_no_other_line(kept: NodeLog) -> None:
    kept.append(line("before"))
    os.write(kept.descriptor, b'\n[1790000000000,20,"a.b","http:0","cut in the mid')
    page = kept.read_after(EVERY, 0, 9)
    assert texts(page) == ["before"]
    kept.append(line("after"))
    assert texts(kept.read_after(EVERY, page.following, 9)) == ["after"]
    assert texts(kept.read_before(EVERY, 0, 9)) == ["after", "before"]


def test_lines_of_a_process_that_was_killed_are_there(kept: NodeLog) -> None:
    pid = os.fork()
    if pid == 0:
        kept.append(line("the last words", process="project:7"))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    assert texts(kept.read_after(LineFilter(process="project:7"), 0, 9)) == ["the last words"]


def test_a_later_start_of_the_node_has_greater_sequences(kept: NodeLog) -> None:
    for number in range(100):
        kept.append(line(str(number)))
    end = kept.read_after(EVERY, -1, 1).following
    later = NodeLog.create(_NOW + 1_000)
    later.append(line("again"))
    assert texts(later.read_after(EVERY, end, 9)) == ["again"]
    assert texts(later.read_after(EVERY, 1 << 62, 9)) == ["again"]
    os.close(later.descriptor)


def test_a_record_is_kept_on_one_line_within_its_limit_with_its_traceback(
    kept: NodeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_log.here, "process", "mqtt:0")
    handler = Handler(kept)

    def write(text: str, *values: object, failed: bool = False) -> str:
        cause = sys.exc_info() if failed else None
        handler.emit(logging.LogRecord("a.b", logging.ERROR, "f", 1, text, values, cause))
        (placed,) = kept.read_after(EVERY, -1, 1).lines
        assert (placed.line.level, placed.line.process) == (logging.ERROR, "mqtt:0")
        return placed.line.text

    assert write("said %s", "a\nb\x1b") == "said a\\x0ab\\x1b"
    assert write("a file \udcff") == "a file \\udcff"
    assert write("said %s and %s", "one").startswith("'said %s and %s' cannot be formatted")
    long = write("x%sy", "-" * 100_000)
    assert len(long) <= TEXT_LIMIT + 5
    assert (long[0], long[-1]) == ("x", "y")
    try:
        raise ValueError("cause")
    except ValueError:
        assert write("failed", failed=True).endswith("\nValueError: cause")


def test_lines_that_cannot_be_kept_are_reported_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    closed = NodeLog.create(_NOW)
    os.close(closed.descriptor)
    handler = Handler(closed)
    monkeypatch.setattr(node_log.log, "propagate", True)
    for _ in range(3):
        handler.emit(logging.LogRecord("a.b", logging.INFO, "f", 1, "lost", (), None))
    assert len(caplog.records) == 1
    assert "lines are missing" in caplog.text


def test_a_descriptor_of_something_else_is_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(node_log, "here", type(node_log.here)())
    for value in ("x", "0", "-1", "99999999999999999999"):
        monkeypatch.setenv(node_log.VARIABLE, value)
        node_log.join("node")
        assert node_log.VARIABLE not in os.environ
        assert node_log.passed_on() == ({}, [])
    assert len(caplog.records) == 4
