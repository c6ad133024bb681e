"""`fieldbrook up`: run a node in the foreground, without another supervisor.

It restarts the node when it dies, and stops it at SIGINT, SIGTERM or SIGHUP.
"""

from __future__ import annotations

import logging
import os
import signal
import time

from fieldbrook.actors.supervisor.restarts import Restarts
from fieldbrook.core.errors import NodeError
from fieldbrook.core.settings import Settings, clean_environment
from fieldbrook.observability import logs, node_log
from fieldbrook.security import tls
from fieldbrook.storage import data_lock
from fieldbrook.system.kernel import die_with
from fieldbrook.system.process import keep_memory_private

log = logging.getLogger(__name__)

_STOP_S = 17.0  # workers write missing batches for up to 10 s, see `core.py`
_TICK_S = 0.05
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
CANNOT_START = 2  # the node's exit code when it cannot start; a restart does not help
REMOVED = 4  # its exit code when this host was removed from its cluster


class Node:
    """The process of a node, which is kept running for as long as this process runs."""

    def __init__(self, settings: Settings, lock: int) -> None:
        """Prepare the start; `lock` is the descriptor of the data folder's lock."""
        log_variable, _ = node_log.passed_on()
        self._settings = settings
        self._inherited = {**log_variable, data_lock.LOCK_VARIABLE: str(lock)}
        self._pid: int | None = None
        self._restarts = Restarts()
        self._started = self._start_at = 0.0

    def start(self) -> None:
        """Start the node in a session of its own, so that a Ctrl-C reaches only this process.

        The node is a fork, because a new interpreter would import the settings and the command line
        again, which takes a quarter of a start.
        """
        self._started = time.monotonic()
        parent = os.getpid()
        # A signal to the fork waits until the fork has replaced the handlers of this process.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        self._pid = os.fork()
        if self._pid:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            return
        code = CANNOT_START
        try:
            die_with(parent)
            if os.getppid() != parent:
                os._exit(code)  # it died before `die_with` took effect
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            os.setsid()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.environ.update(self._inherited)
            from fieldbrook.node import main

            code = main.run(self._settings, is_told=True)
        except BaseException:
            code = 1
            log.exception("the node failed")
        finally:
            os._exit(code)

    def watch(self) -> bool:
        """Restart the node if it has died and its backoff has passed; return False if it cannot
        start."""
        now = time.monotonic()
        if self._pid is None:
            if now >= self._start_at:
                self.start()
            return True
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if not pid:
            return True
        self._pid = None
        code = os.waitstatus_to_exitcode(status)
        if code == REMOVED or (code == CANNOT_START and not self._restarts.failures):
            return False  # the node has logged the reason; a restart cannot help
        self._restarts = self._restarts.after_exit(now - self._started)
        self._start_at = now + self._restarts.delay_s
        log.error("the node ended with code %d; it restarts in %.1f s", code, self._start_at - now)
        return True

    def stop(self) -> None:
        """Send SIGTERM, then SIGKILL if it does not end within `_STOP_S`."""
        if self._pid is None:
            return
        os.kill(self._pid, signal.SIGTERM)
        limit = time.monotonic() + _STOP_S
        while os.waitpid(self._pid, os.WNOHANG) == (0, 0):
            if time.monotonic() >= limit:
                log.error("killed the node, which did not stop within %.1f s", _STOP_S)
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
                break
            time.sleep(_TICK_S)


def run(settings: Settings) -> int:
    """Run until SIGINT, SIGTERM or SIGHUP; return the exit code, 0 after a clean stop."""
    stopping = False

    def stop(number: int, frame: object) -> None:
        nonlocal stopping
        stopping = True

    for number in _SIGNALS:
        signal.signal(number, stop)
    logs.configure(settings.log_level, settings.log_format)
    node_log.start("up")
    for warning in settings.warnings:
        log.warning("%s", warning)
    if not settings.core_dumps:
        keep_memory_private()
    clean_environment()
    try:
        tls.check(settings)
        node = Node(settings, data_lock.acquire_data_lock(settings.data.absolute()))
    except NodeError as error:
        log.critical("%s", error)
        return CANNOT_START
    node.start()
    while not stopping:
        if not node.watch():
            return CANNOT_START
        time.sleep(_TICK_S)
    node.stop()
    return 0
