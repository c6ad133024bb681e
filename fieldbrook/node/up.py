"""`fieldbrook up`: run a node in the foreground, without another supervisor.

It restarts the node when it dies, and stops it at SIGINT, SIGTERM or SIGHUP.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
from contextlib import suppress

from fieldbrook.actors.supervisor.restarts import Restarts
from fieldbrook.core.errors import NodeError, SettingsError
from fieldbrook.core.settings import (
    SECRETS_VARIABLE,
    Settings,
    as_environment,
    clean_environment,
    secrets_of,
)
from fieldbrook.observability import logs, node_log
from fieldbrook.security import tls
from fieldbrook.storage import data_lock
from fieldbrook.system.process import die_with_parent, keep_memory_private, module_command

log = logging.getLogger(__name__)

_STOP_S = 17.0  # workers write what the stores lack for up to 10 s, see `main.py`
_TICK_S = 0.05
CANNOT_START = 2  # the node's exit code when it cannot start; a restart does not help
REMOVED = 4  # its exit code when this host was removed from its cluster


class Node:
    """The process of a node, which is kept running for as long as this process runs."""

    def __init__(self, settings: Settings, lock: int) -> None:
        """Prepare to start it; `lock` is the descriptor of the data folder's lock."""
        log_variable, log_descriptors = node_log.passed_on()
        self._environment = {
            **as_environment(settings),
            **log_variable,
            data_lock.LOCK_VARIABLE: str(lock),
        }
        self._descriptors = [*log_descriptors, lock]
        self._secrets = secrets_of(settings)
        self._process: subprocess.Popen[bytes] | None = None
        self._restarts = Restarts()
        self._started = self._start_at = 0.0

    def start(self) -> None:
        """Start it in a session of its own, so that a Ctrl-C reaches only this process."""
        self._started = time.monotonic()
        environment, passed = {**os.environ, **self._environment}, []
        if self._secrets:
            # Not in the environment, which can be read for as long as the process lives.
            passed = [_pipe_with(self._secrets)]
            environment[SECRETS_VARIABLE] = str(passed[0])
        try:
            self._process = subprocess.Popen(
                module_command("fieldbrook", "node"),
                env=environment,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=[*passed, *self._descriptors],
                preexec_fn=die_with_parent,  # noqa: PLW1509 - this process has no threads
            )
        finally:
            for descriptor in passed:
                os.close(descriptor)

    def watch(self) -> bool:
        """Restart it when it has died and its backoff has passed; False when it cannot start."""
        now = time.monotonic()
        if self._process is None:
            if now >= self._start_at:
                self.start()
            return True
        code = self._process.poll()
        if code is None:
            return True
        self._process = None
        if code == REMOVED or (code == CANNOT_START and not self._restarts.failures):
            return False  # it has logged the reason; a restart cannot help
        self._restarts = self._restarts.after_exit(now - self._started)
        self._start_at = now + self._restarts.delay_s
        log.error("the node ended with code %d; it restarts in %.1f s", code, self._start_at - now)
        return True

    def stop(self) -> None:
        """Send SIGTERM, then SIGKILL if it does not end within `_STOP_S`."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            log.error("killed the node, which did not stop within %.1f s", _STOP_S)
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL)
            self._process.wait()


def _pipe_with(content: bytes) -> int:
    """Make a pipe that holds `content`; returns the descriptor of its reading end."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        if os.write(writing, content) < len(content):
            raise SettingsError(reason=f"the secret settings are too long: {len(content)} bytes")
    finally:
        os.close(writing)
    return reading


def run(settings: Settings) -> int:
    """Run until SIGINT, SIGTERM or SIGHUP; returns the exit code, 0 after a clean stop."""
    stopping = False

    def stop(number: int, frame: object) -> None:
        nonlocal stopping
        stopping = True

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
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
