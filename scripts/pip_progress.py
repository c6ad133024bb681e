#!/usr/bin/env python3
"""Run `pip install` and show the progress: scripts/pip_progress.py [OPTIONS of pip install]

With `--venv FOLDER` it makes a virtual environment, with the interpreter that runs this script. On
a terminal, the progress is one line that changes; elsewhere there is a line for each step, and one
every ten seconds. The output of the program is shown if the program fails. The exit code is that of
the program.
"""

from __future__ import annotations

import os
import queue
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from importlib.metadata import distributions, version
from pathlib import Path
from typing import IO, TextIO

_TICK_S = 0.1
_LINE_S = 10.0  # between two lines about the same step, without a terminal
_KEPT_LINES = 200
_SPINNER = "|/-\\"
_MB = 1_000_000
_RAW_SINCE = (24, 1)  # the first version of pip that reports the bytes of a download

_COLLECTING = re.compile(r"^Collecting ([\w.-]+)")
_DOWNLOADING = re.compile(
    r"^\s*(?:Downloading|Using cached) (\S+?)(?:\.metadata)? \(([\d.]+) (\w+)\)"
)
_BYTES = re.compile(r"^Progress (\d+) of (\d+)$")
_BUILDING = re.compile(r"^\s*(?:Building|Preparing|Getting requirements|Installing build)")
_INSTALLING = re.compile(r"^Installing collected packages: (.*)$")
_UNITS = {"bytes": 1, "kB": 1_000, "MB": _MB, "GB": 1_000 * _MB}


class Progress:
    """The progress of pip, from the lines that it prints.

    Attributes:
        step: the kind of work; a new step gets a new line.
        libraries: the number of libraries to install; 0 as long as it is unknown.
    """

    def __init__(self) -> None:
        self.step = "preparing"
        self.libraries = 0
        self._found = 0
        self._name = ""
        self._size = self._done = self._finished = 0

    def feed(self, line: str) -> None:
        """Process one line of pip's output."""
        if found := _BYTES.match(line):
            self._done, self._size = int(found[1]), int(found[2])
        elif found := _DOWNLOADING.match(line):
            self._finished += self._size
            self._name = found[1].split("-")[0]
            self._size, self._done = int(float(found[2]) * _UNITS.get(found[3], 0)), 0
            self.step = "downloading"
        elif found := _COLLECTING.match(line):
            self._found += 1
            self._name = found[1]
            self.step = "downloading"
        elif found := _INSTALLING.match(line):
            self.libraries = len(found[1].split(","))
            self.step = "installing"
        elif _BUILDING.match(line):
            self.step = "building"

    def text(self, installed: int = 0) -> str:
        """Return the line to show; `installed` is the number of libraries that are installed
        already."""
        if self.step == "installing":
            return f"installing libraries, {min(installed, self.libraries)} of {self.libraries}"
        if self.step == "building":
            return f"building {self._name or 'fieldbrook'}"
        if self.step == "preparing":
            return "preparing"
        size = f", {self._size / _MB:.1f} MB" if self._size else ""
        if self._done:
            size = f", {self._done / _MB:.1f} of {self._size / _MB:.1f} MB"
        return f"downloading {self._name}{size} (library {self._found}, {self._total()} MB so far)"

    def _total(self) -> str:
        return f"{(self._finished + self._done) / _MB:.0f}"


class Display:
    """Shows the progress at a terminal in one line, elsewhere in several."""

    def __init__(self, output: TextIO, *, terminal: bool) -> None:
        self._output, self._terminal = output, terminal
        self._turn, self._shown, self._shown_at = 0, "", float("-inf")

    def show(self, step: str, text: str, seconds: float) -> None:
        """Show the state after this number of seconds."""
        if self._terminal:
            self._turn = (self._turn + 1) % 4
            line = f"{_SPINNER[self._turn]} {text}, {seconds:.0f} s"
            width = shutil.get_terminal_size().columns - 1
            self._output.write(f"\r{line[:width]}\x1b[K")
        elif step != self._shown or seconds - self._shown_at >= _LINE_S:
            self._output.write(f"{text}, {seconds:.0f} s\n")
            self._shown, self._shown_at = step, seconds
        self._output.flush()

    def end(self, text: str) -> None:
        """Replace the state by a last line."""
        self._output.write(f"\r\x1b[K{text}\n" if self._terminal else f"{text}\n")
        self._output.flush()


def main(arguments: list[str]) -> int:
    """Run pip or venv; return its exit code."""
    terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    display = Display(sys.stderr, terminal=terminal)
    if arguments[:1] == ["--venv"]:
        return _make_venv(arguments[1], display)
    return _install(arguments, display)


def _make_venv(folder: str, display: Display) -> int:
    name = Path(folder).name
    text = f"making {name} with {Path(sys.executable).name}"
    command = [sys.executable, "-I", "-m", "venv", "--clear", folder]
    return _run(
        "venv",
        command,
        display,
        lambda line: None,
        lambda: ("making", text),
        lambda: f"made {name}",
    )


def _install(arguments: list[str], display: Display) -> int:
    progress, before = Progress(), _installed()

    def state() -> tuple[str, str]:
        now = _installed() - before if progress.step == "installing" else 0
        return progress.step, progress.text(now)

    def done() -> str:
        many = "library" if progress.libraries == 1 else "libraries"
        return f"installed {progress.libraries} {many}"

    return _run("pip", _command(arguments), display, progress.feed, state, done)


def _run(
    program: str,
    command: list[str],
    display: Display,
    feed: Callable[[str], None],
    state: Callable[[], tuple[str, str]],
    done: Callable[[], str],
) -> int:
    """Run a program and show its state, a step and a text; return its exit code.

    `feed` is called with each line of its output, and `done` returns the last text.
    """
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(process.stdout, lines), daemon=True).start()
    said: deque[str] = deque(maxlen=_KEPT_LINES)
    try:
        while (line := _next(lines)) is not None:
            feed(line)
            if line and not _BYTES.match(line):
                said.append(line)
            display.show(*state(), time.monotonic() - began)
    except KeyboardInterrupt:
        display.end("interrupted")
        process.wait()  # the program has got the Ctrl-C, too
        return 130
    code = process.wait()
    if code:
        display.end(f"{program} failed with exit code {code}:")
        sys.stderr.writelines(f"  {line}\n" for line in said)
    else:
        display.end(f"{done()} in {time.monotonic() - began:.0f} s")
    return code


def _next(lines: queue.SimpleQueue[str | None]) -> str | None:
    """Return the next line; "" if none arrived for a short time, None at the end."""
    try:
        return lines.get(timeout=_TICK_S)
    except queue.Empty:
        return ""


def _read(output: IO[str], lines: queue.SimpleQueue[str | None]) -> None:
    for line in output:
        lines.put(line.rstrip("\n"))
    lines.put(None)


def _command(arguments: list[str]) -> list[str]:
    known = tuple(int(part) for part in version("pip").split(".")[:2])
    bar = "raw" if known >= _RAW_SINCE else "off"
    options = ("--progress-bar", bar, "--no-color", "--disable-pip-version-check", "--no-input")
    return [sys.executable, "-I", "-u", "-m", "pip", "install", *options, *arguments]


def _installed() -> int:
    """Return the number of libraries in this environment."""
    return sum(1 for _ in distributions())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
