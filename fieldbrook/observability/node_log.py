"""The last log lines of all processes of the node, in memory, for `GET /node_log`.

Every record that goes to standard error is also appended to one file in memory, which all
processes inherit. Therefore the lines of a killed process stay, and under `fieldbrook up` also
those of a node that was restarted as a whole. An append is one system call without a lock. The file
is not on a disk, so a full disk does not affect it.

A line is a line break, a JSON array and a line break. The first line break ends an incomplete line
of a killed process; an incomplete line is not JSON and is skipped.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from fieldbrook.core.clock import now_ms
from fieldbrook.observability.logs import one_line
from fieldbrook.system.kernel import create_memory_file, free_before, is_memory_file

log = logging.getLogger(__name__)

LINES = 5_000
LIMIT_BYTES = 2 << 20
TEXT_LIMIT = 8_000  # characters of one line; the middle of a longer line is left out

# Environment variable: the number of the inherited descriptor of the file.
VARIABLE = "FIELDBROOK_LOG_FD"
_NAME = "fieldbrook-log"
_TRIM_BYTES = 256 << 10  # memory is freed in steps of this size
_OFFSETS_PER_MS = 256


class Line(msgspec.Struct, array_like=True, frozen=True):
    """A log line: Unix milliseconds, the number of its level in `logging`, its process and its
    logger."""

    time_ms: int
    level: int
    logger: str
    process: str
    text: str


class Placed(NamedTuple):
    """A line, and the offset of its end in the file, which only increases."""

    sequence: int
    line: Line


class Page(NamedTuple):
    """Lines, and the position of the next request; 0 if there are no older lines."""

    lines: list[Placed]
    following: int


class LineFilter(NamedTuple):
    """Selects lines of at least `level` that contain `contains` (case is ignored), of `process`.

    `process` is a name such as `http:0`, or the part before the colon for all processes of a kind.
    """

    level: int = 0
    contains: str = ""
    process: str = ""

    def matches(self, line: Line) -> bool:
        """Return whether a line is selected."""
        if line.level < self.level:
            return False
        if self.process and self.process not in (line.process, line.process.partition(":")[0]):
            return False
        wanted = self.contains.casefold()
        return not wanted or wanted in f"{line.logger}: {line.text}".casefold()


class NodeLog:
    """The file in memory that all processes share."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._freed = 0

    @classmethod
    def create(cls, time_ms: int) -> NodeLog:
        """Create the file of a node that starts at `time_ms`.

        Offsets begin at a multiple of the time, so that they also increase from one start of the
        node to the next, and a client continues at the same place.

        Raises:
            OSError: the system does not support files in memory.
        """
        return cls(create_memory_file(_NAME, time_ms * _OFFSETS_PER_MS))

    def append(self, line: Line) -> None:
        """Append a line, and free the memory of lines that are too old.

        Raises:
            OSError: there is no memory for it.
        """
        os.write(self.descriptor, b"\n%b\n" % msgspec.json.encode(line))
        oldest = self._end() - LIMIT_BYTES
        if oldest - self._freed >= _TRIM_BYTES:
            free_before(self.descriptor, oldest)
            self._freed = oldest

    def read_after(self, wanted: LineFilter, after: int, limit: int) -> Page:
        """Return matching lines with a sequence above `after`, oldest first; -n gives the last
        n."""
        lines, end = self._lines(max(after, 0))
        if after < 0:
            found = _first(reversed(lines), wanted, min(limit, -after))
            return Page(found[::-1], end)
        found = _first(iter(lines), wanted, limit)
        return Page(found, found[-1].sequence if len(found) == limit else end)

    def read_before(self, wanted: LineFilter, before: int, limit: int) -> Page:
        """Return matching lines with a sequence below `before`, newest first; 0 begins with the
        newest."""
        lines, _ = self._lines(0)
        older = (placed for placed in reversed(lines) if not before or placed[0] < before)
        found = _first(older, wanted, limit)
        return Page(found, found[-1].sequence if len(found) == limit else 0)

    def _end(self) -> int:
        return os.fstat(self.descriptor).st_size

    def _lines(self, after: int) -> tuple[list[tuple[int, bytes]], int]:
        """Return the last complete lines after an offset with their sequences, and the end of the
        last one.

        An offset that this file does not have yet counts as 0.
        """
        end = self._end()
        position = max(after if after <= end else 0, end - LIMIT_BYTES)
        data = os.pread(self.descriptor, end - position, position)
        lines = []
        for part in data.split(b"\n")[:-1]:  # the text after the last line break is incomplete
            position += len(part) + 1
            if part:
                lines.append((position, part))
        return lines[-LINES:], position


