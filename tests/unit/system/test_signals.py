"""Delayed signals."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from fieldbrook.system.signals import held


def test_a_signal_in_the_context_comes_at_its_end() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), held():
        signal.raise_signal(signal.SIGINT)
        done.append("the whole context")
    assert done == ["the whole context"]
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_nothing_comes_when_there_was_no_signal() -> None:
    before = signal.getsignal(signal.SIGINT)
    with held():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_an_error_of_the_context_stays_the_cause() -> None:
    with pytest.raises(KeyboardInterrupt) as caught, held():
        signal.raise_signal(signal.SIGINT)
        raise ValueError("of the context")
    assert isinstance(caught.value.__context__, ValueError)


def test_a_signal_without_a_handler_keeps_its_effect() -> None:
    code = (
        "import signal; from fieldbrook.system.signals import held\n"
        "with held(): signal.raise_signal(signal.SIGTERM)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGTERM


def test_other_threads_leave_the_handlers_as_they_are() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def look() -> None:
        with held():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [before]
