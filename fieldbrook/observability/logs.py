"""The node's own log: one line per record on standard error."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable

from fieldbrook.core.clock import rfc3339


def one_line(text: str) -> str:
    """Escape characters that are not printable, because topics and errors may contain any text of a
    device.

    Line breaks could forge log lines, escape sequences could control a terminal, and direction
    marks could show a line in another order.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else character.encode("unicode_escape").decode()


class TextFormatter(logging.Formatter):
    """`2026-11-21T06:31:00.123Z INFO  fieldbrook.node.main: listen on :8888`."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line; a traceback follows on lines that begin with blanks.

        The text of an exception may have several lines, too, and come from a device.
        """
        line = (
            f"{rfc3339(int(record.created * 1000))} {record.levelname:<7} "
            f"{record.name}: {one_line(record.getMessage())}"
        )
        if not record.exc_info:
            return line
        trace = self.formatException(record.exc_info).split("\n")
        return "\n  ".join((line, *map(one_line, trace)))


class JsonFormatter(logging.Formatter):
    """One JSON object per line: `time`, `level`, `logger`, `process`, `message`, `error`?."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line, including the traceback."""
        entry = {
            "time": rfc3339(int(record.created * 1000)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        text = json.dumps(entry, ensure_ascii=False)
        # JSON escapes only the control characters below U+0020.
        return text if text.isprintable() else json.dumps(entry).replace("\x7f", "\\u007f")


class RateLimitedLog:
    """A log for one frequent warning: it writes one line per interval, with the number of
    suppressed ones."""

    def __init__(
        self,
        log: logging.Logger,
        interval_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._interval_s = interval_s
        self._clock = clock
        self._next = float("-inf")
        self._suppressed = 0

    def warning(self, text: str, *args: object) -> None:
        """Log the warning, or only count it when a line was logged within the interval."""
        now = self._clock()
        if now < self._next:
            self._suppressed += 1
            return
        if self._suppressed:
            text, args = (
                text + " (%d more times since the last such line)",
                (*args, self._suppressed),
            )
        self._log.warning(text, *args)
        self._next, self._suppressed = now + self._interval_s, 0


def configure(level: str, form: str = "text") -> None:
    """Send records of `level` and above to standard error as `text` or `json`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # Tornado logs each failed request here; the client gets the reason in the response.
    logging.getLogger("tornado.access").setLevel(logging.ERROR)