def _first(lines: Iterator[tuple[int, bytes]], wanted: LineFilter, limit: int) -> list[Placed]:
    """Return the first `limit` matching lines."""
    found: list[Placed] = []
    for sequence, encoded in lines:
        try:
            line = msgspec.json.decode(encoded, type=Line)
        except (msgspec.DecodeError, UnicodeDecodeError):  # an incomplete line of a killed process
            continue
        if wanted.matches(line):
            found.append(Placed(sequence, line))
            if len(found) == limit:
                break
    return found


class Handler(logging.Handler):
    """Appends each record to the node's log."""

    def __init__(self, node_log: NodeLog) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter())
        self._node_log = node_log
        self._failing = False

    def emit(self, record: logging.LogRecord) -> None:
        """Append a record. Of several consecutive failures, only the first is reported."""
        line = self._line(record)
        try:
            self._node_log.append(line)
        except OSError as error:
            if not self._failing:
                self._failing = True  # set first, because the warning is a record, too
                log.warning("log lines are missing in GET /node_log: %s", error)
        else:
            self._failing = False

    def _line(self, record: logging.LogRecord) -> Line:
        try:
            text = one_line(record.getMessage())
        except (TypeError, ValueError) as error:  # standard error shows the place
            text = f"{record.msg!r} cannot be formatted: {error}"
        if record.exc_info and self.formatter is not None:
            text += "\n" + self.formatter.formatException(record.exc_info)
        if len(text) > TEXT_LIMIT:
            text = f"{text[: TEXT_LIMIT // 2]} ... {text[-TEXT_LIMIT // 2 :]}"
        # JSON cannot contain a surrogate, which comes from a file name that is not UTF-8, for
        # example.
        text = text.encode("utf-8", "backslashreplace").decode()
        return Line(int(record.created * 1000), record.levelno, record.name, here.process, text)


class _Here:
    """The state of this process: its name in the log, and the log of its node."""

    __slots__ = ("node_log", "process")

    def __init__(self) -> None:
        self.process = ""
        self.node_log: NodeLog | None = None


here = _Here()


def start(process: str) -> None:
    """Store all later log lines of this process and its forks; call this after `logs.configure`.

    The file is that of the program that started this one, or a new one. If there is no such file,
    the node still runs, with a warning in the log.
    """
    join(process)
    if here.node_log is None:
        try:
            _attach(NodeLog.create(now_ms()))
        except OSError as error:
            log.warning("GET /node_log will show nothing: %s", error)


def join(process: str) -> None:
    """Store the log lines of this process in the file that its parent passed to it, if there is
    one."""
    name(process)
    number = os.environ.pop(VARIABLE, "")
    if not number:
        return
    if not number.isdecimal() or not is_memory_file(int(number), _NAME):
        log.warning("%s is set by the node for its own processes; unset it", VARIABLE)
        return
    os.set_inheritable(int(number), False)
    _attach(NodeLog(int(number)))


def _attach(node_log: NodeLog) -> None:
    here.node_log = node_log
    logging.getLogger().addHandler(Handler(node_log))


def name(process: str) -> None:
    """Set the name of this process in its log lines, such as `http:0`."""
    here.process = process


def passed_on() -> tuple[dict[str, str], list[int]]:
    """Return the environment and the descriptors with which a child program can `join`."""
    if here.node_log is None:
        return {}, []
    descriptor = here.node_log.descriptor
    return {VARIABLE: str(descriptor)}, [descriptor]
