"""Delays signals to a command while an interruption would lose something."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def held() -> Iterator[None]:
    """Delay the handlers of SIGINT, SIGTERM and SIGHUP to the end of the context.

    Otherwise an exception of a handler could leave `Popen` after the child was started and before
    its pid is known, and nobody could end that child. Signals without a Python handler keep their
    effect. In threads other than the main thread, the context does nothing, because handlers do not
    run there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in _ENDING}
    came: list[int] = []
    for number, handler in handlers.items():
        if callable(handler):
            signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            if callable(handler):
                signal.signal(number, handler)
        for late in dict.fromkeys(came):
            signal.raise_signal(late)
